"""Topdown as a product, from census-like tables to microdata; and estimate, from measurements.

Here are also the checks before a run (whether settings, input and machine fit; attributes that no
query asks for) and the summary of a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace

import numpy as np
from pyarrow import parquet

from ...geography.levels import Spine
from ...validation.topdown.privacy import check_privacy
from ..census.census_input import CensusInput
from ..census.queries import marginal_query
from ..pages.document import Block, Section
from ..products.acceptance import compare_release
from ..products.plan import Plan
from ..products.product import (
    Accuracy,
    Caution,
    Checks,
    Figures,
    Product,
    Rules,
    Words,
    format_notes,
)
from ..runs.directory import RunDirectory
from ..runs.errors import InputRefused
from .checks.accuracy.errors import read_together
from .checks.accuracy.report import COMPARED, accuracy_report, format_rows, write_run_accuracy
from .checks.pieces import outcomes_of_pieces
from .estimation.full_information import measured_algebra
from .estimation.largest_solve import (
    gigabytes,
    largest_solve,
    refuse_large_solves,
    refuse_settings,
    size_in_words,
)
from .ingest.earlier import held_answers
from .ingest.ingest import check_input_of, refuse_large_deltas
from .intervals.run_posterior import PosteriorSize, margins_refusal
from .measurement.measure import (
    deciding_files,
    measurement_files,
    plan_of_run,
    public_plan,
    universe_plan_of,
)
from .measurement.public_answers import checked_spines
from .published.layout import EstimateSettings
from .published.read import check_measurements, refuse_missing_folder
from .release.report import facts_of, facts_of_run, report
from .release.spine_summary import has_summary, write_summary
from .release.tabulations.run import has_margins, universes_without_margins
from .settings import TopdownSettings
from .spine.files import spine_of
from .workload.privacy_curve import scope_of_figures


def summary(run: RunDirectory, settings: TopdownSettings) -> Iterator[Block]:
    """Content of the release, and pages with its errors."""
    files = {name: run.release / f"mdf_{name}.parquet" for name in settings.run.universes}
    rows = {name: parquet.read_metadata(file).num_rows for name, file in files.items()}
    yield f"Released: {' and '.join(f'{n:,} rows of {name}' for name, n in rows.items())}."
    for why in universes_without_margins(run, settings).values():
        yield Caution(f"{why}.")
    if accuracy_report(run).exists():
        kind = "accuracy, confidential" if settings.input.confidential else "accuracy"
        yield f"{kind}: {accuracy_report(run)}"


def rewritten(run: RunDirectory, settings: TopdownSettings) -> None:
    """Make the spine's summary again if it is missing, and the errors while the truth is there."""
    for universe in settings.run.universes:
        if not has_summary(run, universe):
            write_summary(run, settings, universe)
    compare_release(run, settings, lambda: write_run_accuracy(run, settings))


def words_on_costs(settings: TopdownSettings, _plan: Plan) -> Iterator[Block | Section]:
    """The change behind the figures, and the size of the largest solve."""
    yield from scope_of_figures(settings)
    for universe in settings.run.universes:
        yield from size_in_words(universe, largest_solve(settings, universe))


def unmeasured_attributes(settings: TopdownSettings, universe: str) -> tuple[str, ...]:
    """A sentence that names the attributes of a universe whose levels no measured query
    distinguishes.

    Their released values follow from constraints, and from the choice among many optima, alone. A
    universe that is constrained by an earlier release may have them from there, and is skipped.
    """
    if settings.privacy.infinite or settings.compiled_census.universes[universe].held:
        return ()
    schema, budget = settings.schema_of(universe), settings.budget_of(universe)
    queries = [marginal_query(schema, name) for name in budget.queries]
    unmeasured = [
        attribute
        for axis, attribute in enumerate(schema.attributes)
        if len(schema.labels(attribute)) > 1 and all(query.shape[axis] == 1 for query in queries)
    ]
    if not unmeasured:
        return ()
    named = ", ".join(unmeasured)
    return (
        f"{universe}: no query of budget.{universe}.queries distinguishes levels of {named}, so "
        "that no measurement determines its release: ask for it, or leave it out of the "
        "universe's attributes",
    )


def refuse_estimate(settings: TopdownSettings) -> None:
    """Refuse settings that allow no estimate, and everything that a topdown run refuses."""
    if not settings.compiled_census.follows_block_rules:
        raise InputRefused(
            "The measurements are of a declared census, but estimate reads only those of the 2020 "
            "Census; continue the run that measured instead."
        )
    refuse_settings(settings)
    refuse_missing_folder(settings)


def check_settings_against_input(
    settings: TopdownSettings, accepted: CensusInput
) -> Iterator[Block]:
    """Check the settings against the records, and build the spines; raises InputRefused."""
    refuse_large_deltas(settings, accepted.n_records)
    if not settings.input.awaited:
        held_answers(settings, accepted)
    for universe, spine in checked_spines(settings, accepted.geography, accepted.public):
        yield from format_notes(unmeasured_attributes(settings, universe))
        records = accepted.known.get(universe)
        yield from size_in_words(universe, largest_solve(settings, universe, spine, records))
        yield from _no_margins(settings, universe, spine)


def _no_margins(settings: TopdownSettings, universe: str, spine: Spine) -> Iterator[Caution]:
    """A caution if the tables of a universe will have no margins, with the reason.

    An area may be known to have no records of some types, and then has fewer combinations.
    """
    if not has_margins(settings):
        return
    algebra = measured_algebra(settings, universe)
    types = np.ones((spine.n_blocks, int(algebra.cell_type.max()) + 1), dtype=bool)
    size = PosteriorSize.of(algebra, types)
    why = margins_refusal(universe, size)
    if why is not None:
        yield Caution(
            f"{why}. The release is made without them; `spineflow intervals` can make intervals "
            f"afterwards, in up to {gigabytes(size.peak)} of memory"
        )


def fits_measurements(settings: TopdownSettings, _accepted: None) -> Iterator[Block]:
    """Check measurements, geography and state totals as an estimate run does; write nothing."""
    check_measurements(settings)
    yield from ()


def plan_of_estimate(settings: TopdownSettings, run: RunDirectory | None) -> Plan:
    """Measures and guarantee of the measurements that were read, as far as settings and the spine
    say; nothing is drawn.
    """
    if run is None:
        return public_plan(settings)
    universes = [
        universe_plan_of(settings.budget_of(name), settings.schema_of(name), spine_of(run, name))
        for name in settings.run.universes
    ]
    return public_plan(settings, universes).decided_by(run, deciding_files(run, settings))


def plan_within_memory(settings: TopdownSettings, run: RunDirectory | None) -> Plan:
    """The plan of a run, or by settings alone, which have no spine; raises InputRefused where its
    estimates will not fit here.
    """
    if run is not None:
        refuse_large_solves(settings)
        return plan_of_run(run, settings)
    plan = public_plan(settings)
    sizes = [asdict(largest_solve(settings, cost.plan.universe)) for cost in plan.costs]
    costs = zip(plan.costs, sizes, strict=True)
    return replace(
        plan, costs=tuple(replace(cost, further={"largest_solve": size}) for cost, size in costs)
    )


TOPDOWN: Product = Product(
    TopdownSettings,
    plan_within_memory,
    Rules(check_input_of, check_settings_against_input, refuse_settings),
    Checks(outcomes_of_pieces, check_privacy),
    Words(
        budget=words_on_costs,
        certificate=facts_of_run,
        report=report,
        restore=rewritten,
        summary=summary,
    ),
    Accuracy(
        read_together,
        figures=Figures(
            ("universe", "quantity", "level"),
            COMPARED,
            lambda _run, settings: {"spine": settings.geography.spine},
            format_rows,
        ),
    ),
    measurement_files,
)


ESTIMATE: Product = Product(
    EstimateSettings,
    plan_of_estimate,
    Rules(fits=fits_measurements, refuse=refuse_estimate),
    Checks(outcomes_of_pieces),
    Words(
        budget=words_on_costs,
        certificate=lambda run, settings: facts_of(settings),
        report=report,
        restore=rewritten,
        summary=summary,
    ),
)

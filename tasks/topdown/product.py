"""Topdown as a product, from census-like tables to microdata; and estimate, from measurements."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from pyarrow import parquet

from ...geography.levels import Spine
from ..census.declared_input import DeclaredInput
from ..census.inputs import IngestResult
from ..census.queries import spelt_like
from ..ledger.summary import REPORT_DELTA
from ..noise.mechanisms import noise_deviation
from ..pages.document import NONE, Block, Document, Section, Table
from ..pages.numbers import decimal, shown_bound, shown_delta, shown_epsilon
from ..products.gate import compared
from ..products.order import Order
from ..products.product import END, Accuracy, Caution, Charge, Product, Shown, noted
from ..runs.directory import RunDirectory
from ..runs.errors import InputRefused
from .checks.accuracy.in_brief import errors_in_brief, errors_of_totals
from .checks.accuracy.queries import read_accuracy, records_by_block
from .checks.accuracy.run import accuracy_report, write_comparison, write_run_accuracy
from .checks.pieces import outcomes_of_pieces, sizes_of_pieces
from .estimation.estimators import refuse_settings
from .estimation.full_information import algebra_of
from .estimation.largest_solve import (
    SolveSize,
    gigabytes,
    largest_solve,
    memory_of_machine,
    refuse_large_solves,
    remedy,
)
from .ingest.earlier import held_answers
from .ingest.ingest import check_input_of, refuse_large_deltas
from .intervals.sizes import PosteriorSize, why_no_margins
from .measurement.charge import charge_of, measurement_files
from .measurement.constrain import checked_spines, spending_on_exact_answers
from .paths import spine_folder
from .published.read import check_measurements, refuse_missing_folder
from .published.settings import EstimateSettings
from .release.certificate import facts_of, facts_of_run
from .release.margins import has_margins, universes_without_margins
from .release.report import report, solves_table
from .settings import TopdownSettings
from .spine.files import read_spine
from .spine.redundant import (
    redundant_spending,
    redundant_spending_of_geography,
    redundant_spending_of_run,
)
from .spine.summary import has_summary, write_summary
from .workload.costs import budget_report, costs
from .workload.idle import unmeasured_attributes
from .workload.margins import total_for_margin
from .workload.privacy_curve import curves_of


def order(run: RunDirectory, settings: TopdownSettings) -> Order:
    """The steps of a topdown run."""
    from .order import order as steps

    return steps(run, settings)


def order_of_estimate(run: RunDirectory, settings: TopdownSettings) -> Order:
    """The steps of an estimate run."""
    from .order import order_of_estimate as steps

    return steps(run, settings)


def refuse_estimate(settings: TopdownSettings) -> None:
    """Refuse what cannot be estimated or found, and what a topdown run refuses."""
    if not settings.compiled_census.has_blocks:
        raise InputRefused(
            "The measurements are of a declared census; estimate reads those of the census of 2020 "
            "alone, so continue the run that measured instead."
        )
    refuse_settings(settings)
    refuse_missing_folder(settings)


def fits(settings: TopdownSettings, accepted: IngestResult | DeclaredInput) -> Iterator[Block]:
    """Hold the settings to the records, and build the spines; raises InputRefused."""
    refuse_large_deltas(settings, accepted.n_records)
    if not settings.input.awaited:
        held_answers(settings, accepted)
    for universe, spine, held in checked_spines(settings, accepted.geography, accepted.public):
        yield from noted(unmeasured_attributes(settings, universe))
        yield from noted(redundant_spending(settings, universe, spine))
        yield from noted(spending_on_exact_answers(settings, universe, spine, held))
        records = accepted.known_records(universe)
        yield from _told(universe, largest_solve(settings, universe, spine, records))
        yield from _no_margins(settings, universe, spine)


def _told(universe: str, size: SolveSize) -> Iterator[Block]:
    """The largest solve of a universe in words, with a warning where it may not fit."""
    yield f"{universe}: largest solve {size.sentence()}."
    memory = memory_of_machine()
    if size.n_bytes > memory:
        yield Caution(
            f"the largest solve of {universe} may take {gigabytes(size.n_bytes)}, and this machine "
            f"has {gigabytes(memory)}. {remedy(universe, size)}"
        )


def _no_margins(settings: TopdownSettings, universe: str, spine: Spine) -> Iterator[Caution]:
    """That the tables of a universe will have no margins, and why.

    An area may be known to have no records of some types, and then has fewer combinations.
    """
    if not has_margins(settings):
        return
    algebra = algebra_of(settings, universe)
    types = np.ones((spine.n_blocks, int(algebra.cell_type.max()) + 1), dtype=bool)
    why = why_no_margins(universe, PosteriorSize.of(algebra, types))
    if why is not None:
        yield Caution(f"{why}. The release is made without them, and there are no intervals either")


def fits_measurements(settings: TopdownSettings, _accepted: None) -> Iterator[Block]:
    """Check measurements, geography and state totals as an estimate run does; write nothing."""
    check_measurements(settings)
    yield from ()


def _exactly(cost: Mapping[str, Any]) -> str:
    """The exact epsilon, and at which delta where the other figures have none."""
    epsilon = cost["epsilon"]["exact"]
    if epsilon is None:
        return ""
    delta = "" if cost["delta"] else f" at delta {shown_delta(REPORT_DELTA)}"
    return f"{shown_bound(epsilon)} exactly{delta}, "


def costs_with_sizes(settings: TopdownSettings) -> dict[str, Any]:
    """The costs by universe, with the largest solve as far as it is known without input."""
    return {
        universe: cost | {"largest_solve": asdict(largest_solve(settings, universe))}
        for universe, cost in costs(settings).items()
    }


def charge_within_memory(run: RunDirectory, settings: TopdownSettings) -> Charge:
    """What a run is charged for; raises InputRefused where its estimates will not fit here."""
    refuse_large_solves(settings)
    return charge_of(run, settings)


def costs_in_words(settings: TopdownSettings) -> Iterator[Block | Section]:
    """The costs as tables, with what an attacker learns about an attribute, and the first solve."""
    for universe, cost in costs(settings).items():
        first = (
            f"{cost['mechanism'].replace('_', ' ')}, "
            f"rho {cost['rho']} ({decimal(cost['rho'])}), "
            f"epsilon {_exactly(cost)}"
            f"{shown_epsilon(cost['epsilon']['tight'])} at delta {shown_delta(cost['delta'])} "
            f"by rho (simple bound {shown_epsilon(cost['epsilon']['simple'])})"
        )
        queries = tuple(
            (
                query["geolevel"],
                query["query"],
                query["geolevel_share"],
                query["query_share"],
                f"{noise_deviation(query):.3g}",
                f"{query['margin_of_error']:,}",
            )
            for query in cost["queries"]
        )
        headers = ("geolevel", "query", "geolevel share", "query share", "noise s.d.")
        last = settings.last_geolevel
        by_attribute, by_block = cost["attributes"].items(), cost["block_within"].items()
        protected = [
            *((f"{n} of a record", e, cost["attributes_exact"][n]) for n, e in by_attribute),
            *((f"{last} within its {n}", e, cost["block_within_exact"][n]) for n, e in by_block),
        ]
        lacks = tuple(
            (what, NONE if exact is None else shown_bound(exact), shown_epsilon(epsilon))
            for what, epsilon, exact in protected
        )
        yield Section(
            universe,
            (
                first,
                Table((*headers, "margin, 95 %"), queries),
                Table(("what an attacker lacks", "epsilon, exactly", "epsilon by rho"), lacks),
                *_told(universe, largest_solve(settings, universe)),
            ),
        )
    yield from noted(redundant_spending_of_geography(settings))


def _rows_released(run: RunDirectory, settings: TopdownSettings) -> dict[str, int]:
    return {
        universe: parquet.read_metadata(run.release / f"mdf_{universe}.parquet").num_rows
        for universe in settings.run.universes
    }


def summary(run: RunDirectory, settings: TopdownSettings) -> Iterator[Block]:
    """What is in the release, and where its errors are."""
    rows = _rows_released(run, settings)
    yield f"Released: {' and '.join(f'{n:,} rows of {name}' for name, n in rows.items())}."
    for why in universes_without_margins(run, settings).values():
        yield Caution(f"{why}.")
    if accuracy_report(run).exists():
        kind = "accuracy, confidential" if settings.input.confidential else "accuracy"
        yield f"{kind}: {accuracy_report(run)}"


def summary_of_estimate(run: RunDirectory, settings: TopdownSettings) -> Iterator[Block]:
    """What is in a release from measurements alone."""
    for universe, rows in _rows_released(run, settings).items():
        yield f"{universe}: {rows:,} rows; from measurements alone, nothing was spent"


def shown(run: RunDirectory, settings: TopdownSettings, stages: Collection[str]) -> Iterator[Shown]:
    """Budgets, geounits, solves and errors, as they are known."""
    if not stages:
        yield from _budgets(settings)
    if any(stage.endswith(" constraints") for stage in stages):
        for universe in settings.run.universes:
            spine = read_spine(spine_folder(run, universe))
            rows = tuple(
                (level.name, len(level), int(level.bypassed.sum())) for level in spine.geolevels
            )
            table = Table(("geolevel", "geounits", "bypassed"), rows)
            yield Shown(f"geounits-{universe}", f"{spine.kind} spine", table)
    if any(stage.endswith("microdata") for stage in stages):
        about = "Every least-squares and rounding problem, by how it ended"
        yield Shown("solver-outcomes", about, narrow_solves(solves_table(run)))
    if stages == END:
        errors = errors_in_brief(run, settings)
        if errors is not None:
            about = "Errors by level, beside the standard deviation that the budget implies"
            yield Shown("accuracy", about, errors)


def _budgets(settings: TopdownSettings) -> Iterator[Shown]:
    """What every query at every geolevel is measured with, in rounded figures."""
    for universe in settings.run.universes:
        report = budget_report(settings.budget_of(universe), settings.schema_of(universe))
        rows = tuple(
            (
                query["geolevel"],
                query["query"],
                f"{100 * float(Fraction(query['share'])):.3g} %",
                f"{noise_deviation(query):.3g}",
            )
            for query in report["queries"]
        )
        rho = report["rho"] if report["rho"] == "inf" else f"{float(Fraction(report['rho'])):.4g}"
        yield Shown(
            f"budget-{universe}",
            f"Budget of {universe}: rho {rho}",
            Table(("geolevel", "query", "share of the budget", "noise s.d."), rows),
        )


def narrow_solves(table: Table) -> Table:
    """The report's table of solves, in as many columns as a page of 1280 pixels has room for."""
    rows = tuple(
        (f"{universe}, {geolevel}", stage, f"{solver}: {status}", solves, relaxed, residual)
        for universe, geolevel, stage, solver, status, solves, relaxed, _, residual, _ in table.rows
    )
    return Table(("of", "stage", "how", "solves", "relaxed", "largest residual"), rows)


def needed(settings: TopdownSettings, target: str, margin: int) -> str:
    """The budget that a target UNIVERSE:GEOLEVEL:QUERY needs for a margin of error."""
    parts = target.split(":")
    if len(parts) != 3 or parts[0] not in settings.run.universes:
        raise InputRefused(
            f"--target {target}: write universe, geolevel and query, for example "
            "'persons:County:total=25'."
        )
    universe, geolevel, query = parts
    budget = settings.budget_of(universe)
    try:
        query = spelt_like(query, budget.query_shares.get(geolevel, ()))
        total = total_for_margin(budget, geolevel, query, margin)
    except ValueError as error:
        raise InputRefused(f"--target {target}: {error}.") from None
    symbol = "epsilon" if budget.is_pure else "rho"
    told = "none" if budget.infinite else f"{float(budget.total):.4g}"
    return (
        f"{query} at {geolevel} is within {margin} of the truth, but for post-processing, with a "
        f"probability of 95 % at {symbol} {float(total):.6g} and these shares (now {told})"
    )


def document(
    run: RunDirectory, settings: TopdownSettings, accuracy: pd.DataFrame | None
) -> Document:
    """The report, with a map of errors where the input is public."""
    truth = None if settings.input.confidential else records_by_block(run, settings)
    return report(run, settings, accuracy, truth)


def rewritten(run: RunDirectory, settings: TopdownSettings) -> None:
    """Make the spine's summary again if it is missing, and the errors while the truth is there."""
    for universe in settings.run.universes:
        if not has_summary(run, universe):
            write_summary(run, settings, universe)
    compared(run, settings, lambda: write_run_accuracy(run, settings))


TOPDOWN: Product = Product(
    settings=TopdownSettings,
    costs=costs_with_sizes,
    costs_in_words=costs_in_words,
    refuse=refuse_settings,
    check_input=check_input_of,
    fits=fits,
    needed=needed,
    curves=lambda settings: curves_of(
        [settings.budget_of(universe) for universe in settings.run.universes]
    ),
    order=order,
    sizes=sizes_of_pieces,
    charge=charge_within_memory,
    measurement_files=measurement_files,
    notes=redundant_spending_of_run,
    checks=outcomes_of_pieces,
    statement=lambda run, settings: facts_of(settings).statement,
    facts=facts_of_run,
    accuracy=Accuracy(read_accuracy, in_brief=errors_of_totals),
    document=document,
    summary=summary,
    shown=shown,
    compare=write_comparison,
    rewritten=rewritten,
)

ESTIMATE: Product = Product(
    settings=EstimateSettings,
    costs=costs,
    costs_in_words=costs_in_words,
    refuse=refuse_estimate,
    fits=fits_measurements,
    needed=needed,
    order=order_of_estimate,
    checks=outcomes_of_pieces,
    facts=lambda run, settings: facts_of(settings),
    accuracy=Accuracy(read_accuracy),
    document=document,
    summary=summary_of_estimate,
    shown=shown,
    rewritten=rewritten,
)

"""What is asked before a topdown or estimate run: whether settings, input and machine fit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...geography.levels import Spine
from ..census.declared_input import DeclaredInput
from ..census.inputs import IngestResult
from ..pages.document import Block
from ..products.plan import Plan
from ..products.product import Caution, noted
from ..runs.directory import RunDirectory
from ..runs.errors import InputRefused
from .estimation.full_information import measured_algebra
from .estimation.largest_solve import (
    largest_solve,
    refuse_large_solves,
    refuse_settings,
    size_in_words,
)
from .ingest.earlier import held_answers
from .ingest.ingest import refuse_large_deltas
from .intervals.sizes import PosteriorSize, whether_intervals, why_no_margins
from .measurement.charge import deciding_files, plan_of_run, universe_plan_of
from .measurement.public_answers import checked_spines, spending_on_exact_answers
from .published.read import check_measurements, refuse_missing_folder
from .release.margins import has_margins
from .settings import TopdownSettings
from .spine.files import spine_of
from .spine.redundant import redundant_spending
from .workload.idle import unmeasured_attributes
from .workload.statement import exact_of, statement_of


def refuse_estimate(settings: TopdownSettings) -> None:
    """Refuse what cannot be estimated or found, and what a topdown run refuses."""
    if not settings.compiled_census.area_rules.have_published_layout:
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
        yield from size_in_words(universe, largest_solve(settings, universe, spine, records))
        yield from _no_margins(settings, universe, spine)


def _no_margins(settings: TopdownSettings, universe: str, spine: Spine) -> Iterator[Caution]:
    """That the tables of a universe will have no margins, and why.

    An area may be known to have no records of some types, and then has fewer combinations.
    """
    if not has_margins(settings):
        return
    algebra = measured_algebra(settings, universe)
    types = np.ones((spine.n_blocks, int(algebra.cell_type.max()) + 1), dtype=bool)
    size = PosteriorSize.of(algebra, types)
    why = why_no_margins(universe, size)
    if why is not None:
        yield Caution(f"{why}. The release is made without them; {whether_intervals(size)}")


def fits_measurements(settings: TopdownSettings, _accepted: None) -> Iterator[Block]:
    """Check measurements, geography and state totals as an estimate run does; write nothing."""
    check_measurements(settings)
    yield from ()


def plan_of_estimate(run: RunDirectory, settings: TopdownSettings) -> Plan:
    """What the measurements that were read measure and guarantee, as far as settings and the spine
    say; nothing is drawn.
    """
    universes = [
        universe_plan_of(settings.budget_of(name), settings.schema_of(name), spine_of(run, name))
        for name in settings.run.universes
    ]
    statement, exact = statement_of(settings), exact_of(settings)
    return Plan.of_run(run, settings, universes, statement, exact, deciding_files(run, settings))


def plan_within_memory(run: RunDirectory, settings: TopdownSettings) -> Plan:
    """The plan of a run; raises InputRefused where its estimates will not fit here."""
    refuse_large_solves(settings)
    return plan_of_run(run, settings)

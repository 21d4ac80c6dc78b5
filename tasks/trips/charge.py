"""The plan of trips: their measurements, guarantee and charge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..ledger.accounting import BOUNDED, Guarantee
from ..products.budget import Cost
from ..products.plan import ExactFact, Plan
from ..products.statement import Statement
from ..runs.directory import RunDirectory
from .costs import curve_of_change, epsilons_within_areas, exact_curve, needed_split, universe_plan
from .ingest.files import read_plan, read_tree
from .ingest.ingest import public_plan
from .measurement import read_cuts
from .plan import Plan as TreePlan
from .plan import areas_file, cuts_file, leaves_file, measured_file, plan_file, tree_file
from .settings import TripsSettings


def plan_of(settings: TripsSettings, run: RunDirectory | None = None) -> Plan:
    """The plan of a run, or by settings and public areas; one charge covers all levels.

    `block_within` of its cost is the protection of a trip's leaf against an observer who knows its
    node at a level.
    """
    own = public_plan(settings) if run is None else read_plan(run)
    delta, contribution = settings.report_delta, settings.contribution
    question = "whether this one's trips are there or not"
    if contribution.is_bounded:
        question = "whether this one's trips are as suspected rather than others"
    cost = Cost(
        replace(universe_plan(own, delta), curve=curve_of_change(own, contribution)),
        exact_curve(own, contribution),
        block_within=epsilons_within_areas(own, delta),
        further={} if own.histogram is None else {"threshold": own.histogram.threshold},
    )
    plan = Plan.of(
        settings,
        [cost],
        statement_of(settings, own),
        exact_of(own, None if run is None else read_tree(run).total),
        question="" if own.budget is None else question,
        split=partial(needed_split, own),
    )
    if run is None:
        return plan
    deciding = [tree_file(run), areas_file(run), plan_file(run)]
    return plan.decided_by(run, deciding, [leaves_file(run)])


def measurement_files(run: RunDirectory, settings: TripsSettings) -> list[Path]:
    """The cuts of all levels, and the files of noisy counts of those that have been cut.

    For a level without a cut, any files are listed: they are not measurements of the run, and must
    not be taken for such once the level is cut.
    """
    files = []
    for level in read_plan(run).levels:
        files.append(cuts_file(run, level))
        if files[-1].exists():
            shards = read_cuts(run, level).shards
            files += [measured_file(run, level, shard.name) for shard in shards]
        else:
            folder = measured_file(run, level, "any").parent
            files += sorted(folder.glob("*.parquet"))
    return files


def statement_of(settings: TripsSettings, plan: TreePlan) -> Statement:
    """The guarantee for one person with all trips."""
    change = [f"The guarantee compares two tables that differ by {_change(plan.guarantee)}."]
    if plan.budget is None:
        change.append(
            "Which cells have no trips is not hidden behind noise: a cell is published only if its "
            "noisy count passes a threshold, and delta is the chance that a cell of one person "
            "alone is."
        )
    protected = f"Protected is every person with all trips. {_contribution(settings)}"
    more = "A person with more trips than that is protected less."
    return Statement(None, (protected,), tuple(change), unprotected=(more,))


def exact_of(plan: TreePlan, total: int | None) -> Iterator[ExactFact]:
    """The declared facts: the areas, and the number of trips where neighbours have the same."""
    yield ExactFact("areas", "which areas, or values of the levels, there are")
    if total is not None:
        where = "released" if plan.is_top_down else "told by the run's public files"
        yield ExactFact("number of trips", f"there are {total:,} in all, {where} without noise")


def _change(guarantee: Guarantee | None) -> str:
    """Difference between two neighbouring tables."""
    if guarantee is not None and guarantee.neighbors == BOUNDED:
        return "one person's trips, which go elsewhere in the other"
    return "one person, who is in one of them alone with all trips"


def _contribution(settings: TripsSettings) -> str:
    """How many trips a person makes, as the settings say."""
    privacy = settings.privacy
    m = privacy.trips_per_person
    exactly = "exactly" if settings.contribution.has_invariant_total else "at most"
    trips = f"{exactly} {m:,} {'trip' if m == 1 else 'trips'}"
    if m > 1:
        trips += ", no two in one cell" if privacy.distinct_trips else ", wherever they go"
    return f"A person makes {trips}."

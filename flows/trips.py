"""The trips flow: from a table of origins and destinations, or any tree, to a released table.

    ingest -> ledger -> for every level: measure, estimate -> combine
           -> table -> checks -> release -> report

A top-down mechanism measures a level once the level above is estimated. Where all nodes are
measured in any case, the levels are measured concurrently, and where measurements are
combined, that comes after all of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..tasks.runs.directory import RunDirectory
from ..tasks.trips.plan import level_folder, read_plan
from ..tasks.trips.product import TRIPS
from ..tasks.trips.settings import FULL_INFORMATION, TripsSettings
from ..tasks.trips.steps import combine, estimate, ingest, measure, write_table
from .running import CHARGED_FIRST, flow_of_product
from .stages import Future, charge, finish, release, stage


def stages(run: RunDirectory, settings: TripsSettings) -> None:
    """Submit the stages of a run."""
    root = str(run.root)
    with stage("ingest"):
        ingested = ingest.submit(root)
    finish()  # The plan has the levels.
    table = tree_to_table(run, settings, [ingested])
    release(root, wait_for=[table])


def tree_to_table(
    run: RunDirectory, settings: TripsSettings, wait_for: Iterable[Future] = ()
) -> Future:
    """Submit the stages from an ingested tree to the table that is to be checked."""
    root, plan = str(run.root), read_plan(run)
    before = [charge(root, wait_for)]
    if plan.mechanism == FULL_INFORMATION and plan.measures_all:
        with stage("measure"):
            before = [measure.submit(root, level, wait_for=before) for level in plan.levels]
    else:
        for level in sorted({*plan.levels, *plan.inferred}):
            if level in plan.measures:
                with stage("measure", f"measure {level_folder(level)}"):
                    before = [measure.submit(root, level, wait_for=before)]
            with stage("estimate", f"estimate {level_folder(level)}"):
                before = [estimate.submit(root, level, wait_for=before)]
    if plan.mechanism == FULL_INFORMATION:
        with stage("combine"):
            before = [combine.submit(root, wait_for=before)]
    with stage("table"):
        return write_table.submit(root, wait_for=before)


trips = flow_of_product(
    TRIPS,
    stages,
    "Releases origin/destination tables, or any table that forms a tree, by InfTDA. "
    + CHARGED_FIRST,
)

"""The order of the steps of a trips run.

    ingest -> charge -> for every level: cut, measure, estimate -> combine
           -> table -> checks -> release -> report

A top-down mechanism measures a level once the level above is estimated. Where all nodes are
measured whatever the noise, the levels are measured side by side, and where measurements are
combined, that comes after all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..products.order import Order, Step, Wave, call, one_by_one
from ..products.release.steps import ENDING
from ..products.steps import charge_ledger
from ..runs.directory import ONLY_SHARD, RunDirectory
from .estimation.steps import combine, estimate
from .ingest.files import plan_of
from .ingest.steps import ingest
from .measurement.files import read_cuts
from .measurement.steps import cut, measure
from .paths import level_folder
from .release.steps import write_table
from .settings import TripsSettings
from .workload.mechanisms import FULL_INFORMATION
from .workload.plan import Plan


def order(run: RunDirectory, settings: TripsSettings) -> Order:
    """The steps of a run."""
    yield {"ingest": [call(ingest)]}
    yield from tree_to_table(run, settings)
    yield from one_by_one(ENDING)


def tree_to_table(run: RunDirectory, settings: TripsSettings) -> Order:
    """The steps from an ingested tree to the table that is to be checked."""
    plan = plan_of(run, settings)
    yield {"ledger": [call(charge_ledger)]}
    if plan.mechanism == FULL_INFORMATION and plan.measures_all:
        yield from _measured(run, plan.levels)
    else:
        yield from _down(run, plan)
    if plan.mechanism == FULL_INFORMATION:
        yield {"combine": [call(combine)]}
    yield {"table": [call(write_table)]}


def _down(run: RunDirectory, plan: Plan) -> Order:
    """Measure and estimate level by level; what is inferred is estimated alone."""
    for level in sorted({*plan.levels, *plan.inferred}):
        if level in plan.inferred:
            yield {f"estimate {level_folder(level)}": [call(estimate, level, ONLY_SHARD)]}
            continue
        yield from _measured(run, [level])
        yield _of_shards(run, "estimate", estimate, [level])


def _measured(run: RunDirectory, levels: Sequence[int]) -> Order:
    """Cut levels whose parents are known, and measure them side by side."""
    yield {f"cut {level_folder(level)}": [call(cut, level)] for level in levels}
    yield _of_shards(run, "measure", measure, levels)


def _of_shards(run: RunDirectory, stage: str, step: Step, levels: Sequence[int]) -> Wave:
    """The calls of a step for every shard of levels that are cut."""
    return {
        f"{stage} {level_folder(level)}": [
            call(step, level, shard.name) for shard in read_cuts(run, level).shards
        ]
        for level in levels
    }

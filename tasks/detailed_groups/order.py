"""The order of the steps of a detailed-groups run, and of one of households.

    ingest -> count, level by level -> charge -> stage 1 -> stage 2, shard by shard
           -> suppression -> marginals -> coterminous geographies, alone (if asked), pass by pass
           -> files -> checks -> release -> report

Stage 2 of a shard waits for its stage 1 alone. All data travel through the run directory; what the
tasks hand to each other are names and digests.

    ingest -> count, level by level -> charge -> measure, tabulation and shard by shard
           -> files -> checks -> release -> report

is that of households, whose tables a finished run has chosen.
"""

from __future__ import annotations

from collections.abc import Generator

from ..products.order import Call, Order, Step, Wave, call, one_by_one
from ..products.release.steps import ENDING
from ..products.steps import charge_ledger
from ..runs.directory import RunDirectory
from .ingest.household_ingest import run_parameters as run_household_parameters
from .ingest.ingest import run_parameters
from .ingest.steps import count, count_households, ingest, ingest_households
from .measurement.charge import has_stage_1
from .measurement.households import measured_shards
from .measurement.steps import measure_households, measure_tables, measure_totals
from .paths import read_shards
from .postprocess.run import stages_of
from .postprocess.steps import STEPS
from .release.steps import write_household_tables, write_tables
from .settings import DetailedGroupsSettings, DetailedHouseholdsSettings


def order(run: RunDirectory, settings: DetailedGroupsSettings) -> Order:
    """The steps of a run."""
    charged = yield from _charged(run, ingest, count)
    yield _measured(run, charged)
    passes = run_parameters(run, settings).passes
    before: dict[str, list[Call]] = {name: [] for name in passes}
    for stage in stages_of(settings):
        before = {name: [call(STEPS[stage], name, after=before[name])] for name in passes}
        yield {stage: [made for calls in before.values() for made in calls]}
    made = [made for calls in before.values() for made in calls]
    yield from one_by_one({"files": write_tables, **ENDING}, after=made)


def order_of_households(run: RunDirectory, settings: DetailedHouseholdsSettings) -> Order:
    """The steps of a run of households."""
    charged = yield from _charged(run, ingest_households, count_households)
    measured = [
        call(measure_households, name, s.region_type, s.level, s.name, after=[charged])
        for name, s in measured_shards(run, run_household_parameters(run, settings))
    ]
    yield {"measurements": measured}
    yield from one_by_one({"files": write_household_tables, **ENDING}, after=measured)


def _charged(run: RunDirectory, ingest: Step, count: Step) -> Generator[Wave, None, Call]:
    """What comes before any noise; the call that charges it."""
    ingested = call(ingest)
    yield {"ingest": [ingested]}
    levels = dict.fromkeys((shard.region_type, shard.level) for shard in read_shards(run))
    counted = [call(count, *level, after=[ingested]) for level in levels]
    yield {"counts": counted}
    charged = call(charge_ledger, after=counted)
    yield {"ledger": [charged]}
    return charged


def _measured(run: RunDirectory, charged: Call) -> Wave:
    """Both stages of every shard; the second of each after its first."""
    shards = {s: (s.region_type, s.level, s.name) for s in read_shards(run)}
    totals = {
        shard: call(measure_totals, *keys, after=[charged])
        for shard, keys in shards.items()
        if has_stage_1(run, shard)
    }
    tables = [
        call(measure_tables, *keys, after=[totals.get(shard, charged)])
        for shard, keys in shards.items()
    ]
    return {"stage 1": list(totals.values()), "stage 2": tables}

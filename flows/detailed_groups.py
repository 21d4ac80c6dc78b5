"""The detailed-groups flow: SafeTab-P's adaptive tables for race and ethnicity groups.

    ingest -> counts, level by level -> ledger -> stage 1 -> stage 2, shard by shard
           -> suppression -> marginals -> coterminous geographies, alone (if asked), pass by pass
           -> files -> checks -> release -> report

Stage 2 of a shard waits for its stage 1 alone. All data travel through the run directory; tasks
hand each other names and digests.
"""

from __future__ import annotations

from ..tasks.detailed_groups.ingest.ingest import read_shards, run_parameters
from ..tasks.detailed_groups.measurement import has_stage_1
from ..tasks.detailed_groups.postprocess import stages_of
from ..tasks.detailed_groups.product import DETAILED_GROUPS
from ..tasks.detailed_groups.settings import DetailedGroupsSettings
from ..tasks.detailed_groups.steps import (
    count,
    ingest,
    measure_tables,
    measure_totals,
    process,
    write_tables,
)
from ..tasks.runs.directory import RunDirectory
from .running import CHARGED_FIRST, flow_of_product
from .stages import Future, charge, finish, release, stage


def stages(run: RunDirectory, settings: DetailedGroupsSettings) -> None:
    """Submit the stages of a run."""
    root = str(run.root)
    charged = count_and_charge(run)
    shards = {shard: (shard.region_type, shard.level, shard.name) for shard in read_shards(run)}
    with stage("stage 1"):
        totals = {
            shard: measure_totals.submit(root, *keys, wait_for=[charged])
            for shard, keys in shards.items()
            if has_stage_1(run, shard)
        }
    with stage("stage 2"):
        (name,) = settings.TABULATIONS
        tables = [
            measure_tables.submit(root, name, *keys, wait_for=[totals.get(shard, charged)])
            for shard, keys in shards.items()
        ]
    finish()
    passes = run_parameters(run, settings).passes
    before = dict.fromkeys(passes, tables)
    for name in stages_of(settings):
        with stage(name):
            before = {
                own: [process.submit(root, name, own, wait_for=before[own])] for own in passes
            }
    with stage("files"):
        made = [future for own in before.values() for future in own]
        written = write_tables.submit(root, wait_for=made)
    release(root, wait_for=[written])


def count_and_charge(run: RunDirectory) -> Future:
    """Submit the stages before any noise: ingest, counts of every level, the charge."""
    root = str(run.root)
    with stage("ingest"):
        ingested = ingest.submit(root)
    finish()  # The shards name the levels.
    levels = dict.fromkeys((shard.region_type, shard.level) for shard in read_shards(run))
    with stage("counts"):
        counted = [count.submit(root, *level, wait_for=[ingested]) for level in levels]
    finish()
    return charge(root, wait_for=counted)


detailed_groups = flow_of_product(
    DETAILED_GROUPS,
    stages,
    "Releases adaptive tables for detailed race and ethnicity groups, by SafeTab-P. "
    + CHARGED_FIRST,
)

"""The detailed-households flow: SafeTab-H's tables of households by group of the householder.

    ingest -> counts, level by level -> ledger -> measurements, tabulation and shard by shard
           -> files -> checks -> release -> report

The tables of a group are as detailed as a finished run of detailed groups has chosen.
"""

from __future__ import annotations

from ..tasks.detailed_groups.ingest.ingest import run_parameters
from ..tasks.detailed_groups.measurement import measured_shards
from ..tasks.detailed_groups.product import DETAILED_HOUSEHOLDS
from ..tasks.detailed_groups.settings import DetailedHouseholdsSettings
from ..tasks.detailed_groups.steps import measure_tables, write_tables
from ..tasks.runs.directory import RunDirectory
from .detailed_groups import count_and_charge
from .running import CHARGED_FIRST, flow_of_product
from .stages import release, stage


def stages(run: RunDirectory, settings: DetailedHouseholdsSettings) -> None:
    """Submit the stages of a run."""
    root = str(run.root)
    charged = count_and_charge(run)
    with stage("measurements"):
        measured = [
            measure_tables.submit(
                root, name, shard.region_type, shard.level, shard.name, wait_for=[charged]
            )
            for name, shard in measured_shards(run, run_parameters(run, settings))
        ]
    with stage("files"):
        written = write_tables.submit(root, wait_for=measured)
    release(root, wait_for=[written])


detailed_households = flow_of_product(
    DETAILED_HOUSEHOLDS,
    stages,
    "Releases tables of households by type and tenure for detailed race and ethnicity groups of "
    "the householder, by SafeTab-H, as detailed as the totals of a finished run of detailed groups "
    f"allow. {CHARGED_FIRST}",
)

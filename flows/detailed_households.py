"""The detailed-households flow: SafeTab-H's tables of households by group of the householder.

    ingest -> counts, level by level -> ledger -> measurements, tabulation and shard by shard
           -> files -> checks -> release -> report

The tables of a group are as detailed as a finished run of detailed groups has chosen.
"""

from __future__ import annotations

from ..tasks.detailed_groups.ingest.household_ingest import run_parameters
from ..tasks.detailed_groups.ingest.steps import count_households, ingest_households
from ..tasks.detailed_groups.measurement.households import measured_shards
from ..tasks.detailed_groups.measurement.steps import measure_households
from ..tasks.detailed_groups.product import DETAILED_HOUSEHOLDS
from ..tasks.detailed_groups.release.steps import write_household_tables
from ..tasks.detailed_groups.settings import DetailedHouseholdsSettings
from ..tasks.runs.directory import RunDirectory
from .detailed_groups import count_and_charge
from .entry import CHARGED_FIRST, flow_of_product
from .stages import release, stage


def stages(run: RunDirectory, settings: DetailedHouseholdsSettings) -> None:
    """Submit the stages of a run."""
    root = str(run.root)
    charged = count_and_charge(run, ingest_households, count_households)
    with stage("measurements"):
        measured = [
            measure_households.submit(
                root, name, shard.region_type, shard.level, shard.name, wait_for=[charged]
            )
            for name, shard in measured_shards(run, run_parameters(run, settings))
        ]
    with stage("files"):
        written = write_household_tables.submit(root, wait_for=measured)
    release(root, wait_for=[written])


detailed_households = flow_of_product(
    DETAILED_HOUSEHOLDS,
    stages,
    "Releases tables of households by type and tenure for detailed race and ethnicity groups of "
    "the householder, by SafeTab-H, as detailed as the totals of a finished run of detailed groups "
    f"allow. {CHARGED_FIRST}",
)

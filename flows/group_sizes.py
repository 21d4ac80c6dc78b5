"""The group-sizes flow: consistent numbers of groups of each size in every region.

    ingest -> ledger -> measure, level by level -> estimate -> tables -> checks -> release -> report

All data travel through the run directory; tasks hand each other names and digests.
"""

from __future__ import annotations

from ..tasks.group_sizes.ingest.read import read_plan
from ..tasks.group_sizes.product import GROUP_SIZES
from ..tasks.group_sizes.settings import GroupSizesSettings
from ..tasks.group_sizes.steps import estimate, ingest, measure, tabulate
from ..tasks.runs.directory import RunDirectory
from .running import CHARGED_FIRST, flow_of_product
from .stages import charge, finish, release, stage


def stages(run: RunDirectory, _settings: GroupSizesSettings) -> None:
    """Submit the stages of a run; the levels are measured side by side."""
    root = str(run.root)
    with stage("ingest"):
        ingested = ingest.submit(root)
    finish()  # The plan has the levels.
    charged = charge(root, wait_for=[ingested])
    with stage("measure"):
        measured = [
            measure.submit(root, level.level, wait_for=[charged])
            for level in read_plan(run).universe.measured
        ]
    with stage("estimate"):
        estimated = estimate.submit(root, wait_for=measured)
    with stage("tables"):
        tabulated = tabulate.submit(root, wait_for=[estimated])
    release(root, wait_for=[tabulated])


group_sizes = flow_of_product(
    GROUP_SIZES,
    stages,
    "Releases how many groups, such as households, there are of every size in every region. "
    + CHARGED_FIRST,
)

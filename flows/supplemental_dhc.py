"""The supplemental-dhc flow: people joined with their households, averages and relationships.

    ingest -> ledger -> measure -> estimate, level by level -> tables -> checks -> release -> report

All data travel through the run directory; tasks hand each other names and digests.
"""

from __future__ import annotations

from ..tasks.runs.directory import RunDirectory
from ..tasks.supplemental_dhc.product import SUPPLEMENTAL
from ..tasks.supplemental_dhc.settings import SupplementalDhcSettings
from ..tasks.supplemental_dhc.steps import estimate, ingest, measure, tabulate
from .running import CHARGED_FIRST, flow_of_product
from .stages import charge, release, stage


def stages(run: RunDirectory, settings: SupplementalDhcSettings) -> None:
    """Submit the stages of a run; the levels go side by side."""
    root = str(run.root)
    with stage("ingest"):
        ingested = ingest.submit(root)
    charged = charge(root, wait_for=[ingested])
    levels = settings.geography.levels
    with stage("measure"):
        measured = [measure.submit(root, level, wait_for=[charged]) for level in levels]
    with stage("estimate"):
        estimated = [
            estimate.submit(root, level, wait_for=[own])
            for level, own in zip(levels, measured, strict=True)
        ]
    with stage("tables"):
        tabulated = tabulate.submit(root, wait_for=estimated)
    release(root, wait_for=[tabulated])


supplemental_dhc = flow_of_product(
    SUPPLEMENTAL,
    stages,
    "Releases average sizes of households and families, and people by the household that they "
    f"live in, with intervals. {CHARGED_FIRST}",
)

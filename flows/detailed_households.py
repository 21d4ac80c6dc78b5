"""The detailed-households flow: SafeTab-H's tables of households by group of the householder."""

from __future__ import annotations

from ..tasks.detailed_groups.product import DETAILED_HOUSEHOLDS
from .entry import CHARGED_FIRST, flows_of

detailed_households, detailed_households_stages = flows_of(
    DETAILED_HOUSEHOLDS,
    "Releases tables of households by type and tenure for detailed race and ethnicity groups of "
    "the householder, by SafeTab-H, as detailed as the totals of a finished run of detailed groups "
    f"allow. {CHARGED_FIRST}",
)

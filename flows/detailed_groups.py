"""The detailed-groups flow: SafeTab-P's adaptive tables for race and ethnicity groups."""

from __future__ import annotations

from ..tasks.detailed_groups.product import DETAILED_GROUPS
from .entry import CHARGED_FIRST, flows_of

detailed_groups, detailed_groups_stages = flows_of(
    DETAILED_GROUPS,
    "Releases adaptive tables for detailed race and ethnicity groups, by SafeTab-P. "
    + CHARGED_FIRST,
)

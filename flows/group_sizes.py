"""The group-sizes flow: how many groups there are of each size in every region, consistently."""

from __future__ import annotations

from ..tasks.group_sizes.product import GROUP_SIZES
from .entry import CHARGED_FIRST, flows_of

group_sizes, group_sizes_stages = flows_of(
    GROUP_SIZES,
    "Releases how many groups, such as households, there are of every size in every region. "
    + CHARGED_FIRST,
)

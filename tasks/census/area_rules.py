"""Facts about areas that follow from the rules of a geography."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BLOCKS = "blocks"
"""Rules of areas that are blocks of 2020; see `CensusGeography.rules`."""


@dataclass(frozen=True)
class AreaRules:
    """Facts about the areas of a geography.

    geocodes_tell_geolevels : geocodes are digits that determine every geolevel, so that areas have
        no other code.
    have_addresses : areas without an address are in no spine, so that addresses are public and read
        for every choice of universes.
    have_published_layout : measurements of the areas have a published layout.
    follow_block_rules : spines have the AIAN branch and are made by the rules of blocks.
    totals_need_topdown : where every area is estimated separately, exact totals above the areas are
        not declared; elsewhere such a run is refused.
    may_have_linear_rows : cells may be tied by relations and answers to other universes.
    """

    geocodes_tell_geolevels: bool
    have_addresses: bool
    have_published_layout: bool
    follow_block_rules: bool
    totals_need_topdown: bool
    may_have_linear_rows: bool


AREA_RULES: Mapping[str | None, AreaRules] = {
    BLOCKS: AreaRules(
        geocodes_tell_geolevels=True,
        have_addresses=True,
        have_published_layout=True,
        follow_block_rules=True,
        totals_need_topdown=True,
        may_have_linear_rows=False,
    ),
    None: AreaRules(
        geocodes_tell_geolevels=False,
        have_addresses=False,
        have_published_layout=False,
        follow_block_rules=False,
        totals_need_topdown=False,
        may_have_linear_rows=True,
    ),
}
"""By `CensusGeography.rules`."""

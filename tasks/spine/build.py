"""From the public geography and the declared invariants to a universe's spine."""

from __future__ import annotations

import pandas as pd

from geography.errors import GeographyRefused
from geography.rules import AianRange, SpineRules, select_aian_areas, validated_shares
from geography.spine import Spine, build_spine
from tasks.errors import InputRefused
from tasks.ingest.invariants import FACILITY_COLUMNS, inhabitable
from tasks.settings import GeographySettings, Settings


def spine_rules(settings: GeographySettings) -> SpineRules:
    """The rules that `geography` asks for; raises GeographyRefused for values it cannot use."""
    ranges = tuple(AianRange(**entry.model_dump()) for entry in settings.aian_ranges)
    if settings.aian_areas is not None:
        ranges = select_aian_areas(ranges, settings.aian_areas)
    return SpineRules(
        aian_ranges=ranges,
        strong_mcd_states=settings.strong_mcd_states,
        fanout_cutoff=settings.fanout_cutoff,
        bypass_cutoff=settings.bypass_cutoff,
        categories=settings.categories,
        school_district_column=settings.school_district_column,
    )


def check_spine_settings(settings: Settings) -> None:
    """Refuse rules and geolevel shares that make no spine, before any input is read."""
    try:
        spine_rules(settings.geography)
        for universe in settings.run.universes:
            validated_shares(settings.budget_of(universe).geolevel_shares, settings.geography.spine)
    except GeographyRefused as error:
        raise InputRefused(f"Settings of the spine: {error}.") from None


def universe_spine(
    settings: Settings, universe: str, geography: pd.DataFrame, invariants: pd.DataFrame
) -> Spine:
    """The spine of a universe over the blocks that can hold somebody.

    Group-quarters types count as off-spine entities for persons only. Raises InputRefused for a
    geography or rules that make no spine.
    """
    used = inhabitable(invariants)
    blocks = geography[used].reset_index(drop=True)
    facilities = invariants.loc[used, list(FACILITY_COLUMNS)].to_numpy()
    budget = settings.budget_of(universe)
    try:
        return build_spine(
            blocks,
            geolevel_shares=budget.geolevel_shares,
            kind=settings.geography.spine,
            rules=spine_rules(settings.geography),
            is_pure=budget.is_pure,
            group_quarters=facilities if universe == "persons" else None,
        )
    except GeographyRefused as error:
        raise InputRefused(f"Spine of {universe}: {error}.") from None

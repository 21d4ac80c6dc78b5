"""The rules of a spine, as settings have them, and what they refuse before any area is known."""

from __future__ import annotations

from ....geography.errors import GeographyRefused
from ....geography.rules import (
    AianRange,
    SpineRules,
    checked_geolevels,
    select_aian_areas,
    validated_shares,
)
from ...census.census import Census
from ...runs.errors import InputRefused, refused
from ..settings import TopdownSettings
from ..workload.sections import GeographySettings


def spine_rules(settings: GeographySettings, census: Census) -> SpineRules:
    """The rules that `geography` asks for; raises GeographyRefused for values it cannot use."""
    ranges = tuple(AianRange(**entry.model_dump()) for entry in settings.aian_ranges)
    if settings.aian_areas is not None:
        ranges = select_aian_areas(ranges, settings.aian_areas)
    return SpineRules(
        aian_ranges=ranges,
        columns={name: category.column for name, category in census.geography.categories.items()},
        strong_mcd_states=settings.strong_mcd_states,
        fanout_cutoff=settings.fanout_cutoff,
        cut=settings.block_groups,
        greedy_tract_subset_groups=settings.tract_subset_groups == "greedy",
        bypass=settings.bypass,
        bypass_cutoff=None if settings.bypass_cutoff == "none" else settings.bypass_cutoff,
        categories=settings.categories,
        school_district_column=settings.school_district_column,
    )


def refuse_no_spine(settings: TopdownSettings) -> None:
    """Refuse rules and geolevel shares that make no spine, or none that holds state totals."""
    kind, census = settings.geography.spine, settings.compiled_census
    with refused("Settings of the spine: ", of=GeographyRefused):
        for universe in settings.run.universes:
            shares = settings.budget[universe].geolevels
            if settings.has_block_rules:
                spine_rules(settings.geography, census)
                validated_shares(shares, kind)
            else:
                checked_geolevels(shares, kind, census.geolevels)
    totals = _state_totals(settings) if census.area_rules.totals_need_topdown else ()
    for universe, geolevel in totals:
        if geolevel not in settings.budget[universe].geolevels:
            raise InputRefused(
                f"budget.{universe}.geolevels has no {geolevel}, where the population of every "
                f"state is held exact; give {geolevel} a share, or set run.estimator = "
                "'block_by_block', which declares no totals."
            )


def declares_state_totals(settings: TopdownSettings) -> bool:
    """Whether the population of every state is exact by declaration.

    Such are the totals that a census declares with a name for their sums `above`: they are held
    where the spine has their geolevel, and are none where the areas are estimated alone.
    """
    return bool(_state_totals(settings))


def _state_totals(settings: TopdownSettings) -> list[tuple[str, str]]:
    """The universes with such totals, and their geolevels."""
    universes = settings.compiled_census.universes
    return [
        (name, invariant.geolevel)
        for name in settings.run.universes
        for invariant in universes[name].invariants
        if invariant.above is not None and not settings.blocks_only
    ]

"""From the public geography and the declared invariants to a universe's spine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd

from ....geography.categories import Category, off_spine_categories
from ....geography.declared import (
    ColumnCategory,
    DeclaredRules,
    checked_geolevels,
    declared_categories,
    declared_spine,
)
from ....geography.errors import GeographyRefused
from ....geography.hierarchy import text_column
from ....geography.rules import (
    GEOLEVEL_ORDER,
    AianRange,
    SpineRules,
    select_aian_areas,
    validated_shares,
)
from ....geography.spine import Spine, build_spine
from ...census.areas import joined_codes
from ...census.census import Census
from ...census.invariants import (
    FACILITY_COLUMNS,
    inhabitable,
    read_geography,
    read_inhabitable,
    read_invariants,
)
from ...census.recodes import CodeSet
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ..paths import geography_file, invariants_file, spine_folder
from ..settings import TopdownSettings
from ..workload.sections import GeographySettings
from ..workload.state_totals import refuse_unheld_state_totals
from .files import write_spine
from .shards import cut_spine, write_shards

DHC = "dhc"
"""The kind of spine of the demographic and housing characteristics product."""


def spine_rules(settings: GeographySettings, census: Census) -> SpineRules:
    """The rules that `geography` asks for; raises GeographyRefused for values it cannot use."""
    categories = {} if census.geography is None else census.geography.categories
    ranges = tuple(AianRange(**entry.model_dump()) for entry in settings.aian_ranges)
    if settings.aian_areas is not None:
        ranges = select_aian_areas(ranges, settings.aian_areas)
    return SpineRules(
        aian_ranges=ranges,
        columns={name: category.column for name, category in categories.items()},
        strong_mcd_states=settings.strong_mcd_states,
        fanout_cutoff=settings.fanout_cutoff,
        cut=settings.block_groups,
        greedy_tract_subset_groups=settings.tract_subset_groups == "greedy",
        bypass=settings.bypass,
        bypass_cutoff=None if settings.bypass_cutoff == "none" else settings.bypass_cutoff,
        categories=settings.categories,
        school_district_column=settings.school_district_column,
    )


def check_spine_settings(settings: TopdownSettings) -> None:
    """Refuse rules and geolevel shares that make no spine, or none that holds state totals."""
    try:
        if settings.is_declared:
            for universe in settings.run.universes:
                shares, kind = _declared_shares(settings, universe), settings.geography.spine
                if kind == DHC:
                    spine_rules(settings.geography, settings.compiled_census)
                    validated_shares(shares, kind)
                else:
                    checked_geolevels(shares, kind, _geolevels(settings))
            return
        spine_rules(settings.geography, settings.compiled_census)
        for universe in settings.run.universes:
            validated_shares(_declared_shares(settings, universe), settings.geography.spine)
    except GeographyRefused as error:
        raise InputRefused(f"Settings of the spine: {error}.") from None
    refuse_unheld_state_totals(settings)


def universe_spine(
    settings: TopdownSettings, universe: str, geography: pd.DataFrame, invariants: pd.DataFrame
) -> Spine:
    """The spine of a universe over the blocks that can hold somebody.

    Group-quarters types count as off-spine entities for persons only. Raises InputRefused for a
    geography or rules that make no spine, and for categories that cannot be formed, which spines
    that do not target any need for their report.
    """
    kind = settings.geography.spine
    if settings.is_declared:
        return _declared(settings, universe, geography, kind)
    if kind in ("conventional", "aian"):
        universe_categories(settings, universe, geography, invariants)
    shares = _declared_shares(settings, universe)
    return _built(settings, universe, geography, invariants, kind, shares)


def write_universe_spine(run: RunDirectory, settings: TopdownSettings, universe: str) -> None:
    """Build the spine of a universe from the run's files, store it, and cut it into shards.

    The shards come last: where they are, all is.
    """
    folder = spine_folder(run, universe)
    if settings.is_declared:
        geography, invariants = (
            read_geography(geography_file(run)),
            read_invariants(invariants_file(run)),
        )
    else:
        geography, invariants = read_inhabitable(geography_file(run), invariants_file(run))
    spine = universe_spine(settings, universe, geography, invariants)
    del geography, invariants
    write_spine(spine, folder)
    schema, budget = settings.schema_of(universe), settings.budget_of(universe)
    shards = cut_spine(spine, schema, budget, on_demand=settings.is_on_demand(universe))
    write_shards(shards, folder)


def aian_spine(
    settings: TopdownSettings, universe: str, geography: pd.DataFrame, invariants: pd.DataFrame
) -> Spine:
    """The AIAN spine of the same budget, which a universe's own spine is compared with."""
    if settings.is_declared:
        return _declared(settings, universe, geography, "conventional")
    shares = on_aian_spine(_declared_shares(settings, universe))
    return _built(settings, universe, geography, invariants, "aian", shares)


def on_aian_spine(geolevel_shares: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """Shares of the AIAN spine's geolevels; its tracts take those of the geolevels it lacks.

    Example: equal shares of the eight geolevels of the DHC spine give the tracts 3/8, for prims,
    tract subset groups and tract subsets.
    """
    order = GEOLEVEL_ORDER["aian"]
    sums = dict.fromkeys(order, Fraction(0))
    for name, share in geolevel_shares.items():
        sums[name if name in order else "Tract"] += share
    return {name: share for name, share in sums.items() if share}


def universe_categories(
    settings: TopdownSettings, universe: str, geography: pd.DataFrame, invariants: pd.DataFrame
) -> tuple[Category, ...]:
    """The off-spine entity categories of a universe; raises InputRefused as `universe_spine`."""
    if settings.is_declared:
        with _refusing(universe):
            return declared_categories(geography, declared_rules(settings, geography))
    blocks, group_quarters = _inhabited(universe, geography, invariants)
    with _refusing(universe):
        return off_spine_categories(
            blocks,
            spine_rules(settings.geography, settings.compiled_census),
            group_quarters=group_quarters,
            kind=settings.geography.spine,
        )


def spine_geography(
    settings: TopdownSettings, geography: pd.DataFrame, invariants: pd.DataFrame
) -> pd.DataFrame:
    """The rows of the geography that `Spine.block_row` and the categories' entities number."""
    return (
        geography
        if settings.is_declared
        else _inhabited(settings.run.universes[0], geography, invariants)[0]
    )


def declared_rules(settings: TopdownSettings, areas: pd.DataFrame) -> DeclaredRules:
    """The rules of the spines of a declared census.

    Categories are those that the census declares; `geography.categories` chooses among them, and
    may name further columns of the areas. No geolevel down to the deepest that has an invariant
    is split by the bypass.
    """
    census = settings.compiled_census
    declared, chosen = census.areas, settings.geography.categories
    names = tuple(declared.categories) if chosen is None else chosen
    categories = []
    for name in names:
        if name in declared.categories:
            entry = declared.categories[name]
            categories.append(
                ColumnCategory(
                    name=name, column=entry.column, within=entry.within, outside=entry.outside
                )
            )
        else:
            categories.append(ColumnCategory(name=name, column=name))
    branch = None
    if declared.branch is not None:
        codes = CodeSet.of(declared.branch.codes)
        name = declared.branch.column
        column = text_column(areas.fillna({name: ""}), name)
        known = {value: codes.holds(value) for value in column.unique()}
        branch = column.map(known).to_numpy(dtype=bool)
    exact = [
        declared.geolevels.index(invariant.geolevel)
        for universe in census.universes.values()
        for invariant in universe.invariants
    ]
    return DeclaredRules(
        geolevels=declared.geolevels,
        categories=tuple(categories),
        branch=branch,
        fanout_cutoff=settings.geography.fanout_cutoff,
        cut=settings.geography.block_groups,
        bypass=settings.geography.bypass and not settings.blocks_only,
        bypass_cutoff=spine_rules(settings.geography, settings.compiled_census).bypass_cutoff,
        never_split=declared.geolevels[: max(exact, default=0) + 1],
    )


def _not_crossed(
    settings: TopdownSettings, universe: str, names: Sequence[str], areas: pd.DataFrame
) -> str | None:
    """The deepest geolevel with an invariant of a universe that the groups of a spine of some
    geolevels could reach across: below the last that is kept, and above single areas.
    """
    geolevels = _geolevels(settings)
    exact = {entry.geolevel for entry in settings.compiled_census.universes[universe].invariants}
    between = geolevels[geolevels.index(names[-3]) + 1 : -1] if len(names) > 2 else ()
    crossed = [name for name in between if name in exact and name in areas.columns]
    return crossed[-1] if crossed else None


def _geolevels(settings: TopdownSettings) -> tuple[str, ...]:
    """The geolevels that the census declares."""
    return settings.compiled_census.areas.geolevels


def _declared(settings: TopdownSettings, universe: str, areas: pd.DataFrame, kind: str) -> Spine:
    with _refusing(universe):
        shares = _declared_shares(settings, universe)
        if kind == DHC:
            return _dhc(settings, universe, areas, shares)
        if kind == "conventional":
            columns = set(areas.columns)
            missing = [name for name in list(shares)[1:] if name not in columns]
            for name in missing:
                following = list(shares)[list(shares).index(name) + 1]
                shares[following] += shares.pop(name)
            # Puerto Rico's spine of the DHC product begins at its state, without a nation above.
            shares = dict.fromkeys(_geolevels(settings)[:1], Fraction(0)) | shares
        rules = declared_rules(settings, areas)
        if kind == "optimized":
            not_crossed = _not_crossed(settings, universe, tuple(shares), areas)
            rules = replace(rules, not_crossed=not_crossed)
        spine = declared_spine(
            areas,
            geolevel_shares=shares,
            kind=kind,
            rules=rules,
            is_pure=settings.budget_of(universe).is_pure,
        )
    return with_blocks_only(spine) if settings.blocks_only else spine


def _dhc(
    settings: TopdownSettings,
    universe: str,
    areas: pd.DataFrame,
    geolevel_shares: Mapping[str, Fraction],
) -> Spine:
    """The spine of the demographic and housing characteristics product, on declared areas whose
    codes, one after the other, are those of blocks.
    """
    columns = [name for name in _geolevels(settings)[1:] if name in areas.columns]
    codes = joined_codes(areas, columns)
    blocks = areas.assign(block_geocode=codes)
    spine = build_spine(
        blocks,
        geolevel_shares=geolevel_shares,
        kind=DHC,
        rules=spine_rules(settings.geography, settings.compiled_census),
        is_pure=settings.budget_of(universe).is_pure,
    )
    paths = areas["block_geocode"].to_numpy(dtype=object)
    spine = replace(spine, block_geocode=paths[spine.block_row])
    return with_blocks_only(spine) if settings.blocks_only else spine


def _built(
    settings: TopdownSettings,
    universe: str,
    geography: pd.DataFrame,
    invariants: pd.DataFrame,
    kind: str,
    geolevel_shares: Mapping[str, Fraction],
) -> Spine:
    blocks, group_quarters = _inhabited(universe, geography, invariants)
    with _refusing(universe):
        rules = spine_rules(settings.geography, settings.compiled_census)
        spine = build_spine(
            blocks,
            geolevel_shares=geolevel_shares,
            kind=kind,
            rules=replace(rules, bypass=rules.bypass and not settings.blocks_only),
            is_pure=settings.budget_of(universe).is_pure,
            group_quarters=group_quarters,
        )
    return with_blocks_only(spine) if settings.blocks_only else spine


def _declared_shares(settings: TopdownSettings, universe: str) -> dict[str, Fraction]:
    """Shares of the geolevels as the settings have them, whichever of them are measured."""
    return dict(settings.budget[universe].geolevels)


def with_blocks_only(spine: Spine) -> Spine:
    """The same geounits, of which the blocks have the whole budget and all others none."""
    geolevels = []
    for level in spine.geolevels:
        share = Fraction(level is spine.geolevels[-1])
        geolevels.append(
            replace(
                level,
                plb_shares=(share,),
                plb_share_code=np.zeros(len(level), dtype=np.int32),
                bypassed=np.full(len(level), share == 0),
            )
        )
    return replace(spine, geolevels=tuple(geolevels))


def _inhabited(
    universe: str, geography: pd.DataFrame, invariants: pd.DataFrame
) -> tuple[pd.DataFrame, np.ndarray | None]:
    """Blocks that can hold somebody, and for persons their facilities by type."""
    used = inhabitable(invariants)
    facilities = None
    if universe == "persons":
        facilities = invariants.loc[used, list(FACILITY_COLUMNS)].to_numpy()
    if used.all():
        return geography, facilities
    return geography[used].reset_index(drop=True), facilities


@contextmanager
def _refusing(universe: str) -> Iterator[None]:
    try:
        yield
    except GeographyRefused as error:
        raise InputRefused(f"Spine of {universe}: {error}.") from None

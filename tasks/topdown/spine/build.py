"""From the public geography and the declared invariants to a universe's spine.

The rules of a spine from the settings, and refusals that need no areas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ....geography.categories import Category, off_spine_categories
from ....geography.declared import (
    ColumnCategory,
    DeclaredRules,
    Units,
    declared_categories,
    declared_spine,
    declared_units,
)
from ....geography.hierarchy import CONVENTIONAL_DIGITS, group_equally, text_column
from ....geography.levels import OF_THE_SPINE, Spine
from ....geography.rules import (
    GEOLEVEL_ORDER,
    AianRange,
    GeographyRefused,
    SpineRules,
    block_geolevels,
    declared_geolevels,
    select_aian_areas,
)
from ....geography.spine import build_spine
from ...census.areas import code_columns, joined_codes
from ...census.invariants import (
    FACILITY_COLUMNS,
    inhabitable,
    read_geography,
    read_inhabitable,
    read_invariants,
)
from ...census.recodes import CodeSet
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused, refuse_errors
from ...runs.names import did_you_mean
from ..paths import geography_file, invariants_file, spine_folder
from ..settings import TopdownSettings
from ..workload.sections import DHC
from .files import cut_spine, write_shards, write_spine


def _group_rules(settings: TopdownSettings) -> dict[str, Any]:
    """The rules of every kind of spine; nothing is bypassed where areas alone are measured."""
    geography = settings.geography
    return {
        "fanout_cutoff": geography.fanout_cutoff,
        "cut": geography.block_groups,
        "bypass": geography.bypass and not settings.blocks_only,
        "bypass_cutoff": None if geography.bypass_cutoff == "none" else geography.bypass_cutoff,
    }


def spine_rules(settings: TopdownSettings) -> SpineRules:
    """The rules according to `geography`; raises GeographyRefused for invalid values."""
    geography, declared = settings.geography, settings.compiled_census.geography.categories
    ranges = tuple(AianRange(**entry.model_dump()) for entry in geography.aian_ranges)
    if geography.aian_areas is not None:
        ranges = select_aian_areas(ranges, geography.aian_areas)
    columns = {name: category.column for name, category in declared.items()}
    if geography.school_district_column is not None:
        columns["school_district"] = geography.school_district_column
    return SpineRules(
        aian_ranges=ranges,
        columns=columns,
        strong_mcd_states=geography.strong_mcd_states,
        greedy_tract_subset_groups=geography.tract_subset_groups == "greedy",
        categories=geography.categories,
        **_group_rules(settings),
    )


def refuse_no_spine(settings: TopdownSettings) -> None:
    """Refuse rules and geolevel shares that make no spine, or none with a level for state
    totals."""
    kind, census = settings.geography.spine, settings.compiled_census
    with refuse_errors("Settings of the spine: ", of=GeographyRefused):
        for universe in settings.run.universes:
            shares = settings.budget[universe].geolevels
            if settings.has_block_rules:
                spine_rules(settings)
                block_geolevels(shares, kind)
            else:
                declared_geolevels(shares, kind, census.geolevels)
    totals = _state_totals(settings) if census.follows_block_rules else ()
    for universe, geolevel in totals:
        if geolevel not in settings.budget[universe].geolevels:
            raise InputRefused(
                f"budget.{universe}.geolevels has no {geolevel}, where the population of every "
                f"state is held exact; give {geolevel} a share, or set run.estimator = "
                "'block_by_block', which declares no totals."
            )


def declares_state_totals(settings: TopdownSettings) -> bool:
    """Whether the population of every state is exact by declaration.

    This applies to totals that a census declares with a name for their sums `above`: they are held
    where the spine has their geolevel, and are absent where the areas are estimated alone.
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


PublicTables = tuple[pd.DataFrame, pd.DataFrame]
"""The frames of the geography and of its public facts, as far as a spine has them."""


class AreaSpines:
    """Spines of areas by the rules that a census declares, or on its areas by the rules of DHC's
    blocks.

    before : the kind of spine for comparison with the spines of the settings.
    branch : name of their branch on pages.
    """

    before: Literal["conventional", "aian"] = "conventional"
    branch = "on the branch"

    def __init__(self, settings: TopdownSettings) -> None:
        self.settings = settings
        self.census, self.kind = settings.compiled_census, settings.geography.spine

    def shares(self, universe: str) -> dict[str, Fraction]:
        """Shares of the geolevels, measured or not."""
        return dict(self.settings.budget_of(universe).geolevel_shares)

    def read(self, run: RunDirectory) -> PublicTables:
        """The areas from the files of a run."""
        return read_geography(geography_file(run)), read_invariants(invariants_file(run))

    def rows(self, tables: PublicTables) -> pd.DataFrame:
        """The rows of the geography that `Spine.block_row` and the categories' entities number."""
        return tables[0]

    def spine(self, universe: str, tables: PublicTables, kind: str | None = None) -> Spine:
        """The spine of a universe, of the settings' kind by default; raises InputRefused for a
        geography or rules that make none, and for categories that cannot be formed, which all
        spines need for their report.
        """
        with refuse_errors(f"Spine of {universe}: ", of=GeographyRefused):
            return self._of_kind(universe, tables, kind or self.kind)

    def compared(self, universe: str, spine: Spine, tables: PublicTables) -> dict[str, Spine]:
        """The spine of a universe by its kind, after one of the kind `before` with the same budget
        if it is of another.
        """
        own = {spine.kind: spine}
        if spine.kind == self.before:
            return own
        return {self.before: self.spine(universe, tables, self.before)} | own

    def categories(self, universe: str, tables: PublicTables) -> tuple[Category, ...]:
        """The off-spine entity categories of a universe; raises InputRefused as `spine`."""
        geography, _ = tables
        with refuse_errors(f"Spine of {universe}: ", of=GeographyRefused):
            return declared_categories(geography, declared_rules(self.settings, geography))

    def areas(self, geolevel: str, spine: Spine, run: RunDirectory) -> Units | None:
        """The declared areas of a geolevel, independent of the spine.

        Returns:
            `number` (n_blocks,) of each of the spine's blocks' area, and their paths; None for a
            geolevel that is not declared, or that only the spine forms.
        """
        geography = read_geography(geography_file(run))
        units = declared_units(geography, self.census.geolevels).get(geolevel)
        return None if units is None else Units(units.number[spine.block_row], units.path)

    def _of_kind(self, universe: str, tables: PublicTables, kind: str) -> Spine:
        settings, shares, geography = self.settings, self.shares(universe), tables[0]
        if kind == DHC:
            return self._dhc(universe, geography)
        if kind == "conventional":
            missing = [name for name in list(shares)[1:] if name not in geography.columns]
            for name in missing:
                following = list(shares)[list(shares).index(name) + 1]
                shares[following] += shares.pop(name)
            # Puerto Rico's spine of the DHC product begins at its state, without a nation.
            shares = dict.fromkeys(self.census.geolevels[:1], Fraction(0)) | shares
        rules = declared_rules(settings, geography)
        if kind == "optimized":
            not_crossed = self._not_crossed(universe, tuple(shares), geography)
            rules = replace(rules, not_crossed=not_crossed)
        return declared_spine(
            geography,
            geolevel_shares=shares,
            kind=kind,
            rules=rules,
            is_pure=settings.budget_of(universe).is_pure,
        )

    def _not_crossed(self, universe: str, names: Sequence[str], areas: pd.DataFrame) -> str | None:
        """The deepest geolevel with an invariant of a universe that the groups of a spine of some
        geolevels could reach across: below the last that is kept, and above single areas.
        """
        geolevels = self.census.geolevels
        exact = {entry.geolevel for entry in self.census.universes[universe].invariants}
        between = geolevels[geolevels.index(names[-3]) + 1 : -1] if len(names) > 2 else ()
        crossed = [name for name in between if name in exact and name in areas.columns]
        return crossed[-1] if crossed else None

    def _dhc(self, universe: str, areas: pd.DataFrame) -> Spine:
        """The spine of the demographic and housing characteristics product, on declared areas whose
        codes, one after the other, form the codes of blocks.
        """
        columns = code_columns(self.census.geolevels, areas.columns)
        spine = build_spine(
            areas.assign(block_geocode=joined_codes(areas, columns)),
            geolevel_shares=self.shares(universe),
            kind=DHC,
            rules=spine_rules(self.settings),
            is_pure=self.settings.budget_of(universe).is_pure,
        )
        paths = areas["block_geocode"].to_numpy(dtype=object)
        return replace(spine, block_geocode=paths[spine.block_row])


class BlockSpines(AreaSpines):
    """Spines over the inhabitable blocks of 2020.

    Group-quarters types count as off-spine entities for persons only.
    """

    before = "aian"
    branch = "AIAN branch"

    def read(self, run: RunDirectory) -> PublicTables:
        """The rows of the inhabitable blocks."""
        return read_inhabitable(geography_file(run), invariants_file(run))

    def rows(self, tables: PublicTables) -> pd.DataFrame:
        """The inhabitable blocks."""
        return _inhabitable_blocks(self.settings.run.universes[0], tables)[0]

    def spine(self, universe: str, tables: PublicTables, kind: str | None = None) -> Spine:
        """The spine of a universe; see `AreaSpines.spine`."""
        if self.kind in ("conventional", "aian"):
            self.categories(universe, tables)
        return super().spine(universe, tables, kind)

    def categories(self, universe: str, tables: PublicTables) -> tuple[Category, ...]:
        """The off-spine entity categories of a universe; raises InputRefused as `spine`."""
        blocks, group_quarters = _inhabitable_blocks(universe, tables)
        with refuse_errors(f"Spine of {universe}: ", of=GeographyRefused):
            return off_spine_categories(
                blocks,
                spine_rules(self.settings),
                group_quarters=group_quarters,
                kind=self.kind,
            )

    def areas(self, geolevel: str, spine: Spine, run: RunDirectory) -> Units | None:
        """The areas by the digits of block geocodes; uninhabitable areas are left out."""
        width = 0 if geolevel == spine.names[0] else CONVENTIONAL_DIGITS.get(geolevel)
        if width is None:
            return None
        codes = pc.utf8_slice_codeunits(pa.array(spine.block_geocode, pa.string()), 0, width)
        number, path = pd.factorize(codes.to_pandas(), sort=True)
        if not width:
            path = spine.geolevels[0].geocode
        return Units(number.astype(np.int64), np.asarray(path, dtype=object))

    def _of_kind(self, universe: str, tables: PublicTables, kind: str) -> Spine:
        blocks, group_quarters = _inhabitable_blocks(universe, tables)
        shares = self.shares(universe)
        return build_spine(
            blocks,
            geolevel_shares=shares if kind == self.kind else on_aian_spine(shares),
            kind=kind,
            rules=spine_rules(self.settings),
            is_pure=self.settings.budget_of(universe).is_pure,
            group_quarters=group_quarters,
        )


def spines_of(settings: TopdownSettings) -> AreaSpines:
    """The construction of the spines of some settings."""
    has_addresses = settings.compiled_census.follows_block_rules
    return BlockSpines(settings) if has_addresses else AreaSpines(settings)


def levels_of_run(run: RunDirectory, settings: TopdownSettings, spine: Spine) -> list[str]:
    """Names of all levels of a run, root first: for a geolevel the declared areas, and after them,
    where these are others, the spine's own geounits.
    """
    names: list[str] = []
    for name in spine.names:
        areas = spines_of(settings).areas(name, spine, run)
        if areas is None:
            names.append(spine.level_names[name])
            continue
        are_same = group_equally(areas.number, spine.ancestors(name))
        names += [name] if are_same else [name, name + OF_THE_SPINE]
    return names


def areas_of_level(
    run: RunDirectory, settings: TopdownSettings, spine: Spine, name: str
) -> tuple[str, Units | None]:
    """The areas of a level by its name, which always means the declared areas.

    Returns:
        A geolevel of the spine whose geounits they are, and None; or the name, and the areas as
        `AreaSpines.areas`.

    Raises:
        InputRefused: the run has no such level, or the spine alone forms its areas.
    """
    own = name.removesuffix(OF_THE_SPINE)
    if own != name and own in spine.names:
        return own, None
    areas = spines_of(settings).areas(name, spine, run)
    if name in spine.names:
        if areas is None and spine.level_names[name] == name:
            return name, None
        if areas is not None and group_equally(areas.number, spine.ancestors(name)):
            return name, None
    if areas is None:
        known = levels_of_run(run, settings, spine)
        hint = did_you_mean(name, known)
        raise InputRefused(f"The run has no geolevel {name!r}{hint}; it has {', '.join(known)}.")
    return name, areas


def write_universe_spine(run: RunDirectory, settings: TopdownSettings, universe: str) -> None:
    """Build the spine of a universe from the run's files, store it, and cut it into shards."""
    spines = spines_of(settings)
    store_spine(run, settings, universe, spines.spine(universe, spines.read(run)))


def store_spine(run: RunDirectory, settings: TopdownSettings, universe: str, spine: Spine) -> None:
    """Store the spine of a universe, and cut it; the shards come last and mark completion."""
    folder = spine_folder(run, universe)
    write_spine(spine, folder)
    schema, budget = settings.schema_of(universe), settings.budget_of(universe)
    shards = cut_spine(spine, schema, budget, on_demand=settings.is_on_demand(universe))
    write_shards(shards, folder)


def on_aian_spine(geolevel_shares: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """Shares of the AIAN spine's geolevels; its tracts take the shares of the geolevels it lacks.

    Example: equal shares of the eight geolevels of the DHC spine give the tracts 3/8, for prims,
    tract subset groups and tract subsets.
    """
    sums: dict[str, Fraction] = {}
    for name, share in geolevel_shares.items():
        own = name if name in GEOLEVEL_ORDER["aian"] else "Tract"
        sums[own] = sums.get(own, Fraction(0)) + share
    return sums


def declared_rules(settings: TopdownSettings, areas: pd.DataFrame) -> DeclaredRules:
    """The rules of the spines of a declared census.

    Categories are the declared ones; `geography.categories` chooses among them, and may name
    further columns of the areas. No geolevel down to the deepest that has an invariant is split by
    the bypass.
    """
    census = settings.compiled_census
    declared, chosen = census.geography, settings.geography.categories
    names = tuple(declared.categories) if chosen is None else chosen
    columns = {
        name: entry.model_dump() for name, entry in declared.categories.items() if name in names
    }
    categories = (
        ColumnCategory(name=name, **columns.get(name, {"column": name})) for name in names
    )
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
        **_group_rules(settings),
        never_split=declared.geolevels[: max(exact, default=0) + 1],
    )


def _inhabitable_blocks(
    universe: str, tables: PublicTables
) -> tuple[pd.DataFrame, np.ndarray | None]:
    """Inhabitable blocks, and for persons their facilities by type."""
    geography, invariants = tables
    used = inhabitable(invariants)
    facilities = None
    if universe == "persons":
        facilities = invariants.loc[used, list(FACILITY_COLUMNS)].to_numpy()
    if used.all():
        return geography, facilities
    return geography[used].reset_index(drop=True), facilities

"""The report's map: errors by area for public input, else the widths of margins.

The areas are the entities of the tables of a release, whose geocodes the geometry repeats. Entities
off the spine (county subdivisions, places, AIAN areas; in a declared census entities of other
columns than geolevels) are outlined where they have a layer.

In a declared census the map shows totals of its first universe, by declared levels. Geometry may
repeat the codes of tables (the path of a geounit), or the plain codes of the table of areas where
these are unique within a level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from ....geography.declared import GEOCODE
from ...census.areas import entities
from ...census.census import Universe
from ...census.declarations import TableDeclaration
from ...census.invariants import read_geography
from ...census.queries import incidence
from ...pages.document import Figure, Section
from ...pages.figures import area_map
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ...tables.geometry import read_layers
from ..paths import geography_file
from ..settings import TopdownSettings
from ..spine.shards import RunUniverse
from .tabulations.levels import SUMMARY_LEVELS, entities_of
from .tabulations.run import LOWER, MARGIN_LEVEL, SUFFIX, UPPER, tabulated_universes
from .tabulations.tables import TABLES

OFF_SPINE = frozenset(("060", "160", "280"))
"""Summary levels of entities that may lie across the geounits of the spine."""
MOST_AREAS = 6000
"""Most areas on a map; more would be smaller than a point of the page."""
COUNTED = {"persons": "P0010001", "units": "H0010002"}
"""The variable that a map shows, by universe."""
TITLE = "Map"


def map_section(
    run: RunDirectory, settings: TopdownSettings, truth: Mapping[str, pd.Series] | None
) -> Section | None:
    """A map of the finest layer of the geometry that is not too fine; None without geometry.

    `truth` has the true number of records of every block by universe, by block geocode, for input
    that is not confidential.
    """
    place, totals = settings.input.geometry, _totals(run, settings)
    if place is None or totals is None:
        return None
    released = totals.released
    try:
        layers = read_layers(Path(place), {level: set(of.index) for level, of in released.items()})
    except InputRefused as error:
        return Section(TITLE, (str(error),))
    filled = [
        layer
        for layer in layers
        if layer.level not in totals.off_spine and len(layer.areas) <= MOST_AREAS
    ]
    if not filled:
        return Section(TITLE, ("The geometry has no areas with the codes of this release.",))
    base = max(filled, key=lambda layer: len(layer.areas))
    name, counted = totals.name(base.level), totals.counted
    true = None if truth is None else totals.true(base.level, truth[totals.universe])
    if true is not None:
        values = released[base.level] - true
        label = f"released less true {counted}"
        words = f"Error of the {counted} by {name}; the input is not confidential."
    else:
        values = totals.widths(base.level)
        if values is None:
            return Section(TITLE, ("Without margins there is nothing to show on a map.",))
        label = f"half the width of the interval of {counted}"
        words = (
            f"Noise by {name}: half the width of the interval that holds the {counted} with "
            f"a probability of {100 * MARGIN_LEVEL:.0f} %."
        )
    outlines = [layer for layer in layers if layer.level in totals.off_spine]
    names = sorted({_plural(totals.name(layer.level)) for layer in outlines})
    svg = area_map(
        [replace(area, value=float(values.get(code, np.nan))) for code, area in base.areas.items()],
        [area for layer in outlines for area in layer.areas.values()],
        title=f"Map: {label}",
        value_label=label,
        outline_label=f"{' and '.join(names)}, off the spine",
        in_degrees=base.in_degrees,
    )
    return Section(TITLE, (Figure(svg, words),))


def _totals(
    run: RunDirectory, settings: TopdownSettings
) -> DeclaredTotals | RedistrictingTotals | None:
    """The totals for a map, by the tables of the census; None without tables."""
    census = settings.compiled_census
    if not census.summary_levels:
        return DeclaredTotals(run, settings)
    universes = [u for u in tabulated_universes(settings) if u in COUNTED]
    return RedistrictingTotals(run, census.universes[universes[0]]) if universes else None


class RedistrictingTotals:
    """Totals of the tables of a redistricting release, by summary level."""

    off_spine = OFF_SPINE

    def __init__(self, run: RunDirectory, universe: Universe) -> None:
        self._run = run
        self.universe, self._is_part = universe.name, bool(universe.counted.where)
        self._variable, self.counted = COUNTED[universe.name], universe.counted.text

    @property
    def released(self) -> Mapping[str, pd.Series]:
        """Released totals by summary level and geocode."""
        columns = ["GEOCODE", self._variable]
        return {
            code: self._table(code, "", columns).set_index("GEOCODE")[self._variable]
            for code in SUMMARY_LEVELS
        }

    def name(self, level: str) -> str:
        """The word for one entity of a summary level."""
        name = SUMMARY_LEVELS[level].name
        return name if name.startswith("AIAN") else name.lower()

    def true(self, level: str, of_blocks: pd.Series) -> pd.Series | None:
        """True records of every entity of a summary level; None if the tables cover a part of
        them."""
        if self._is_part:
            return None
        geography = read_geography(geography_file(self._run))
        entities = entities_of(geography, SUMMARY_LEVELS[level])
        known = of_blocks.reindex(geography["block_geocode"]).fillna(0).to_numpy()
        sums = incidence(entities.block_entity, len(entities)) @ known
        return pd.Series(sums, index=entities.geocode.to_pylist())

    def widths(self, level: str) -> pd.Series | None:
        """Half the width of every entity's interval by geocode; None without margins."""
        ends = [f"{self._variable}_LOWER", f"{self._variable}_UPPER"]
        try:
            rows = self._table(level, SUFFIX, ["GEOCODE", *ends])
        except FileNotFoundError:
            return None
        lower, upper = (rows[end] for end in ends)
        return pd.Series((upper - lower).to_numpy() / 2, index=rows["GEOCODE"])

    def _table(self, code: str, suffix: str, columns: list[str]) -> pd.DataFrame:
        path = self._run.release / TABLES / f"{SUMMARY_LEVELS[code].stem}{suffix}.parquet"
        return pq.read_table(path, columns=columns).to_pandas()


def _plural(name: str) -> str:
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"


class DeclaredTotals:
    """Released totals of the first universe of a run, and their errors where known."""

    def __init__(self, run: RunDirectory, settings: TopdownSettings) -> None:
        self._run, self._settings = run, settings
        self._census = settings.compiled_census
        self._areas = read_geography(geography_file(run))
        self.universe = settings.run.universes[0]
        self.counted = self._census.universes[self.universe].counted.text
        geography = self._census.geography
        further = dict.fromkeys(
            [level for table in self._census.tables for level in table.levels]
            + [category.column for category in geography.categories.values()]
        )
        own = [level for level in geography.geolevels[1:] if level in self._areas]
        self.off_spine = frozenset(further) - set(geography.geolevels)
        self._levels = (*own, *(level for level in further if level in self.off_spine))

    def name(self, level: str) -> str:
        """The word for one entity of a level."""
        return level

    @cached_property
    def released(self) -> Mapping[str, pd.Series]:
        """Released totals of the entities of every level, by either code."""
        counts = RunUniverse(self._run, self._settings, self.universe).area_counts()
        of_area = np.asarray(counts.sum(axis=1)).ravel()
        return {level: self._sums(level, of_area) for level in self._levels}

    def true(self, level: str, of_areas: pd.Series) -> pd.Series:
        """True totals of the entities of a level, summed from areas by geocode."""
        known = of_areas.reindex(self._areas[GEOCODE]).fillna(0).to_numpy()
        return self._sums(level, known)

    def widths(self, level: str) -> pd.Series | None:
        """Half the width of every total's interval; None where no table of totals has margins."""
        for table in self._census.tables:
            path = self._run.release / TABLES / f"{table.name}{SUFFIX}.parquet"
            if level in table.levels and self._has_totals(table) and path.exists():
                rows = pd.read_parquet(path, columns=["level", "code", LOWER, UPPER])
                rows = rows[rows["level"] == level].set_index("code")
                half = (rows[UPPER] - rows[LOWER]) / 2
                codes = self._codes(level)
                return pd.Series(half.reindex(list(codes.values())).to_numpy(float), list(codes))
        return None

    def _has_totals(self, table: TableDeclaration) -> bool:
        is_total = table.query == "total" and not table.rows and not table.where
        return is_total and table.universe == self.universe

    def _sums(self, level: str, of_area: np.ndarray) -> pd.Series:
        number, code = entities(self._areas, self._census.geolevels, level)
        sums, codes = incidence(number, len(code)) @ of_area, self._codes(level)
        return pd.Series(sums, index=list(code)).reindex(list(codes.values())).set_axis(list(codes))

    def _codes(self, level: str) -> dict[str, str]:
        """The code in tables of each code that geometry may have."""
        number, code = entities(self._areas, self._census.geolevels, level)
        pairs = pd.DataFrame({"plain": self._areas[level], "number": number})
        pairs = pairs[number >= 0].drop_duplicates()
        plain = {}
        if not pairs["plain"].duplicated().any():
            plain = {text: code[at] for text, at in zip(*map(pairs.get, pairs), strict=True)}
        return plain | {path: path for path in code}

"""What a report's map shows of a declared census: totals of its first universe, by declared levels.

Geometry may repeat the codes of tables (the path of a geounit), or the plain codes of the table of
areas where those tell the entities of a level apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import pandas as pd

from ....geography.declared import GEOCODE
from ...census.declarations import TableDeclaration
from ...census.entities import entities
from ...census.invariants import read_geography
from ...runs.directory import RunDirectory
from ..measurement.public_answers import area_counts
from ..paths import geography_file
from ..settings import TopdownSettings
from .declared_files import TABLES
from .margin_files import LOWER, SUFFIX, UPPER


class DeclaredTotals:
    """Released totals of the first universe of a run, and what is known of their errors."""

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
        """What one entity of a level is called."""
        return level

    @cached_property
    def released(self) -> Mapping[str, pd.Series]:
        """Released totals of the entities of every level, by either code."""
        schema = self._settings.schema_of(self.universe)
        counts = area_counts(self._run, self.universe, schema.n_cells, len(self._areas))
        of_area = np.asarray(counts.sum(axis=1)).ravel()
        return {level: self._sums(level, of_area) for level in self._levels}

    def true(self, level: str, of_areas: pd.Series) -> pd.Series:
        """True totals of the entities of a level, from those of the areas by geocode."""
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
        inside = number >= 0
        sums = np.bincount(number[inside], of_area[inside], minlength=len(code))
        codes = self._codes(level)
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

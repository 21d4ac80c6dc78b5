"""Tables that every method publishes, and what a published table tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...census.queries import MarginalQuery


@dataclass(frozen=True, eq=False)
class Places:
    """The entities of a level, each a set of areas of the last geolevel.

    entity : (n_areas,) number of each area's entity; -1 for none.
    codes : the entities' codes.
    parent_level : the smallest larger level whose entities have those of this one whole, if any.
    parent : (n_entities,) the entity of that level which has each; -1 where there is none.
    """

    level: str
    entity: np.ndarray
    codes: tuple[str, ...]
    parent_level: str | None
    parent: np.ndarray

    def __len__(self) -> int:
        return len(self.codes)

    def sums(self, area: np.ndarray) -> np.ndarray:
        """Records of each entity `(n_entities,)`, by the areas of all records `(n,)`."""
        entity = self.entity[area]
        return np.bincount(entity[entity >= 0], minlength=len(self))


@dataclass(frozen=True, eq=False)
class AskedTable:
    """A table: answers to a marginal query about some of the records, for all entities of a level.

    counted : (n_cells,) mask of the cells of the records that it counts.
    """

    name: str
    query: MarginalQuery
    counted: np.ndarray
    places: Places

    @property
    def key(self) -> tuple[str, str]:
        """What tells the tables of a comparison apart: name and level."""
        return self.name, self.places.level

    @property
    def shape(self) -> tuple[int, int]:
        """Entities and answers of each."""
        return len(self.places), self.query.n_rows

    def positions(self, area: np.ndarray, cell: np.ndarray) -> np.ndarray:
        """Where records `(n,)` of some areas and cells are counted: entity times answers plus the
        answer; -1 for records that the table does not count.
        """
        entity = self.places.entity[area].astype(np.int64)
        found = entity * self.query.n_rows + self.query.row_of_cell[cell]
        return np.where((entity >= 0) & self.counted[cell], found, -1)

    def answer(
        self, area: np.ndarray, cell: np.ndarray, weight: np.ndarray | None = None
    ) -> np.ndarray:
        """Sums of weights, by default counts, of records by entity and answer, `shape`, float64."""
        at = self.positions(area, cell)
        inside = at >= 0
        own = None if weight is None else weight[inside]
        n_entities, n_rows = self.shape
        sums = np.bincount(at[inside], own, minlength=n_entities * n_rows)
        return sums.astype(np.float64).reshape(n_entities, n_rows)


@dataclass(frozen=True, eq=False)
class PublishedTable:
    """A table as a method publishes it, and what that tells about the true counts.

    value : (n_entities, n_answers) published values; NaN where a value is withheld.
    low, high : bounds of the true counts that follow from the published values and the method's
        public parameters, where it has any; infinite where nothing follows.
    total : (2, n_entities) such bounds of the sum of each entity's answers; None where nothing
        follows but from those of the answers.
    """

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    total: np.ndarray | None = None

    @classmethod
    def exactly(cls, value: np.ndarray) -> PublishedTable:
        """A table whose values are said to be the counts."""
        return cls(value, value, value)

    @classmethod
    def within(cls, value: np.ndarray, distance: float) -> PublishedTable:
        """A table whose values are at most some distance from counts, which are not negative."""
        return cls(value, np.maximum(value - distance, 0), value + distance)

    @classmethod
    def without_bounds(cls, value: np.ndarray) -> PublishedTable:
        """A table of values from which no bound follows but that counts are not negative."""
        return cls(value, np.zeros_like(value), np.full_like(value, np.inf))


Tables = Mapping[tuple[str, str], PublishedTable]
"""Published tables by name and level."""

"""The people of a comparison, the tables about them, and how areas lie within each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...census.partitions import People
from .tables import AskedTable, Places


@dataclass(frozen=True, eq=False)
class Population:
    """The people of a comparison, with what methods need to know of them.

    tables : those that are published, levels from large to small.
    regions : levels between whose entities households are swapped, from large to small.
    risk : (n,) value of the risk variables of every person.
    agree : (n,) whether two swapped households must have as many of such persons.
    """

    people: People
    tables: Sequence[AskedTable]
    regions: Sequence[Places]
    risk: np.ndarray
    agree: np.ndarray

    @cached_property
    def truth(self) -> Mapping[tuple[str, str], np.ndarray]:
        """The true answers of every table."""
        return counted(self.people, self.tables)


def counted(people: People, tables: Sequence[AskedTable]) -> dict[tuple[str, str], np.ndarray]:
    """The answers of tables about people, by name and level."""
    return {table.key: table.answer(people.area, people.cell) for table in tables}


def ancestors(small: Places, large: Places) -> np.ndarray | None:
    """The entity of a larger level that has all of each entity of a smaller one `(n,)`; None if
    some entity of the smaller level is in none, or in several.
    """
    inside = small.entity >= 0
    found = np.full(len(small), -1, dtype=np.int64)
    found[small.entity[inside]] = large.entity[inside]
    is_whole = (found[small.entity[inside]] == large.entity[inside]).all()
    return found if is_whole and (found >= 0).all() else None


def siblings(places: Places) -> list[np.ndarray]:
    """The entities of a level that have the same parent, group by group; all where none has."""
    order = np.argsort(places.parent, kind="stable")
    starts = np.flatnonzero(np.diff(places.parent[order])) + 1
    return [group for group in np.split(order, starts) if len(group)]

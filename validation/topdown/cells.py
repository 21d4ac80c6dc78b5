"""The cells of a universe's histogram, and which of them each row of a marginal query counts.

Told from plain facts (the number of levels of each attribute, the groups of each coarsening) and
by definition: a query row is a choice of one level, or one group of levels, of each attribute that
the query names, and it counts the cells which agree with that choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

TOTAL = "total"
DETAILED = "detailed"
SEPARATOR = " * "


@dataclass(frozen=True)
class Margin:
    """The rows of a query: `row_of_cell` (n_cells,) is the row that counts each cell."""

    n_rows: int
    row_of_cell: np.ndarray


@dataclass(frozen=True)
class Cells:
    """All ways of choosing a level of each attribute, numbered so that the last runs fastest.

    sizes : number of levels of each attribute, in the order in which cells are numbered.
    coarsenings : by name, an attribute and the group of each of its levels, groups from 0 on.
    Those of other attributes are of no account.

    >>> Cells("persons", {"sex": 2, "age": 3}).levels("age").tolist()
    [0, 1, 2, 0, 1, 2]
    """

    universe: str
    sizes: Mapping[str, int]
    coarsenings: Mapping[str, tuple[str, Sequence[int]]] = field(default_factory=dict)

    @cached_property
    def n(self) -> int:
        """Number of cells."""
        return math.prod(self.sizes.values())

    def levels(self, attribute: str) -> np.ndarray:
        """Level of an attribute in every cell, shape `(n,)`; raises KeyError if there is none."""
        size = self.sizes[attribute]
        names = list(self.sizes)
        stride = math.prod(self.sizes[name] for name in names[names.index(attribute) + 1 :])
        return np.tile(np.repeat(np.arange(size), stride), self.n // (stride * size))

    def where(self, conditions: Mapping[str, Sequence[int]]) -> np.ndarray:
        """Mask `(n,)` of the cells in which each attribute has one of the levels given for it.

        Raises KeyError for an attribute that is not one of these.
        """
        if unknown := set(conditions) - set(self.sizes):
            raise KeyError(min(unknown))
        mask = np.ones(1, dtype=bool)
        for attribute, size in self.sizes.items():
            own = np.ones(size, dtype=bool)
            if attribute in conditions:
                own = np.isin(np.arange(size), list(conditions[attribute]))
            mask = (mask[:, None] & own).ravel()
        return mask

    def margin(self, query: str) -> Margin:
        """The rows of a query: `total`, `detailed`, or attributes and coarsenings joined by `*`.

        Rows are numbered like cells, in the order of the attributes and not of the name. Raises
        ValueError for a name that is neither, or for two of one attribute.
        """
        name = spelled(query)
        if name not in self._margins:
            self._margins[name] = self._margin(name)
        return self._margins[name]

    @cached_property
    def _margins(self) -> dict[str, Margin]:
        """The margins that have been asked for."""
        return {}

    def _margin(self, query: str) -> Margin:
        groups = self._groups(query)
        row = np.zeros(1, dtype=np.int64)
        n_rows = 1
        for attribute, size in self.sizes.items():
            group, n_groups = np.zeros(size, dtype=np.int64), 1
            if attribute in groups:
                group = np.asarray(groups[attribute], dtype=np.int64)
                n_groups = int(group.max()) + 1
            row = (row[:, None] * n_groups + group).ravel()
            n_rows *= n_groups
        return Margin(n_rows, row)

    def _groups(self, query: str) -> dict[str, Sequence[int]]:
        """The group of each level of the attributes that a query tells apart."""
        if query == TOTAL:
            return {}
        if query == DETAILED:
            return {attribute: range(size) for attribute, size in self.sizes.items()}
        groups: dict[str, Sequence[int]] = {}
        for part in query.split(SEPARATOR):
            group: Sequence[int]
            if part in self.sizes:
                attribute, group = part, range(self.sizes[part])
            elif part in self.coarsenings and self.coarsenings[part][0] in self.sizes:
                attribute, group = self.coarsenings[part]
            else:
                raise ValueError(f"{part!r} is no attribute of {self.universe} nor a coarsening")
            if attribute in groups:
                raise ValueError(f"the query {query!r} names {attribute!r} twice")
            groups[attribute] = group
        return groups


def spelled(query: str) -> str:
    """A query's name as files spell it, its parts joined by ` * `.

    >>> spelled("sex*age")
    'sex * age'
    """
    return SEPARATOR.join(part.strip() for part in query.split("*"))

"""Schemas: the attributes whose cross product is a histogram.

A schema of attributes with sizes (d_1, ..., d_k) has d_1 * ... * d_k cells, numbered row-major:
the last attribute runs fastest. Schemas are compiled from declarations (`tasks.census.census`),
and know the labels of their levels and the coarsenings that queries may name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np


@dataclass(frozen=True)
class Coarsening:
    """A partition of an attribute's levels: `groups[i]` is the coarse level of level i."""

    name: str
    attribute: str
    levels: tuple[str, ...]
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Schema:
    """The attributes of a universe, in the order in which cells are numbered.

    `levels` holds the labels of each attribute's levels, `coarsenings` those of any attribute.

    >>> Schema("dwellings", ("tenure",), (("owned", "rented"),)).n_cells
    2
    """

    universe: str
    attributes: tuple[str, ...]
    levels_of: tuple[tuple[str, ...], ...]
    coarsenings: tuple[Coarsening, ...] = ()

    def __post_init__(self) -> None:
        if not self.attributes or len(set(self.attributes)) != len(self.attributes):
            raise ValueError(
                f"the schema of {self.universe} needs distinct attributes, at least one"
            )

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of levels of each attribute."""
        return tuple(map(len, self.levels_of))

    @property
    def n_cells(self) -> int:
        """Number of cells of the histogram."""
        return math.prod(self.shape)

    def labels(self, attribute: str) -> tuple[str, ...]:
        """Labels of an attribute's levels."""
        return self.levels_of[self.attributes.index(attribute)]

    def coarsening(self, name: str) -> Coarsening | None:
        """The coarsening of this name of one of the attributes; None if there is none.

        An attribute of the schema has its name for itself.
        """
        if name in self.attributes:
            return None
        return next((c for c in self.coarsenings if c.name == name), None)

    def levels(self, attribute: str) -> np.ndarray:
        """Level of `attribute` in every cell, shape `(n_cells,)`."""
        axis = self.attributes.index(attribute)
        shape = [1] * len(self.shape)
        shape[axis] = -1
        level = np.arange(self.shape[axis], dtype=np.int64).reshape(shape)
        return np.broadcast_to(level, self.shape).ravel()

    def cells(self, levels: Mapping[str, np.ndarray]) -> np.ndarray:
        """Cell number of records given the level of each attribute, shape `(n_records,)`."""
        return np.ravel_multi_index(
            tuple(np.asarray(levels[name]) for name in self.attributes), self.shape
        )

    def positions(self, conditions: Mapping[str, Sequence[str | int]]) -> dict[str, list[int]]:
        """The levels that conditions allow, as positions, by attribute.

        A condition names an attribute or a coarsening of one, and the labels of levels or their
        positions. Raises ValueError for a name or a level that the schema does not have.
        """
        found: dict[str, list[int]] = {}
        for name, allowed in conditions.items():
            coarsening = self.coarsening(name)
            attribute = coarsening.attribute if coarsening else name
            if attribute not in self.attributes:
                raise ValueError(f"{name!r} is not in the schema of {self.universe}")
            labels = coarsening.levels if coarsening else self.labels(attribute)
            chosen = {_position(name, level, labels) for level in allowed}
            groups = coarsening.groups if coarsening else range(len(labels))
            levels = [level for level, group in enumerate(groups) if group in chosen]
            found[attribute] = [i for i in levels if i in found.get(attribute, levels)]
        return found

    def cells_where(self, conditions: Mapping[str, Sequence[str | int]]) -> np.ndarray:
        """Mask `(n_cells,)` of the cells whose attributes take one of the given levels each.

        Conditions as for `positions`.
        """
        mask = np.ones(1, dtype=bool)
        chosen = self.positions(conditions)
        for attribute, size in zip(self.attributes, self.shape, strict=True):
            inside = np.ones(size, dtype=bool)
            if attribute in chosen:
                inside = np.isin(np.arange(size), chosen[attribute])
            mask = (mask[:, None] & inside).ravel()
        return mask

    def without(self, attributes: Iterable[str]) -> Schema:
        """The schema of the other attributes."""
        dropped = set(attributes)
        return self.of([name for name in self.attributes if name not in dropped])

    def of(self, attributes: Iterable[str]) -> Schema:
        """The schema of some of the attributes, in their order."""
        names = tuple(attributes)
        return Schema(
            self.universe,
            names,
            tuple(self.labels(name) for name in names),
            tuple(c for c in self.coarsenings if c.attribute in names),
        )

    def cell_labels(self) -> list[tuple[str, ...]]:
        """The labels of every cell, one for each attribute."""
        return list(product(*self.levels_of))


def _position(name: str, level: str | int, labels: Sequence[str]) -> int:
    """Position of a level that is given by its label or its position."""
    if isinstance(level, int):
        return level
    if level in labels:
        return labels.index(level)
    raise ValueError(f"{name!r} has no level {level!r}; it has {', '.join(map(repr, labels))}")

"""Schemas: the attributes whose cross product is a histogram.

A schema of attributes with sizes (d_1, ..., d_k) has d_1 * ... * d_k cells, numbered row-major:
the last attribute runs fastest. Schemas are compiled from declarations (`tasks.census.census`),
and know the labels of their levels and the coarsenings that queries may name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..runs.names import did_you_mean
from .attribute_declarations import CodeRange

ANYTHING = "*"
"""In a pattern, the sign for any text."""


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

    `levels` are the labels of each attribute's levels, `coarsenings` those of any attribute.

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
        """Return the coarsening of this name of one of the attributes; None if it does not exist.

        The name of an attribute of the schema cannot be a coarsening's.
        """
        if name in self.attributes:
            return None
        return next((c for c in self.coarsenings if c.name == name), None)

    def grouping(self, name: str) -> Coarsening:
        """The coarsening of this name, or the levels of the attribute of this name, each a group of
        its own; raises ValueError if there is neither.
        """
        coarsening = self.coarsening(name)
        if coarsening is not None:
            return coarsening
        labels = self.labels(name)
        return Coarsening(name, name, labels, tuple(range(len(labels))))

    @property
    def known_names(self) -> list[str]:
        """Names of the attributes, and of their coarsenings."""
        coarse = [c.name for c in self.coarsenings if c.attribute in self.attributes]
        return [*self.attributes, *coarse]

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

    def positions(
        self, conditions: Mapping[str, Sequence[str | int | CodeRange]]
    ) -> dict[str, list[int]]:
        """The levels that conditions allow, as positions, by attribute.

        A condition names an attribute or a coarsening of one, and the labels of levels, their
        positions, or ranges of labels that are numbers. Raises ValueError for a name or a level
        that the schema does not have.
        """
        found: dict[str, list[int]] = {}
        for name, allowed in conditions.items():
            if name not in self.known_names:
                raise ValueError(
                    f"{name!r} is not in the schema of {self.universe}"
                    f"{did_you_mean(name, self.known_names)}"
                )
            grouping = self.grouping(name)
            chosen = {at for level in allowed for at in positions_of(name, level, grouping.levels)}
            levels = [level for level, group in enumerate(grouping.groups) if group in chosen]
            before = found.get(grouping.attribute, levels)
            found[grouping.attribute] = [level for level in levels if level in before]
        return found

    def cells_where(self, conditions: Mapping[str, Sequence[str | int | CodeRange]]) -> np.ndarray:
        """Mask `(n_cells,)` of the cells whose attributes take one of the given levels each.

        Conditions as for `positions`.
        """
        mask = np.ones(1, dtype=bool)
        chosen = self.positions(conditions)
        for attribute, size in zip(self.attributes, self.shape, strict=True):
            inside = np.isin(np.arange(size), chosen.get(attribute, range(size)))
            mask = (mask[:, None] & inside).ravel()
        return mask

    def spelt_out(self, name: str, levels: Sequence[str | int | CodeRange]) -> list[str | int]:
        """Levels of an attribute or coarsening as they are given, ranges spelt out as labels."""
        labels = self.grouping(name).levels
        return [
            level if isinstance(level, int) else labels[at]
            for level in levels
            for at in positions_of(name, level, labels)
        ]

    def of(self, attributes: Iterable[str]) -> Schema:
        """The schema of some of the attributes, in their order."""
        names = tuple(attributes)
        coarsenings = tuple(c for c in self.coarsenings if c.attribute in names)
        return Schema(self.universe, names, tuple(map(self.labels, names)), coarsenings)


def positions_of(name: str, level: str | int | CodeRange, labels: Sequence[str]) -> list[int]:
    """Positions of a level given by its label or its position, or of those of a range or a pattern,
    in which each * matches any text.

    Raises ValueError for a level that `name` does not have, a range or pattern that has no level,
    and a range that has part of one.

    >>> positions_of("age", "0-9", ["0-4", "5-9", "10-14"])
    [0, 1]
    >>> positions_of("household", "couple; *", ["alone", "couple; size 2", "couple; size 3"])
    [1, 2]
    """
    if isinstance(level, int):
        return [level]
    if level in labels:
        return [labels.index(level)]
    if is_pattern(level, labels):
        texts = [re.escape(text) for text in str(level).split(ANYTHING)]
        fits = re.compile(".*".join(texts), re.DOTALL).fullmatch
        found = [at for at, label in enumerate(labels) if fits(label)]
        if not found:
            raise ValueError(f"{name!r} has no level that fits {level!r}")
        return found
    numbers = level if isinstance(level, CodeRange) else _range_in(level)
    if numbers is None:
        raise ValueError(f"{name!r} has no level {level!r}; it has {', '.join(map(repr, labels))}")
    return _within(name, numbers, labels)


def is_pattern(level: str | int | CodeRange, labels: Sequence[str]) -> bool:
    """Whether a level represents all labels that match it, rather than a single one."""
    return isinstance(level, str) and ANYTHING in level and level not in labels


def _range_in(label: str) -> CodeRange | None:
    """Whole numbers described by a label such as 18-24 or 18; None for any other label."""
    first, dash, last = label.partition("-")
    ends = (first, last if dash else first)
    if not all(end.isascii() and end.isdigit() for end in ends) or int(ends[0]) > int(ends[1]):
        return None
    return CodeRange.model_validate({"from": int(ends[0]), "to": int(ends[1])})


def _within(name: str, numbers: CodeRange, labels: Sequence[str]) -> list[int]:
    """Positions of the labels whose numbers are in a range, which must take them whole."""
    found = []
    for at, label in enumerate(labels):
        span = _range_in(label)
        if span is None or span.last < numbers.first or numbers.last < span.first:
            continue
        if span.first < numbers.first or numbers.last < span.last:
            raise ValueError(f"{name!r}: the range {numbers} cuts through the level {label!r}")
        found.append(at)
    if not found:
        raise ValueError(
            f"{name!r} has no level in the range {numbers}; it has {', '.join(map(repr, labels))}"
        )
    return found

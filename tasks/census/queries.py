"""Schemas, whose cross products are histograms, and marginal queries on their cells.

A schema of attributes with sizes (d_1, ..., d_k) has d_1 * ... * d_k cells, numbered row-major:
the last attribute runs fastest. Schemas are compiled from declarations (`tasks.census.census`),
and know the labels of their levels and the coarsenings that queries may name.

A marginal query is a 0/1 matrix whose rows partition the cells: a Kronecker product of one factor
per attribute, the identity, a row of ones, or a coarsening of the attribute's levels. Each column
of the product holds exactly one 1, so the whole matrix is given by the row of each cell, and the L2
sensitivity of its answer to a change of one record is sqrt(2).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy import sparse

from ..runs.names import did_you_mean
from .attribute_declarations import CodeRange, Where

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


TOTAL = "total"
DETAILED = "detailed"


@lru_cache(maxsize=4096)
def normalize_query_name(name: str) -> str:
    """The name as files spell it: factors in the given order, joined by ' * '.

    >>> normalize_query_name("sex*age")
    'sex * age'
    """
    return " * ".join(part.strip() for part in name.split("*"))


def in_schema_order(schema: Schema, name: str) -> str:
    """The normalised name with its factors in the order of the schema's attributes, which is the
    order of answers; names that `marginal_query` refuses are only normalised.
    """
    name = normalize_query_name(name)
    if name in (TOTAL, DETAILED):
        return name
    with suppress(ValueError):
        name = " * ".join(part for part, _, _ in label_parts(schema, name))
    return name


_FEW = 500
"""A query with as many rows for each of some cells is not gone through for theirs."""


@dataclass(frozen=True)
class MarginalQuery:
    """A query group: `factors[i]` gives the coarse level of each level of attribute i.

    Attributes that the query sums over have a factor of zeros.
    """

    name: str
    factors: tuple[tuple[int, ...], ...]

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Size of each factor's range; 1 where the attribute is summed over."""
        return tuple(max(factor) + 1 for factor in self.factors)

    @cached_property
    def n_rows(self) -> int:
        """Number of answers."""
        return math.prod(self.shape)

    @cached_property
    def row_of_cell(self) -> np.ndarray:
        """Row that counts each cell, shape `(n_cells,)`."""
        rows = np.zeros(1, dtype=np.int64)
        for factor, size in zip(self.factors, self.shape, strict=True):
            rows = (rows[:, None] * size + np.asarray(factor, dtype=np.int64)).ravel()
        rows.setflags(write=False)
        return rows

    def rows_of(self, cells: np.ndarray) -> np.ndarray:
        """Rows, ascending, that count any of some cells, which are numbers or a mask."""
        rows = self.row_of_cell[cells]
        if rows.size * _FEW < self.n_rows:
            return np.unique(rows)
        is_met = np.zeros(self.n_rows, dtype=bool)  # For many cells faster than sorting their rows.
        is_met[rows] = True
        return np.flatnonzero(is_met)

    @cached_property
    def matrix(self) -> sparse.csr_array:
        """The 0/1 matrix Q, shape `(n_rows, n_cells)`."""
        return incidence(self.row_of_cell, self.n_rows)

    def answer(self, histograms: np.ndarray) -> np.ndarray:
        """Answers Qx of histograms of shape `(n, n_cells)`, shape `(n, n_rows)`."""
        cube = np.asarray(histograms).reshape(len(histograms), *map(len, self.factors))
        for axis, (factor, size) in enumerate(zip(self.factors, self.shape, strict=True), 1):
            if size == 1:
                cube = cube.sum(axis=axis, keepdims=True)
            elif size < len(factor):
                coarse = np.zeros((*cube.shape[:axis], size, *cube.shape[axis + 1 :]), cube.dtype)
                np.add.at(np.moveaxis(coarse, axis, 0), list(factor), np.moveaxis(cube, axis, 0))
                cube = coarse
        return cube.reshape(len(histograms), self.n_rows)

    def refines(self, coarser: MarginalQuery) -> bool:
        """Whether every row of this query is within one row of `coarser`.

        Rows are products of levels of the attributes, so that it suffices to compare each
        attribute.
        """
        return all(
            len(set(zip(own, other, strict=True))) == size
            for own, other, size in zip(self.factors, coarser.factors, self.shape, strict=True)
        )


@lru_cache(maxsize=32)
def marginal_query(schema: Schema, name: str) -> MarginalQuery:
    """The query of that name: `total`, `detailed`, attributes or coarsenings joined by `*`.

    Raises ValueError for a factor that is neither an attribute of the schema nor a coarsening of
    one, or for two factors on one attribute.
    """
    name = normalize_query_name(name)
    factors = {a: (0,) * n for a, n in zip(schema.attributes, schema.shape, strict=True)}
    if name == DETAILED:
        factors = {a: schema.grouping(a).groups for a in schema.attributes}
    elif name != TOTAL:
        used = set()
        for part in name.split(" * "):
            if not has_attributes(schema, [part]):
                raise ValueError(
                    f"unknown query {name!r}: {part!r} is no attribute of the schema of "
                    f"{schema.universe} ({', '.join(schema.attributes)}) nor a coarsening of one"
                    f"{did_you_mean(part, schema.known_names)}"
                )
            grouping = schema.grouping(part)
            if grouping.attribute in used:
                raise ValueError(f"query {name!r} names attribute {grouping.attribute!r} twice")
            used.add(grouping.attribute)
            factors[grouping.attribute] = grouping.groups
    return MarginalQuery(name, tuple(factors[attribute] for attribute in schema.attributes))


def queries_are_nested(queries: Iterable[MarginalQuery]) -> bool:
    """Whether each query refines the one before it, so that their rows form a tree."""
    ordered = list(queries)
    return all(finer.refines(coarser) for coarser, finer in zip(ordered, ordered[1:], strict=False))


def has_attributes(schema: Schema, names: Iterable[str]) -> bool:
    """Whether a schema has all these attributes, or coarsenings of its attributes."""
    return all(name in schema.attributes or schema.coarsening(name) for name in names)


def label_parts(schema: Schema, name: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Factors of a query: name of the attribute or coarsening, attribute, and its labels, in the
    order of the schema's attributes.
    """
    if name == TOTAL:
        return []
    if name == DETAILED:
        return [(a, a, schema.labels(a)) for a in schema.attributes]
    found = {}
    for part in marginal_query(schema, name).name.split(" * "):
        grouping = schema.grouping(part)
        found[grouping.attribute] = (part, grouping.attribute, grouping.levels)
    return [found[attribute] for attribute in schema.attributes if attribute in found]


def incidence(number: np.ndarray, n: int) -> sparse.csr_array:
    """The 0/1 matrix `(n, len(number))` whose product with values adds them up by row; `number` is
    the row that each one is in, -1 for none."""
    inside = np.flatnonzero(number >= 0)
    ones = np.ones(inside.size, dtype=np.int64)
    return sparse.csr_array((ones, (number[inside], inside)), (n, len(number)))


def rows_where(schema: Schema, name: str, where: Where) -> np.ndarray:
    """Row of a query that counts each cell among `where`, `(n_cells,)`; -1 for other cells."""
    return np.where(schema.cells_where(where), marginal_query(schema, name).row_of_cell, -1)


def counted_rows(
    schema: Schema, other_schema: Schema, name: str, where: Where, of: Where
) -> sparse.csr_array:
    """`rows_that_count` as a 0/1 matrix `(other_schema.n_cells, n_rows)`; raises as that does."""
    row = rows_that_count(schema, other_schema, name, where, of)
    return sparse.csr_array(incidence(row, marginal_query(schema, name).n_rows).T)


def rows_that_count(
    schema: Schema, other_schema: Schema, name: str, where: Where, of: Where
) -> np.ndarray:
    """Row of a query of `schema` that counts each cell among `of` of `other_schema`:
    `(other_schema.n_cells,)`, -1 for other cells.

    Levels are matched by their labels, in any order; among the cells `where` of the query and those
    that are counted there must be the same. Raises ValueError, as a clause about the owner of the
    other schema, if it lacks the query's attributes and coarsenings under these names or has other
    levels.
    """
    query = marginal_query(schema, name)
    inside = query.rows_of(schema.cells_where(where)) if where else None
    counted = np.flatnonzero(other_schema.cells_where(of))
    row = np.zeros((1,) * len(other_schema.shape), dtype=np.int64)
    steps = np.cumprod([1, *query.shape[:0:-1]])[::-1]
    for part, attribute, labels in label_parts(schema, name):
        if part not in other_schema.known_names:
            raise ValueError(f"lacks {part}; choose a query that it has")
        grouping, own = other_schema.grouping(part), schema.attributes.index(attribute)
        place = other_schema.attributes.index(grouping.attribute)
        theirs, groups = grouping.levels, np.array(grouping.groups)
        occurring, wanted = set(theirs), set(labels)
        if of:
            at = np.unique(np.unravel_index(counted, other_schema.shape)[place])
            occurring = {theirs[group] for group in groups[at].tolist()}
        if inside is not None:
            wanted = {labels[i] for i in np.unravel_index(inside, query.shape)[own].tolist()}
        if occurring != wanted:
            raise ValueError(
                f"has other levels of {part}, such as {min(occurring ^ wanted)!r}; declare the "
                "same levels, or a coarsening that has them"
            )
        number = np.array([labels.index(one) if one in wanted else 0 for one in theirs])
        shape = [1] * len(other_schema.shape)
        shape[place] = -1
        row = row + number[groups].reshape(shape) * steps[own]
    row_of_cell = np.full(other_schema.n_cells, -1)
    row_of_cell[counted] = np.broadcast_to(row, other_schema.shape).ravel()[counted]
    return row_of_cell

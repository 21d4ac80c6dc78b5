"""What the accuracy of a release is measured on: counts that its readers use.

Each answer counts the cells of a schema whose attributes take some levels; a quantity is a group of
answers that are reported together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import sparse

from ....census.cef_2020 import CENSUS
from ....census.census import Census
from ....census.declarations import GroupDeclaration, QuantityDeclaration
from ....census.queries import TOTAL, label_parts, marginal_query, tells
from ....census.schema import Schema

MOST_ANSWERS = 100
"""Most answers of a measured query that is reported of where no quantities are declared."""

Where = Mapping[str, Sequence[int]]
"""Levels that each attribute may take; attributes left out may take any."""


@dataclass(frozen=True)
class Answer:
    """One count: its label, and the cells it counts."""

    label: str
    where: Where


@dataclass(frozen=True)
class Quantity:
    """Answers of one universe that are reported together."""

    name: str
    answers: tuple[Answer, ...]
    meaning: str = ""


def answer_matrix(answers: Sequence[Answer], schema: Schema) -> sparse.csr_array:
    """The 0/1 matrix that turns histograms into answers, shape `(n_cells, n_answers)`."""
    cells = [np.flatnonzero(schema.cells_where(answer.where)) for answer in answers]
    column = np.repeat(np.arange(len(cells)), [own.size for own in cells])
    ones = np.ones(column.size, dtype=np.int64)
    return sparse.csr_array((ones, (np.concatenate(cells), column)), (schema.n_cells, len(cells)))


def quantities_of(
    schema: Schema, census: Census = CENSUS, queries: Sequence[str] = ()
) -> tuple[Quantity, ...]:
    """The declared quantities that a schema tells.

    Of a census that declares none, the total and those of the `queries` that have few answers.
    """
    return tuple(
        Quantity(declared.name, _answers(declared, schema), declared.meaning)
        for declared in census.quantities or _of_queries(schema, (TOTAL, *queries))
        if declared.universe == schema.universe and tells(schema, (*declared.where, *declared.by))
    )


def redistricting_groups(schema: Schema, census: Census = CENSUS) -> dict[str, tuple[Answer, ...]]:
    """The groups that partition a population, by population, for the redistricting criterion.

    Empty if the census declares none, or the schema tells none of them.
    """
    declared = census.redistricting
    if declared is None or declared.universe != schema.universe:
        return {}
    groups = declared.groups
    needed = {name for g in groups for name in (*g.where, *((g.each,) if g.each else ()))}
    if not tells(schema, needed):
        return {}
    found = {}
    for population, where in declared.populations.items():
        if tells(schema, where):
            chosen = schema.positions(where)
            answers = (answer for group in groups for answer in _of_group(group, chosen, schema))
            found[population] = tuple(answers)
    return found


def _of_queries(schema: Schema, queries: Sequence[str]) -> Iterator[QuantityDeclaration]:
    """Quantities of the answers to those queries that have few, each told by what it keeps."""
    for query in (marginal_query(schema, name) for name in dict.fromkeys(queries)):
        if query.n_rows <= MOST_ANSWERS:
            by = tuple(part for part, _, _ in label_parts(schema, query.name))
            # A query's name may be longer than names that are declared.
            yield QuantityDeclaration.model_construct(
                name=query.name, universe=schema.universe, by=by
            )


def _answers(declared: QuantityDeclaration, schema: Schema) -> tuple[Answer, ...]:
    """The answers of a quantity: one, or one for each combination of levels."""
    where = schema.positions(declared.where)
    if not declared.by:
        return (Answer(declared.label, where),)
    axes = []
    for name in declared.by:
        wanted = schema.spelt_out(name, declared.where.get(name, schema.grouping(name).levels))
        axes.append([(name, level) for level in wanted])
    answers = []
    for chosen in product(*axes):
        of_levels = schema.positions({name: (level,) for name, level in chosen})
        label = ", ".join(str(level) for _, level in chosen)
        answers.append(Answer(label, _both(where, of_levels)))
    return tuple(answers)


def _of_group(group: GroupDeclaration, population: Where, schema: Schema) -> Iterator[Answer]:
    where = _both(population, schema.positions(group.where))
    if group.each is None:
        yield Answer(group.label, where)
        return
    for level in schema.grouping(group.each).levels:
        of_level = schema.positions({group.each: (level,)})
        yield Answer(level, _both(where, of_level))


def _both(first: Where, second: Where) -> Where:
    """The levels that two conditions both allow."""
    found = dict(first)
    for attribute, levels in second.items():
        allowed = found.get(attribute, levels)
        found[attribute] = tuple(level for level in levels if level in allowed)
    return found

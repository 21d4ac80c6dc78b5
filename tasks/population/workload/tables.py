"""The tables that moves bring nearer to the releases, and how much each counts in which areas.

They are declared queries: the finest ones, parts of these, and coarse ones that a move may also
change. Every record is in one row of each table. A row of a population may have more records or
fewer than were released; the objective is the weighted sum of these absolute differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from ...census.queries import Schema, marginal_query
from . import household_types, person_levels

STATE, COUNTY, TRACT, BLOCK_GROUP, BLOCK = range(5)
"""Kinds of areas, from the largest to the smallest."""

_FINEST = (10, 5, 0, 0, 2)
"""By kind of area; sums of whole numbers are exact. In tracts and block groups most rows of a
finest query are noise, and no guide while blocks are made; in a block they show which records need
no exchange."""
_PART = (10, 5, 0, 0, 0)
"""Weights of a part of the finest query: where it is met, rows that lack records are next to rows
with too many.
"""
_COARSE = (40, 40, 40, 20, 10)
"""Weights of coarse tables, unless `weights_of` states others."""
_LIGHT = (20, 10, 10, 5, 5)
"""Weights of rows that only the finest query informs, with more noise than coarse queries."""

_TIMES = {
    "partner_type_detailed_own_child_status * sex * hhtenshort_2lev": 2.4,
    "relgq * sex": 1.8,
    "hhtenshort_2lev * size": 0.5,
    "hisp * race * hhtenshort_2lev": 0.6,
    "multig * hisp * hhtenshort_2lev": 0.8,
}
"""Factors of coarse tables that few moves bring nearer, and of some that are nearer to the truth
than their release anyway."""
_FINE = 3, 20
"""Weight of a difference in tracts in tables of persons, and of households, that are not coarse."""


_PERSONS = {
    "relgq * age_40_groups * hispanic * {race} * sex": _FINEST,
    "relgq * age_40_groups * sex": _PART,
    "relgq * sex": _COARSE,
    "age * sex": _COARSE,
    "hispanic * sex": _COARSE,
}
_HOUSEHOLDS = {
    "sex * hisp * hhtenshort_3lev * race * hhage * DetailedCoupleTypeMultGenDetOwnChildSize": (
        _FINEST
    ),
    "hhtenshort_3lev * hhage * DetailedCoupleTypeMultGenDetOwnChildSize": _PART,
    "sex * hisp * hhtenshort_3lev * race * DetailedCoupleTypeMultGenDetOwnChildSize": _PART,
    "hhtenshort_2lev * size": _COARSE,
    "hisp * race * hhtenshort_2lev": _COARSE,
    "coupled_hh_type * hisp * hhtenshort_2lev": _COARSE,
    "multig * hisp * hhtenshort_2lev": _COARSE,
    "partner_type_detailed_own_child_status * sex * hhtenshort_2lev": _COARSE,
    "elderly": _LIGHT,
}
"""By universe, coarse tables last."""


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of a universe.

    names : of the queries.
    part : (n_tables, n_attributes, n_levels) the increment of each level of each attribute to the
        number of a record's row; rows of all tables are numbered through.
    weight : (n_tables, 5) the weight of a record too many or too few in a row, by kind of area.
    first_rows : (n_tables + 1,) the first row of each table, and the number of all.
    n_fine : tables before the coarse ones.
    """

    names: tuple[str, ...]
    part: np.ndarray
    weight: np.ndarray
    first_rows: np.ndarray
    n_fine: int

    @property
    def n_rows(self) -> int:
        """Rows of all tables."""
        return int(self.first_rows[-1])


@cache
def person_tables() -> Tables:
    """The tables of persons."""
    schema = person_levels.universe().schema
    race = schema.attributes[person_levels.RACE]
    return _tables(schema, {name.format(race=race): own for name, own in _PERSONS.items()})


@cache
def household_tables() -> Tables:
    """The tables of households."""
    return _tables(household_types.universe().schema, _HOUSEHOLDS)


def weights_of(turn: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Weight of a difference `(n_tables, 5)` in the tables of persons and of households: in
    coarse ones by the weights of a turn, as many times as each counts more or less than most."""
    found = []
    for tables, in_tracts in zip((person_tables(), household_tables()), _FINE, strict=True):
        weights, usual = tables.weight.copy(), tables.weight[:, STATE].max()
        weights[: tables.n_fine, TRACT] = in_tracts
        for table in range(tables.n_fine, len(weights)):
            times = _TIMES.get(tables.names[table], 1.0) * weights[table, STATE]
            weights[table] = np.array(turn) * times // usual
        found.append(weights)
    return found[0], found[1]


def _tables(schema: Schema, weights: Mapping[str, tuple[int, ...]]) -> Tables:
    queries = [marginal_query(schema, name) for name in weights]
    part = np.zeros((len(queries), len(schema.shape), max(schema.shape)), dtype=np.int64)
    first_rows = np.cumsum([0, *(query.n_rows for query in queries)])
    for own, first, query in zip(part, first_rows[:-1], queries, strict=True):
        stride = query.n_rows
        for of_attribute, factor, size in zip(own, query.factors, query.shape, strict=True):
            stride //= size
            of_attribute[: len(factor)] = stride * np.array(factor)
        own[0] += first
    n_fine = [weight == _COARSE for weight in weights.values()].index(True)
    return Tables(tuple(weights), part, np.array(list(weights.values())), first_rows, n_fine)

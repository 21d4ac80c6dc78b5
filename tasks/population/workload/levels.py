"""What households are counted by, as their members tell it: the declared recodes, on columns that
are made from members.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ...census.households import Members, unit_columns
from ...tables.columns import CodedColumn
from .household_types import AGE, ELDERLY, ORIGIN, RACE, SEX, TYPE, possible, universe

DERIVED = (SEX, AGE, ORIGIN, RACE, ELDERLY, TYPE)
"""Attributes of households that members tell; the tenure is none of them."""
_LARGEST = {"P18": 99, "P60": 99, "P65": 99, "P75": 99}
"""What columns of two digits can say."""
_N_RACES = 63
"""Combinations of races."""


def household_levels(members: Members, n_units: int) -> np.ndarray:
    """Level of each household in the attributes of `DERIVED` `(6, n_units)`, -1 for none."""
    made = {
        name: np.minimum(values, _LARGEST.get(name, values))
        for name, values in unit_columns(members, n_units).items()
    }
    columns = {name: _coded(values) for name, values in made.items()}
    declared = universe()
    return np.stack(
        [
            declared.recodes[declared.schema.attributes[axis]].evaluate(columns, n_units)
            for axis in DERIVED
        ]
    ).astype(np.int64)


def are_possible(levels: np.ndarray) -> np.ndarray:
    """Whether households `(6, n)` of `household_levels` are of a type that there is, and in no
    structural zero."""
    sex, age, _, _, elderly, kind = levels
    is_whole = (levels >= 0).all(axis=0)
    return is_whole & possible()[sex, age, elderly, kind]


def head_races(race: np.ndarray) -> np.ndarray:
    """The level of race that a householder of each combination of races is counted by."""
    return _head_races()[race]


@cache
def _head_races() -> np.ndarray:
    """That level of each combination, 0 being none."""
    declared = universe()
    recode = declared.recodes[declared.schema.attributes[RACE]]
    (name,) = recode.columns
    race = np.arange(_N_RACES + 1)
    return recode.evaluate({name: _coded(race)}, len(race)).astype(np.int64)


def _coded(values: np.ndarray) -> CodedColumn:
    distinct, codes = np.unique(values, return_inverse=True)
    return CodedColumn(codes.reshape(-1), tuple(str(value) for value in distinct))

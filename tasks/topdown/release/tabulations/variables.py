"""The variables of the redistricting tables: which cells of a schema each one counts.

P1 race; P2 Hispanic or Latino, and not Hispanic or Latino by race; P3 and P4 the same for the
population of voting age; P5 group quarters by major type; H1 occupancy status. A variable is named
as in the public tables: P0010001 is the first of P1.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy import sparse
from spineflow.tasks.census.schema import Schema

ADULT_AGE = 18
N_RACES = 6
RACE_COMBINATIONS = tuple(
    chosen for size in range(1, N_RACES + 1) for chosen in combinations(range(N_RACES), size)
)
"""Races of each level of `cenrace`; 0 white, 1 black, 2 American Indian and Alaska Native, 3 Asian,
4 Native Hawaiian and other Pacific Islander, 5 some other race."""

INSTITUTIONAL, NONINSTITUTIONAL = range(1, 5), range(5, 8)
"""Levels of `hhgq` of each kind of group quarters."""

PERSON_TABLES = ("P1", "P2", "P3", "P4", "P5")
UNIT_TABLES = ("H1",)

_NEEDS = {
    "P1": ("cenrace",),
    "P2": ("cenrace", "hispanic"),
    "P3": ("cenrace", "votingage"),
    "P4": ("cenrace", "hispanic", "votingage"),
    "P5": ("hhgq",),
    "H1": ("occupancy",),
}
"""Attributes that a schema needs for each table; ages tell who is of voting age, too."""


def variable_name(table: str, number: int) -> str:
    """The public name of a variable, numbered from 1.

    >>> variable_name("P5", 10)
    'P0050010'
    """
    return f"{table[0]}{int(table[1:]):03d}{number:04d}"


def tables_of(schema: Schema) -> tuple[str, ...]:
    """The tables that can be counted from a schema."""
    has = set(schema.attributes) | ({"votingage"} if "age" in schema.attributes else set())
    tables = PERSON_TABLES if schema.universe == "persons" else UNIT_TABLES
    return tuple(table for table in tables if has.issuperset(_NEEDS[table]))


def variables_of(schema: Schema) -> tuple[str, ...]:
    """Names of all variables that can be counted from a schema, in the order of the tables."""
    return tuple(
        variable_name(table, number + 1)
        for table in tables_of(schema)
        for number in range(len(_cells(table, schema)))
    )


def variable_matrix(schema: Schema) -> sparse.csr_array:
    """The 0/1 matrix that turns histograms into tables, shape `(n_cells, n_variables)`.

    `histograms @ variable_matrix(schema)` has a row for each histogram and a column for each of
    `variables_of(schema)`.
    """
    masks = [mask for table in tables_of(schema) for mask in _cells(table, schema)]
    return sparse.csr_array(np.array(masks, dtype=np.int64).reshape(-1, schema.n_cells).T)


def _cells(table: str, schema: Schema) -> list[np.ndarray]:
    """Masks `(n_cells,)` of the cells that each variable of a table counts."""
    everyone = np.ones(schema.n_cells, dtype=bool)
    if table in ("P3", "P4"):
        everyone = _is_adult(schema)
    if table in ("P1", "P3"):
        return [everyone, *_by_race(everyone, schema)]
    if table in ("P2", "P4"):
        is_hispanic = schema.levels("hispanic") == 1
        not_hispanic = everyone & ~is_hispanic
        return [everyone, everyone & is_hispanic, not_hispanic, *_by_race(not_hispanic, schema)]
    if table == "P5":
        hhgq = schema.levels("hhgq")
        masks = []
        for kind in (INSTITUTIONAL, NONINSTITUTIONAL):
            masks += [np.isin(hhgq, kind), *(hhgq == level for level in kind)]
        return [hhgq > 0, *masks]
    is_occupied = schema.levels("occupancy") == 1
    return [everyone, is_occupied, ~is_occupied]


def _by_race(everyone: np.ndarray, schema: Schema) -> list[np.ndarray]:
    """Those of one race, of each race alone, of two or more races, and of each combination."""
    cenrace = schema.levels("cenrace")
    n_races = np.array([len(races) for races in RACE_COMBINATIONS])[cenrace]
    masks = [everyone & (n_races == 1)]
    masks += [everyone & (cenrace == race) for race in range(N_RACES)]
    masks.append(everyone & (n_races > 1))
    for size in range(2, N_RACES + 1):
        masks.append(everyone & (n_races == size))
        masks += [
            everyone & (cenrace == level)
            for level, races in enumerate(RACE_COMBINATIONS)
            if len(races) == size
        ]
    return masks


def _is_adult(schema: Schema) -> np.ndarray:
    if "votingage" in schema.attributes:
        return schema.levels("votingage") == len(schema.labels("votingage")) - 1
    return schema.levels("age") >= ADULT_AGE

"""The variables of the redistricting tables: which cells of a schema each one counts.

The tables are those that the census declares with `rows`. A variable is named as in the public
tables: P0010001 is the first of P1.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ....census.cef_2020 import CENSUS
from ....census.declarations import TableDeclaration
from ....census.queries import tells
from ....census.schema import Schema
from ....census.table_variables import names_of_table, table_cells


def variable_name(table: str, number: int) -> str:
    """The public name of a variable, numbered from 1.

    >>> variable_name("P5", 10)
    'P0050010'
    """
    return f"{table[0]}{int(table[1:]):03d}{number:04d}"


def tables_of(schema: Schema) -> tuple[str, ...]:
    """The tables that can be counted from a schema."""
    return tuple(table.name for table in _tables(schema))


@lru_cache(maxsize=4)
def variables_of(schema: Schema) -> tuple[str, ...]:
    """Names of all variables that can be counted from a schema, in the order of the tables."""
    return tuple(
        variable_name(table.name, number + 1)
        for table in _tables(schema)
        for number in range(len(table_cells(table, schema)))
    )


@lru_cache(maxsize=4)
def variable_matrix(schema: Schema) -> np.ndarray:
    """The 0/1 matrix that turns histograms into tables, shape `(n_cells, n_variables)`.

    `histograms @ variable_matrix(schema)` has a row for each histogram and a column for each of
    `variables_of(schema)`.
    """
    masks = [mask for table in _tables(schema) for mask in table_cells(table, schema)]
    matrix = np.array(masks, dtype=np.int64).reshape(-1, schema.n_cells).T
    return np.ascontiguousarray(matrix)


def _tables(schema: Schema) -> list[TableDeclaration]:
    """The declared tables of a schema's universe whose attributes it has."""
    return [
        table
        for table in CENSUS.tables
        if table.universe == schema.universe and tells(schema, names_of_table(table))
    ]

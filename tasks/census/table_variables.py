"""Variables of tables that rows of conditions declare, such as the redistricting tables."""

from __future__ import annotations

import numpy as np

from .declarations import TableDeclaration
from .queries import marginal_query
from .schema import Schema


def names_of_table(table: TableDeclaration) -> set[str]:
    """Attributes and coarsenings that a table of variables needs."""
    names = set(table.where) | {name for rows in table.rows for name in rows.where}
    return names | {rows.each for rows in table.rows if rows.each}


def table_variables(table: TableDeclaration, schema: Schema) -> list[tuple[str, np.ndarray]]:
    """The variables of a table in their order: what each counts in words, and the mask `(n_cells,)`
    of its cells.

    Example of words: "adult: adult; sex: male", and "all records" where there is no condition.
    """
    everyone = schema.cells_where(table.where)
    found = []
    for rows in table.rows:
        inside = everyone & schema.cells_where(rows.where)
        conditions = [f"{name}: {', '.join(map(str, v))}" for name, v in rows.where.items()]
        if rows.each is None:
            found.append(("; ".join(conditions) or "all records", inside))
            continue
        levels = schema.grouping(rows.each).levels
        row_of_cell = marginal_query(schema, rows.each).row_of_cell
        for row in np.unique(row_of_cell[inside]).tolist():
            label = "; ".join([*conditions, f"{rows.each}: {levels[row]}"])
            found.append((label, inside & (row_of_cell == row)))
    return found


def table_cells(table: TableDeclaration, schema: Schema) -> list[np.ndarray]:
    """Masks `(n_cells,)` of the cells that each variable of a table counts, in their order."""
    return [mask for _, mask in table_variables(table, schema)]

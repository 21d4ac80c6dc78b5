"""The rows of tables T03001 to T03004 and T04001, T04002 of households, as columns.

A group's table shows some categories: those that were measured, and sums of these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...tables.columns import coded_texts
from ..postprocess.groups import CODE, codes_of, counts_of
from ..workload.tabulations import HouseholdTabulation
from .count_margins import CountNoise
from .tables import NAMED, GroupNames, named_columns, of_group

TIDY = pa.schema(
    [
        *NAMED,
        ("table", CODE),
        ("category_code", pa.int8()),
        ("category", CODE),
        ("count", pa.int64()),
        ("variance", pa.float64()),
        ("margin", pa.int32()),
        ("margin_if_cut", pa.int32()),
    ]
)
"""Columns of the tidy file: `category_code` is that of the text files, `variance` that of the noise
in the count, `margin` the smallest number that the noise stays within with the probability that was
asked for, and `margin_if_cut` one that holds whatever counts below 0 became 0 before they were
added."""


@dataclass(frozen=True)
class CategoryRows:
    """One row for each released count; arrays of shape (n_rows,).

    `group` is the position of the count's group, `code` that of its category, and `n_cells` the
    number of noisy counts that `count` is the sum of.
    """

    group: np.ndarray
    code: np.ndarray
    count: np.ndarray
    n_cells: np.ndarray


def category_rows(
    groups: pa.Table, tabulation: HouseholdTabulation, *, allow_negative_counts: bool
) -> CategoryRows:
    """All rows of some groups, group after group, each in the order of its categories' codes.

    `groups` has the columns `MEASURED`. Negative counts become 0 before they are summed, unless
    they are allowed.
    """
    table = groups["table"].to_numpy()
    counts, offsets = counts_of(groups)
    if not allow_negative_counts:
        counts = np.maximum(counts, 0)
    n_rows = np.array([len(shown) for shown in tabulation.shown])[table]
    first, n = np.cumsum(n_rows) - n_rows, int(n_rows.sum())
    rows = CategoryRows(
        np.repeat(np.arange(table.size), n_rows),
        np.empty(n, dtype=np.int8),
        np.empty(n, dtype=np.int64),
        np.empty(n, dtype=np.int16),
    )
    for number, shown in enumerate(tabulation.shown):
        members = np.flatnonzero(table == number)
        sums = np.stack([tabulation.cells_in(number, code) for code in shown]).astype(np.int64)
        cells = counts[offsets[members][:, None] + np.arange(sums.shape[1])]
        where = first[members][:, None] + np.arange(len(shown))
        rows.count[where] = cells @ sums.T
        rows.code[where] = shown
        rows.n_cells[where] = sums.sum(axis=1)
    return rows


def text_rows(groups: pa.Table, tabulation: HouseholdTabulation, rows: CategoryRows) -> pa.Table:
    """Rows of the production program's file: REGION_ID, REGION_TYPE, ITERATION_CODE, the
    tabulation's DATA_CELL, COUNT.
    """
    keys = ("region_id", "region_type", "iteration_code")
    columns = {name.upper(): of_group(groups[name], rows.group) for name in keys}
    columns[data_cell(tabulation)] = pa.array(rows.code)
    return pa.table({**columns, "COUNT": pa.array(rows.count)})


def data_cell(tabulation: HouseholdTabulation) -> str:
    """Name of the column of categories in the text file of a tabulation."""
    return f"{tabulation.name.upper()}_DATA_CELL"


def tidy_rows(
    groups: pa.Table,
    tabulation: HouseholdTabulation,
    rows: CategoryRows,
    names: GroupNames,
    noise: CountNoise,
) -> pa.Table:
    """One row for each released count with names and margins, columns `TIDY`."""
    table = groups["table"].to_numpy()[rows.group]
    columns, level_of_row = named_columns(groups, rows.group, names)
    place, places = codes_of(groups, "region_type")
    margin, margin_if_cut = noise.margins(
        (place[rows.group], places),
        level_of_row,
        np.zeros(rows.group.size, dtype=bool),
        rows.n_cells,
    )
    variance = groups["variance"].to_numpy()[rows.group] * rows.n_cells
    return pa.table(
        {
            **columns,
            "table": coded_texts(table, list(tabulation.names)),
            "category_code": pa.array(rows.code),
            "category": coded_texts(rows.code, [one.name for one in tabulation.categories]),
            "count": pa.array(rows.count),
            "variance": pa.array(variance),
            "margin": pa.array(margin),
            "margin_if_cut": pa.array(margin_if_cut),
        }
    ).select(TIDY.names)

"""The files of a release of households: t3.csv and t4.csv in the production layout, and one tidy
Parquet file.

Layout, order, memory and stamp are those of the files of persons. The rows are those of tables
T03001 to T03004 and T04001, T04002; a group's table shows some categories: those that were
measured, and sums of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...runs.directory import RunDirectory
from ...runs.files import replacing
from ...runs.stamps import stamp
from ...tables.columns import coded_texts
from ..ingest.household_ingest import run_parameters
from ..paths import household_folder
from ..postprocess.groups import CODE, MEASURED, counts_of, read_groups
from ..settings import DetailedHouseholdsSettings
from ..workload.households import HouseholdParameters
from ..workload.tabulations import HouseholdTabulation
from .count_margins import CountNoise, count_noise_of
from .files import append_rows, begin_text, names_of, slices
from .tables import COUNTED, NAMED, GroupNames, count_columns, production_keys

TIDY_FILE = "detailed_households.parquet"


TIDY = pa.schema(
    [
        *NAMED,
        ("table", CODE),
        ("category_code", pa.int8()),
        ("category", CODE),
        *COUNTED,
    ]
)
"""Columns of the tidy file: `category_code` is that of the text files."""


def measured_groups(
    run: RunDirectory, parameters: HouseholdParameters, name: str
) -> Iterator[tuple[str, int, pa.Table]]:
    """Region type, level and measured groups, columns `MEASURED`, of every level of a
    tabulation that has any.
    """
    for level in parameters.of[name].budgets:
        files = sorted(household_folder(run, name, *level).glob("*.parquet"))
        if files:
            yield *level, read_groups(files, MEASURED)


def write_run_release(run: RunDirectory, settings: DetailedHouseholdsSettings) -> None:
    """Write the release's files where they are checked before they are released."""
    parameters, names, folder = run_parameters(run, settings), names_of(run), run.unchecked_release
    is_private = settings.is_private
    schema = TIDY.with_metadata(stamp(is_private=is_private))
    with (
        replacing(folder / TIDY_FILE) as path,
        pq.ParquetWriter(path, schema, compression="zstd", compression_level=1) as tidy,
    ):
        for tabulation, own in parameters.tables():
            noise = count_noise_of(run, own, settings.mechanism.coverage)
            columns = ("REGION_ID", "REGION_TYPE", "ITERATION_CODE", data_cell(tabulation), "COUNT")
            with replacing(folder / f"{tabulation.name}.csv") as part, part.open("wb") as text:
                begin_text(text, columns, is_private=is_private)
                for _, _, measured in measured_groups(run, parameters, tabulation.name):
                    for groups in slices(measured):
                        rows = category_rows(
                            groups, tabulation, allow_negative_counts=own.allow_negative_counts
                        )
                        append_rows(text, text_rows(groups, tabulation, rows))
                        tidy.write_table(tidy_rows(groups, tabulation, rows, names, noise))


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
    of_rows = {data_cell(tabulation): pa.array(rows.code), "COUNT": pa.array(rows.count)}
    return pa.table({**production_keys(groups, rows.group), **of_rows})


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
    counted = count_columns(
        groups, rows.group, rows.count, rows.n_cells, names, noise, measured_at="region_type"
    )
    return pa.table(
        {
            **counted,
            "table": coded_texts(table, list(tabulation.names)),
            "category_code": pa.array(rows.code),
            "category": coded_texts(rows.code, [one.name for one in tabulation.categories]),
        }
    ).select(TIDY.names)

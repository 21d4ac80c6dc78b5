"""The margins of a release: an interval of counts for every cell of every table that has them.

Margins stand beside a table, as `<table>_margins`, in the same rows and order. Variables that are
columns have two columns of their own, with `_LOWER` and `_UPPER`; of a table whose answers are
rows, the column `count` has `lower` and `upper`. Tables may be larger than memory: both files are
read some rows at a time.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..outcome import Failures, Outcome
from .table_rows import wide_batches

MARGINS = "margins_are_intervals_of_every_cell"
RELEASE = "release"
_SUFFIX = "_margins"
_COUNT = "count"


def check_margins(directory: Path) -> Outcome:
    """Check the margins of all tables below a release directory; there must be some."""
    failures, n_files = Failures(), 0
    for margins in sorted((directory / "tables").glob(f"*{_SUFFIX}.parquet")):
        table = margins.with_name(margins.name.replace(_SUFFIX, ""))
        n_files += 1
        if not table.is_file():
            failures.add(f"{margins.name} stands beside no table")
        elif not margins.with_suffix(".csv").is_file():
            failures.add(f"{margins.name} has no text beside it")
        else:
            _check(table, margins, failures)
    if not n_files:
        failures.add("the tables have no margins")
    return failures.outcome(MARGINS, RELEASE, f"{n_files} tables, cell by cell")


def _check(table: Path, margins: Path, failures: Failures) -> None:
    with pq.ParquetFile(table) as cells, pq.ParquetFile(margins) as ends:
        schema = cells.schema_arrow
        counted = [field.name for field in schema if pa.types.is_integer(field.type)]
        codes = [name for name in schema.names if name not in counted]
        pairs = {name: (f"{name}_LOWER", f"{name}_UPPER") for name in counted}
        if counted == [_COUNT]:
            pairs = {_COUNT: ("lower", "upper")}
        if ends.schema_arrow.names != [*codes, *(end for pair in pairs.values() for end in pair)]:
            failures.add(f"{margins.name} does not have two columns for each of {table.name}")
            return
        if ends.metadata.num_rows != cells.metadata.num_rows:
            failures.add(f"{margins.name} does not have the rows of {table.name}")
            return
        for shown, interval in zip(wide_batches(cells, codes), wide_batches(ends), strict=True):
            plain = pa.schema([(field.name, _plain(field.type)) for field in shown.schema])
            if not shown.cast(plain).equals(interval.select(codes).cast(plain)):
                failures.add(f"{margins.name} does not have the rows of {table.name}")
                return
            # Whole numbers as they are where none is missing.
            is_missing = any(interval[end].null_count for pair in pairs.values() for end in pair)
            lower, upper = (
                interval.select([pair[end] for pair in pairs.values()])
                .to_tensor(null_to_nan=is_missing, row_major=False)
                .to_numpy()
                for end in (0, 1)
            )
            wrong = (lower > upper) | (lower < 0) | (np.isnan(lower) != np.isnan(upper))
            for name, n_wrong in zip(pairs, wrong.sum(axis=0).tolist(), strict=True):
                if n_wrong:
                    failures.add(
                        f"{name} has an interval in {margins.name} that ends before it begins or "
                        "begins below zero",
                        n_wrong,
                    )


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_dictionary(kind) else kind

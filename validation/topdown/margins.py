"""The margins of a release: an interval of counts for every cell of every table that has them.

Margins stand beside a table, as `<table>_margins`, in the same rows and order. Variables that are
columns have two columns of their own, with `_LOWER` and `_UPPER`; of a table whose answers are
rows, the column `count` has `lower` and `upper`. Tables may be larger than memory: both files are
read some rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..outcome import Failures, Outcome

MARGINS = "margins_are_intervals_of_every_cell"
RELEASE = "release"
_SUFFIX = "_margins"
_COUNT = "count"
_ROWS_PER_BATCH = 1 << 14


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
        counted = [f.name for f in cells.schema_arrow if pa.types.is_integer(f.type)]
        codes = [name for name in cells.schema_arrow.names if name not in counted]
        pairs = {name: (f"{name}_LOWER", f"{name}_UPPER") for name in counted}
        if counted == [_COUNT]:
            pairs = {_COUNT: ("lower", "upper")}
        if ends.schema_arrow.names != [*codes, *(end for pair in pairs.values() for end in pair)]:
            failures.add(f"{margins.name} does not have two columns for each of {table.name}")
            return
        if ends.metadata.num_rows != cells.metadata.num_rows:
            failures.add(f"{margins.name} does not have the rows of {table.name}")
            return
        for shown, interval in zip(_batches(cells, codes), _batches(ends, None), strict=True):
            if not shown.equals(interval.select(codes).cast(shown.schema)):
                failures.add(f"{margins.name} does not have the rows of {table.name}")
                return
            for name, (low, high) in pairs.items():
                lower, upper = (_numbers(interval[end]) for end in (low, high))
                wrong = (lower > upper) | (lower < 0)
                if "f" in lower.dtype.kind + upper.dtype.kind:
                    wrong |= np.isnan(lower) != np.isnan(upper)
                if wrong.any():
                    failures.add(
                        f"{name} has an interval in {margins.name} that ends before it begins or "
                        "begins below zero",
                        int(wrong.sum()),
                    )


def _batches(file: pq.ParquetFile, columns: list[str] | None) -> Iterator[pa.Table]:
    """Rows by the same number in every file, texts plain."""
    # Hundreds of columns of few rows each: to hand them to threads takes longer than to read them.
    for batch in file.iter_batches(_ROWS_PER_BATCH, columns=columns, use_threads=False):
        table = pa.Table.from_batches([batch]).replace_schema_metadata(None)
        plain = [
            pa.field(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type)
            for f in table.schema
        ]
        yield table.cast(pa.schema(plain))


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Whole numbers as they are where none is missing, and else as floats, not a number where there
    is none."""
    if pa.types.is_integer(column.type) and not column.null_count:
        return column.to_numpy()
    return column.cast(pa.float64()).to_numpy()

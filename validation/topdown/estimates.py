"""The counts and answers of geounits: estimates are counts, and children add to their parents.

Files of a geolevel are read column by column and in batches; where a level is a part of its
geolevel, its geounits alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy import sparse

from ..outcome import Failures
from ..run_files import ROWS_PER_BATCH, UnusableRunFile, open_parquet, relative_path
from .spine import SpineLevel


def read_batches(
    folder: Path,
    columns: Sequence[str],
    *,
    as_dictionary: Sequence[str] = (),
    level: SpineLevel | None = None,
    rows_per_batch: int = ROWS_PER_BATCH,
) -> Iterator[pa.RecordBatch]:
    """The columns of all Parquet files of a folder, in batches; none if there is no file.

    If `level` is a part of its geolevel, only rows of its geounits, by the column geocode; row
    groups without such rows are not read. Raises UnusableRunFile for a file that is not Parquet,
    lacks a column or a value of one.
    """
    among = level if level is not None and level.is_part else None
    for path in sorted(folder.glob("*.parquet")):
        with open_parquet(path, columns, as_dictionary) as file:
            row_groups = list(range(file.num_row_groups))
            if among is not None:
                row_groups = row_groups_with(file, "geocode", among.has_between)
                if not row_groups:
                    continue
            for batch in file.iter_batches(
                batch_size=rows_per_batch,
                row_groups=row_groups,
                columns=list(columns),
                use_threads=file.metadata.num_rows > rows_per_batch,
            ):
                for name in columns:
                    if batch.column(name).null_count:
                        raise UnusableRunFile(f"a {name} in {relative_path(path)} is missing")
                if among is not None:
                    is_here = among.positions(batch.column("geocode")) >= 0
                    batch = batch if is_here.all() else batch.filter(pa.array(is_here))
                yield batch


def lengths_of_lists(numbers: pa.Array, what: str) -> np.ndarray:
    """Number of integers of each list, shape `(n,)`; raises UnusableRunFile, naming `what`, for
    columns that are no lists of integers and for a missing integer.
    """
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    is_list = any(is_kind(numbers.type) for is_kind in kinds)
    if not is_list or not pa.types.is_integer(numbers.type.value_type):
        raise UnusableRunFile(f"{what} are no lists of integers")
    if numbers.flatten().null_count:
        raise UnusableRunFile(f"of {what} one is missing")
    return pc.list_value_length(numbers).to_numpy(zero_copy_only=False).astype(np.int64)


def count_unknown(folder: Path, level: SpineLevel) -> int:
    """Count the rows of all Parquet files of a folder whose geocode is not of the geolevel."""
    n_unknown = 0
    for batch in read_batches(folder, ["geocode"]):
        n_unknown += int((level.positions(batch.column("geocode")) < 0).sum())
    return n_unknown


def row_groups_with(
    file: pq.ParquetFile, name: str, may_hold: Callable[[str, str], bool]
) -> list[int]:
    """The row groups of a file that may have the requested rows, by the lowest and the highest text
    of a column, where they have these statistics."""
    column, found = file.schema_arrow.names.index(name), []
    for group in range(file.num_row_groups):
        range_ = file.metadata.row_group(group).column(column).statistics
        if range_ is None or not range_.has_min_max or may_hold(range_.min, range_.max):
            found.append(group)
    return found


@dataclass(frozen=True)
class LevelEstimates:
    """The non-zero cells of one geolevel's estimates.

    `key = geounit position * n_cells + cell`, ascending and without repetition; `count` is the
    number of records, both int64 of shape `(n_nonzero,)`.
    """

    n_cells: int
    key: np.ndarray
    count: np.ndarray

    def part(self, geounits: np.ndarray) -> LevelEstimates:
        """Those of the geounits at these ascending positions, which are numbered from 0."""
        here = np.minimum(np.searchsorted(geounits, self.geounit), geounits.size - 1)
        kept = geounits[here] == self.geounit
        return LevelEstimates(
            self.n_cells, here[kept] * self.n_cells + self.cell[kept], self.count[kept]
        )

    @property
    def geounit(self) -> np.ndarray:
        """Position of each entry's geounit."""
        return self.key // self.n_cells

    @property
    def cell(self) -> np.ndarray:
        """Cell of each entry."""
        return self.key % self.n_cells

    def counts(self, n: int) -> sparse.csr_array:
        """The counts of n geounits, `(n, n_cells)`."""
        shape = n, self.n_cells
        return sparse.csr_array(sparse.coo_array((self.count, (self.geounit, self.cell)), shape))


def no_estimates(n_cells: int) -> LevelEstimates:
    """Estimates in which every cell is zero."""
    return LevelEstimates(n_cells, np.zeros(0, np.int64), np.zeros(0, np.int64))


def read_estimates(
    root: Path, universe: str, level: SpineLevel, n_cells: int, failures: Failures
) -> LevelEstimates:
    """Read the estimates of a geolevel or a part of one, and check that they are counts.

    Counts are positive integers, cells are in 0 .. n_cells - 1, geocodes are those of the spine,
    and each cell of a geounit appears once. Entries that break a rule are recorded and skipped
    (repeated ones are added up), so that the other checks can go on.

    Raises UnusableRunFile if there is no file, or a column has another type.
    """
    folder = root / "estimates" / universe / level.name
    if not any(folder.glob("*.parquet")):
        raise UnusableRunFile(f"there are no estimates at estimates/{universe}/{level.name}")
    keys, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for batch in read_batches(folder, ["geocode", "cell", "count"], level=level):
        for name in ("cell", "count"):
            column = batch.column(name)
            if not pa.types.is_integer(column.type):
                raise UnusableRunFile(
                    f"column {name} of estimates/{universe}/{level.name} is not of an integer type"
                )
        geounit = level.positions(batch.column("geocode"))
        cell = batch.column("cell").to_numpy().astype(np.int64)
        count = batch.column("count").to_numpy().astype(np.int64)
        is_cell = (cell >= 0) & (cell < n_cells)
        where = f"the estimates of {level.name}"
        failures.add_each(geounit < 0, f"{where} have a geocode outside the spine")
        failures.add_each(~is_cell, f"{where} have a cell outside the schema")
        failures.add_each(count < 1, f"{where} have a count below 1")
        valid = (geounit >= 0) & is_cell & (count >= 1)
        keys.append(geounit[valid] * n_cells + cell[valid])
        counts.append(count[valid])
    all_keys = np.concatenate(keys)
    key, count = sum_counts(all_keys, np.concatenate(counts))
    if key.size < all_keys.size:
        failures.add(
            f"the estimates of {level.name} hold a cell of a geounit twice",
            count=all_keys.size - key.size,
        )
    return LevelEstimates(n_cells, key, count)


def check_children_add_to_parents(
    parents: SpineLevel,
    parent_estimates: LevelEstimates,
    children: SpineLevel,
    child_estimates: LevelEstimates,
    failures: Failures,
) -> None:
    """In every cell, the estimates of a parent's children add to the parent's own."""
    n_cells = parent_estimates.n_cells
    child_key = children.parent[child_estimates.geounit] * n_cells + child_estimates.cell
    key, difference = sum_counts(
        np.concatenate([child_key, parent_estimates.key]),
        np.concatenate([child_estimates.count, -parent_estimates.count]),
    )
    failures.add_each(
        difference != 0,
        lambda i: (
            f"in cell {key[i] % n_cells} of {parents.describe(key[i] // n_cells)} "
            f"the children's sum is off by {difference[i]:+d}"
        ),
    )


def sum_counts(keys: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct keys, ascending, and the sum of each one's counts; fast for keys that ascend."""
    if not keys.size:
        return keys, counts
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    first = np.concatenate([[0], np.flatnonzero(keys[1:] != keys[:-1]) + 1])
    return keys[first], np.add.reduceat(counts, first)

"""Noisy measurements of a run over detailed groups: each group once, at its noise and its loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..outcome import Failures
from ..run_files import UnusableRunFile, opened, positions
from .privacy_loss import check_noise
from .tables import N_CELLS
from .universe import ExpectedLevel, ExpectedRun

ROWS_PER_BATCH = 1 << 18
CODED = ("region_type", "region_id", "iteration_code", "plb")
MEASURED = "detailed_groups"
COMPLETE, LOSS = "measurements_are_complete", "measured_loss_is_the_budget"
"""The checks of measurements themselves."""
COLUMNS = [
    "region_type",
    "region_id",
    "iteration_code",
    "table",
    "total_only",
    "value",
    "variance",
    "plb",
]


@dataclass
class GroupCounts:
    """Counts of all groups of a run, by the number of the group.

    `table`, `is_shown` and `source` have shape (n_groups,); the counts of group g are
    `cells[first_cell[g] : first_cell[g] + N_CELLS[table[g]]]`, and `source[g]` is the group that
    they were measured of.
    """

    table: np.ndarray
    first_cell: np.ndarray
    cells: np.ndarray
    is_shown: np.ndarray
    source: np.ndarray

    @property
    def totals(self) -> np.ndarray:
        """Sum of each group's counts, shape (n_groups,)."""
        sums = np.concatenate([[0], np.cumsum(self.cells)])
        return sums[self.first_cell + N_CELLS[self.table]] - sums[self.first_cell]


def read_measurements(
    run_directory: Path, expected: ExpectedRun, failures: Mapping[str, Failures]
) -> GroupCounts:
    """The measurements of all levels, checked on the way: every group of the universe was measured
    exactly once, and as `read_counts` says.
    """
    times, counts = read_counts(run_directory, MEASURED, expected, N_CELLS, failures)
    failures[COMPLETE].add_each(
        times != 1, lambda g: f"{expected.describe(g)} was measured {times[g]} times"
    )
    return counts


def read_counts(
    run_directory: Path,
    kind: str,
    expected: ExpectedRun,
    n_cells: np.ndarray,
    failures: Mapping[str, Failures],
    *,
    has_total_only: bool = True,
) -> tuple[np.ndarray, GroupCounts]:
    """How often every group was measured, and its counts, from files of one kind.

    Completeness: no group outside the universe was measured, and each has as many counts as its
    table (`n_cells`); groups are measured by a total only where they are due to be, if any are.
    Loss: the `plb` of each measurement is the level's budget for a group measured by a total only
    and (1 - gamma) of it otherwise, or `inf` without noise; its `variance` is that of the noise
    which this loss and the level's stability imply.
    """
    n = expected.n_groups
    times = np.zeros(n, dtype=np.int64)
    table = np.zeros(n, dtype=np.int8)
    first_cell = np.zeros(n, dtype=np.int64)
    parts: list[np.ndarray] = []
    n_read = 0
    completeness, loss = failures[COMPLETE], failures[LOSS]
    second_stage = 1 - expected.stage_1_fraction
    for level in expected.levels:
        for batch in read_level(run_directory, kind, level, expected, COLUMNS):
            group = group_numbers(batch, level, completeness)
            known = group >= 0
            own_table = batch.column("table").to_numpy()
            counts, offsets = _counts(batch)
            lengths = np.diff(offsets)
            in_range = (own_table >= 0) & (own_table < n_cells.size)
            right = in_range & (lengths == n_cells[np.where(in_range, own_table, 0)])
            total_only = batch.column("total_only").to_numpy(zero_copy_only=False)
            due_only = level.total_only[(group - level.first) % len(level.iterations)]
            due_only &= has_total_only
            right &= (total_only == due_only) & ~(due_only & (own_table > 0))
            completeness.add_each(known & ~right, _has_other_counts(level, group))
            for is_only, share in ((True, Fraction(1)), (False, second_stage)):
                check_noise(batch, total_only == is_only, level, share, expected, loss)
            usable = known & right
            np.add.at(times, group[known], 1)
            table[group[usable]] = own_table[usable]
            first_cell[group[usable]] = n_read + offsets[:-1][usable]
            parts.append(counts)
            n_read += counts.size
    # Groups that were not measured get counts of their own, so that later checks can go on.
    cells = np.concatenate([*parts, np.zeros(n_cells.max(), dtype=np.int64)])
    first_cell[times == 0] = n_read
    return times, GroupCounts(table, first_cell, cells, np.ones(n, dtype=bool), np.arange(n))


def _has_other_counts(level: ExpectedLevel, group: np.ndarray) -> Callable[[int], str]:
    return lambda i: f"{level.describe(group[i])} has another number of counts than its table"


def read_level(
    run_directory: Path, kind: str, level: ExpectedLevel, expected: ExpectedRun, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a level's files of one kind, in batches.

    Raises UnusableRunFile for a file that lacks a column or a value of one.
    """
    folder = run_directory / "measurements" / kind / expected.passes[level.region_type]
    for path in sorted((folder / level.region_type / str(level.level)).rglob("*.parquet")):
        with opened(path, columns, [name for name in CODED if name in columns]) as file:
            is_large = file.metadata.num_rows > ROWS_PER_BATCH
            for batch in file.iter_batches(
                batch_size=ROWS_PER_BATCH, columns=columns, use_threads=is_large
            ):
                if any(column.null_count for column in batch.columns):
                    raise UnusableRunFile(f"a value in {path.name} is missing")
                yield batch


def group_numbers(
    batch: pa.RecordBatch, level: ExpectedLevel, completeness: Failures
) -> np.ndarray:
    """Number of each row's group, -1 where it is not one of the level's."""
    group = level.numbers(batch.column("region_id"), batch.column("iteration_code"))
    if "region_type" in batch.schema.names:
        own = positions(batch.column("region_type"), pa.array([level.region_type]))
        group = np.where(own == 0, group, -1)
    completeness.add_each(
        group < 0, f"a group outside the universe of {level.region_type} was measured"
    )
    return group


def _counts(batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
    values = batch.column("value")
    offsets = values.offsets.to_numpy().astype(np.int64)
    counts = pc.cast(values.flatten(), pa.int64()).to_numpy()
    return counts, offsets - offsets[0]

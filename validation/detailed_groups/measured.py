"""Noisy measurements of a run: each group once, in the table due to it, at its noise and loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..outcome import Failures
from ..run_files import (
    UnusableRunFile,
    encode_texts,
    open_parquet,
    parse_fraction,
    positions,
    read_table,
    relative_path,
)
from .tables import PERSONS
from .universe import Level, Promise

ROWS_PER_BATCH = 1 << 18
MEASUREMENTS, FIRST_STAGE = Path("measurements"), "detailed_groups_stage_1"
TOTALS = Path("spine") / "group_totals.parquet"
COMPLETE, LOSS, TABLES = (
    "measurements_are_complete",
    "measured_loss_is_the_budget",
    "tables_follow_the_totals",
)
"""The checks of measurements themselves."""
NO_TABLE = -1
INFINITE = "inf"
_CODED = ("region_type", "region_id", "iteration_code", "plb")
_NOISE = ("variance", "plb")
_TOTAL_COLUMNS = ["region_id", "iteration_code", "value", *_NOISE]
_COLUMNS = ["region_type", *_TOTAL_COLUMNS, "table", "total_only"]


@dataclass
class GroupCounts:
    """Counts of all groups of a tabulation, by the number of the group.

    `table`, `is_shown` and `source` have shape (n_groups,); the counts of a group begin at
    `first_cell` in `cells`, and `source` is the group that they were measured of.
    """

    table: np.ndarray
    first_cell: np.ndarray
    cells: np.ndarray
    is_shown: np.ndarray
    source: np.ndarray

    def sums(self, group: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """Sums of consecutive counts of groups, from `start` to before `stop` of their own."""
        sums = np.concatenate([[0], np.cumsum(self.cells)])
        return sums[self.first_cell[group] + stop] - sums[self.first_cell[group] + start]


def check_measurements(
    root: Path, promise: Promise, failures: Mapping[str, Failures]
) -> GroupCounts:
    """The measurements of a tabulation, checked on the way.

    Completeness: every due group was measured exactly once, and has as many counts as its table; by
    a total only where it is due to be. Loss: the `plb` and the `variance` agree with the level.
    Tables: a group has the table whose number is the number of thresholds reached by its total.
    """
    if promise.tabulation is PERSONS:
        due = first_stage_tables(root, promise, failures)
    else:
        due = tables_by_totals(root, promise)
    n = promise.n_groups
    times, table = np.zeros(n, dtype=np.int64), np.full(n, NO_TABLE, dtype=np.int64)
    first_cell = np.zeros(n, dtype=np.int64)
    parts: list[np.ndarray] = []
    n_read, n_cells = 0, promise.tabulation.n_cells
    completeness = failures[COMPLETE]
    for level in promise.levels:
        for batch in _batches(root, promise.tabulation.folder, level, _COLUMNS):
            group = _group_numbers(batch, level, completeness)
            own_table = batch.column("table").to_numpy().astype(np.int64)
            counts, offsets = _counts(batch)
            in_range = (own_table >= 0) & (own_table < n_cells.size)
            right = in_range & (np.diff(offsets) == n_cells[np.where(in_range, own_table, 0)])
            total_only = batch.column("total_only").to_numpy(zero_copy_only=False)
            due_only = level.total_only[(group - level.first) % len(level.iterations)]
            right &= (total_only == due_only) & ~(due_only & (own_table > 0))
            text = f"a group of {level.region_type} has another number of counts than its table"
            completeness.add_each((group >= 0) & ~right, text)
            for is_only in (True, False):
                loss = level.loss(is_total_only=is_only)
                _check_noise(batch, total_only == is_only, level, loss, failures[LOSS])
            usable = (group >= 0) & right
            np.add.at(times, group[group >= 0], 1)
            table[group[usable]] = own_table[usable]
            first_cell[group[usable]] = n_read + offsets[:-1][usable]
            parts.append(counts)
            n_read += counts.size
    _check_folders(root, promise, completeness)
    is_due = due != NO_TABLE
    completeness.add_each(
        times != is_due,
        lambda g: (
            f"{promise.describe(g)} was measured {times[g]} times instead of {int(is_due[g])}"
        ),
    )
    failures[TABLES].add_each(
        (times > 0) & (table != due),
        lambda g: f"{promise.describe(g)} has table {table[g]}, and its total chose {due[g]}",
    )
    # Groups that were not measured get counts of their own, so that later checks can go on.
    first_cell[table == NO_TABLE] = n_read
    cells = np.concatenate([*parts, np.zeros(n_cells.max(), dtype=np.int64)])
    return GroupCounts(np.maximum(table, 0), first_cell, cells, is_due, np.arange(n))


def first_stage_tables(
    root: Path, promise: Promise, failures: Mapping[str, Failures]
) -> np.ndarray:
    """The table of each group of persons, by the noisy totals of the first stage; (n_groups,).

    The totals are checked on the way: a group that is not measured by a total only has one, at a
    cost of gamma times the level's budget, and no other has.
    """
    due = np.zeros(promise.n_groups, dtype=np.int64)
    times, wanted = np.zeros_like(due), np.zeros_like(due)
    for level in promise.levels:
        wanted[level.rows] = ~level.is_total_only
        loss = None if level.budget is None else level.budget * level.stage_1
        for batch in _batches(root, FIRST_STAGE, level, _TOTAL_COLUMNS):
            group = _group_numbers(batch, level, failures[COMPLETE])
            rows = np.ones(batch.num_rows, dtype=bool)
            _check_noise(batch, rows, level, loss, failures[LOSS])
            np.add.at(times, group[group >= 0], 1)
            _choose(due, group, batch.column("value").to_numpy(), level)
    failures[COMPLETE].add_each(
        times != wanted,
        lambda g: (
            f"{promise.describe(g)} has {times[g]} totals of the first stage instead of {wanted[g]}"
        ),
    )
    return due


def tables_by_totals(root: Path, promise: Promise) -> np.ndarray:
    """The table of each group of households, by the totals of persons that are kept with the run;
    `NO_TABLE` for a group without one, which is not measured. Shape (n_groups,).
    """
    due = np.full(promise.n_groups, NO_TABLE, dtype=np.int64)
    table = read_table(root / TOTALS, ["region_type", "region_id", "iteration_code", "count"])
    for level in promise.levels:
        own = table.filter(pc.equal(table["region_type"], level.region_type))
        group = level.numbers(own["region_id"], own["iteration_code"])
        _choose(due, group, own["count"].to_numpy(), level)
    return due


def _choose(due: np.ndarray, group: np.ndarray, total: np.ndarray, level: Level) -> None:
    known = group >= 0
    due[group[known]] = sum((total[known] >= bound).astype(int) for bound in level.thresholds)


def _batches(root: Path, folder: str, level: Level, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a level's files in a folder of measurements, in batches.

    Raises UnusableRunFile for a file that lacks a column or a value of one.
    """
    for path in sorted(_folder(root, folder, level).glob("*.parquet")):
        with open_parquet(path, columns, [name for name in _CODED if name in columns]) as file:
            is_large = file.metadata.num_rows > ROWS_PER_BATCH
            for batch in file.iter_batches(
                batch_size=ROWS_PER_BATCH, columns=columns, use_threads=is_large
            ):
                if any(column.null_count for column in batch.columns):
                    raise UnusableRunFile(f"a value in {path.name} is missing")
                yield batch


def _folder(root: Path, folder: str, level: Level) -> Path:
    return root / MEASUREMENTS / folder / level.region_pass / level.region_type / str(level.level)


def _check_folders(root: Path, promise: Promise, completeness: Failures) -> None:
    """No file of measurements is of a level that is not measured."""
    own = promise.tabulation.folder
    for folder in (own, FIRST_STAGE) if promise.tabulation is PERSONS else (own,):
        known = {_folder(root, folder, level) for level in promise.levels}
        for path in (root / MEASUREMENTS / folder).rglob("*.parquet"):
            if path.parent not in known:
                completeness.add(f"{relative_path(path)} is of a level that is not to be measured")


def _group_numbers(batch: pa.RecordBatch, level: Level, completeness: Failures) -> np.ndarray:
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


def _check_noise(
    batch: pa.RecordBatch, rows: np.ndarray, level: Level, loss: Fraction | None, failures: Failures
) -> None:
    """The rows of a mask spent this loss, with noise of its variance."""
    plb = encode_texts(batch.column("plb"))
    texts, codes = plb.dictionary.to_pylist(), plb.indices.to_numpy()
    is_due = [
        text == INFINITE if loss is None else text != INFINITE and parse_fraction(text) == loss
        for text in texts
    ]
    what = f"a {level.region_type} group of level {level.level}"
    failures.add_each(
        rows & ~np.array(is_due, dtype=bool)[codes],
        lambda i: (
            f"{what} was measured at a plb of {texts[codes[i]]} instead of {loss or INFINITE}"
        ),
    )
    due, variance = level.noise(loss).variance, batch.column("variance").to_numpy()
    failures.add_each(
        rows & ~np.isclose(variance, due, rtol=1e-9, atol=1e-12),
        lambda i: f"{what} has the variance {variance[i]:.6g} instead of {due:.6g}",
    )

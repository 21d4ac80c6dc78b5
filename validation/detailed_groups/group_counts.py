"""Counts of a run: each group measured once, in the table due to it, at its noise and loss; and the
released files show exactly the groups and counts that the rules give.

The rows of text and Parquet files are decoded from their own layouts, in batches, and compared with
the expected counts by the number of their group and the code of their row. Rows may be in any
order.

Margins of the noisy counts and of their sums, and thresholds of suppression, follow in floating
point from the noise that a count's loss implies, apart from the code that releases them: its
probabilities are tabulated, and convolved by a Fourier transform.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..outcome import Failures
from ..run_files import (
    ROWS_PER_BATCH,
    UnusableRunFile,
    check_stamp,
    number_texts,
    open_parquet,
    opened_text,
    parse_fraction,
    positions,
    read_batches,
    read_table,
    refuse_other_header,
    relative_path,
)
from .tables import PERSONS, TOTAL, look_up_texts, row_codes
from .universe import CountNoise, Level, Promise

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
    """The rows of a level's files in a folder of measurements, in batches."""
    coded = [name for name in _CODED if name in columns]
    return read_batches(_folder(root, folder, level), columns, coded)


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
    texts, codes = number_texts(batch.column("plb"))
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


_ROUNDING = 1e-9
"""Tolerance of probabilities: either of two margins is accepted where the coverage is as near to
the threshold of one."""


def _weights(rate: float, power: int, values: np.ndarray) -> np.ndarray:
    """Numbers in proportion to the probabilities of these values of the noise."""
    return np.exp(-rate * np.abs(values).astype(float) ** power)


@lru_cache(maxsize=1024)
def margins_of_sum(
    noise: CountNoise, n: int, coverage: Fraction, *, is_cut: bool = False
) -> tuple[int, int]:
    """The least and the largest number that may be the margin of a sum of n noisy counts, which
    were cut at 0 before they were added if `is_cut`, for any counts.

    They are equal but for rounding. The error of a sum of cut counts is at least the sum of the
    draws and at most the sum of their positive parts, so that either tail is the tail of one of
    these.
    """
    if noise.rate is None:
        return 0, 0
    rate = float(noise.rate)
    # The probability beyond this is less than 1e-12, for one count and for the sum.
    reach = (3 * n + 60) / rate if noise.power == 1 else math.sqrt(n * (n + 30) / rate)
    reach = math.ceil(reach) + 2
    weights = _weights(rate, noise.power, np.arange(-reach, reach))
    weights /= weights.sum()
    cut = np.concatenate([np.zeros(reach), [weights[: reach + 1].sum()], weights[reach + 1 :]])
    tails = []
    for own in (weights, cut if is_cut else weights):
        of_sum = np.fft.irfft(np.fft.rfft(np.roll(own, -reach)) ** n, 2 * reach)[:reach]
        tails.append(np.cumsum(of_sum[::-1])[::-1])
    missed = np.append(tails[0] + tails[1], 0.0)[1:]
    bounds = [1 - float(coverage) + _ROUNDING, 1 - float(coverage) - _ROUNDING]
    least, largest = (int(np.argmax(missed <= bound)) for bound in bounds)
    return least, largest


def threshold_of(noise: CountNoise, chance: Fraction) -> int:
    """The smallest k with P(X <= k) >= chance; 0 without noise."""
    if noise.rate is None:
        return 0
    rate = float(noise.rate)
    reach = int((60 / rate) ** (1 / noise.power)) + 2
    values = np.arange(-reach, reach + 1)
    weights = _weights(rate, noise.power, values)
    due = float(chance) * math.fsum(weights)
    # From the nearer end, where partial sums are accurate.
    if chance <= Fraction(1, 2):
        return int(values[np.searchsorted(np.cumsum(weights), due)])
    above = np.cumsum(weights[::-1])[::-1] - weights
    return int(values[np.argmax(above <= float(1 - chance) * math.fsum(weights))])


SHOWN, ROWS, COUNTS, MARGINS, SIGNS, FILES = (
    "groups_shown_follow_the_rules",
    "rows_are_complete",
    "counts_are_those_measured",
    "margins_are_those_of_the_noise",
    "counts_are_not_negative",
    "files_agree",
)
"""The checks of released files."""
_KEY = ("REGION_ID", "REGION_TYPE", "ITERATION_CODE")
_TIDY_KEY = ("region_id", "region_type", "iteration_code", "table")
_NUMBERS = ("count", "variance", "margin", "margin_if_cut")

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Group, code and count of released rows, -1 for a group or code that there is not."""


def check_texts(
    folder: Path, promise: Promise, counts: GroupCounts, failures: Mapping[str, Failures]
) -> None:
    """Check the text files of a tabulation; `counts` are those expected by the rules.

    Raises UnusableRunFile for a missing file or other columns, and Arrow's exceptions for files
    that cannot be parsed.
    """
    rows = []
    for name, labels in promise.tabulation.texts.items():
        for batch in _text_batches(folder / name, labels, promise, failures[FILES]):
            group = promise.numbers(*batch.columns[:3])
            code = row_codes(batch, labels, promise.tabulation)
            rows.append((group, code, batch["COUNT"].to_numpy()))
    _check_rows("the text files", rows, promise, counts, failures)


def check_tidy(
    folder: Path,
    promised: Sequence[tuple[Promise, GroupCounts]],
    failures: Mapping[str, Failures],
) -> None:
    """Check the tidy file: it has the rows of all text files, with table, margins and variance."""
    name = promised[0][0].tabulation.tidy
    rows: list[list[Rows]] = [[] for _ in promised]
    for batch in _tidy_batches(folder / name, promised[0][0], failures[FILES]):
        is_known = np.zeros(batch.num_rows, dtype=bool)
        for own, (promise, counts) in zip(rows, promised, strict=True):
            of_tables = {table: i for i, table in enumerate(promise.tabulation.tables)}
            table = look_up_texts(batch["table"], of_tables)
            is_known |= table >= 0
            here = pa.array(np.flatnonzero(table >= 0))
            part = batch.take(here)
            group = promise.numbers(*(part[key] for key in _TIDY_KEY[:3]))
            code = row_codes(part, promise.tabulation.labels, promise.tabulation)
            # Totals of persons are all in the first table, other rows in the table of their group.
            due = counts.table[np.maximum(group, 0)]
            if promise.tabulation is PERSONS:
                due = np.where(code == TOTAL, 0, due)
            failures[ROWS].add_each(
                (group >= 0) & (table[here] != due), f"{name}: a row is in a table not its group's"
            )
            own.append((group, code, part["count"].to_numpy()))
            _check_margins(part, group, code, promise, counts, failures[MARGINS])
        failures[ROWS].add_each(~is_known, f"{name}: a row is in no table of the release")
    for own, (promise, counts) in zip(rows, promised, strict=True):
        _check_rows(name, own, promise, counts, failures)


def _check_rows(
    name: str,
    rows: Sequence[Rows],
    promise: Promise,
    counts: GroupCounts,
    failures: Mapping[str, Failures],
) -> None:
    """Each group that is to be shown has every row of its table once, with the sum of its counts;
    no other group has any."""
    nothing = (np.zeros(0, dtype=np.int64),) * 3
    group, code, count = (np.concatenate(own) for own in zip(nothing, *rows, strict=True))
    is_shown = (group >= 0) & counts.is_shown[np.maximum(group, 0)]
    failures[SHOWN].add_each(~is_shown, f"{name}: a row is of a group that is not to be shown")
    group, code, count = group[is_shown], code[is_shown], count[is_shown]
    if not promise.allow_negative_counts:
        failures[SIGNS].add_each(
            count < 0, lambda i: f"{name}: {promise.describe(group[i])} has a negative count"
        )
    start, stop = promise.tabulation.bounds[counts.table[group], code].T
    is_row = start >= 0
    failures[ROWS].add_each(
        ~is_row, lambda i: f"{name}: {promise.describe(group[i])} has a row not of its table"
    )
    group, code, count = group[is_row], code[is_row], count[is_row]
    n_codes = promise.tabulation.bounds.shape[1]
    slot, times = np.unique(group * n_codes + code, return_counts=True)
    failures[ROWS].add_each(times > 1, f"{name}: a row of a group appears twice")
    n_rows = np.bincount(slot // n_codes, minlength=promise.n_groups)
    n_of_table = np.array(list(map(len, promise.tabulation.rows)))
    n_due = np.where(counts.is_shown, n_of_table[counts.table], 0)
    failures[SHOWN].add_each(
        (n_rows == 0) & (n_due > 0), lambda g: f"{name}: {promise.describe(g)} is not shown"
    )
    failures[ROWS].add_each(
        (n_rows > 0) & (n_rows != n_due),
        lambda g: f"{name}: {promise.describe(g)} has {n_rows[g]} rows instead of {n_due[g]}",
    )
    failures[COUNTS].add_each(
        count != counts.sums(group, start[is_row], stop[is_row]),
        lambda i: (
            f"{name}: a count of {promise.describe(group[i])} differs from the measured count, "
            "or the sum of counts"
        ),
    )


def _check_margins(
    batch: pa.RecordBatch,
    group: np.ndarray,
    code: np.ndarray,
    promise: Promise,
    counts: GroupCounts,
    failures: Failures,
) -> None:
    """Check each count's margin and variance against a sum of so many noisy counts.

    The noise is that of the group whose measurement it shows, in the region type `measured_at`
    where the file has that column.
    """
    start, stop = promise.tabulation.bounds[counts.table[group], code].T
    rows = np.flatnonzero((group >= 0) & (start >= 0))
    source, n_cells = counts.source[group[rows]], (stop - start)[rows]
    variance, *margins = (batch[name].to_numpy()[rows] for name in _NUMBERS[1:])
    measured_at = "measured_at" if "measured_at" in batch.schema.names else "region_type"
    names, place = number_texts(batch[measured_at])
    place_of, place = {name: number for number, name in enumerate(names)}, place[rows]
    first = np.array([level.first for level in promise.levels])
    of_level = np.searchsorted(first, source, side="right") - 1
    for number, level in enumerate(promise.levels):
        here = np.flatnonzero(of_level == number)
        failures.add_each(
            place[here] != place_of.get(level.region_type, -1),
            f"a count measured at {level.region_type} says that it was elsewhere",
        )
        only = level.total_only[(source[here] - level.first) % max(1, len(level.iterations))]
        for is_only in (True, False):
            noise = level.noise(level.loss(is_total_only=is_only))
            for n in np.unique(n_cells[here[only == is_only]]).tolist():
                own = here[(only == is_only) & (n_cells[here] == n)]
                due = due_if_cut = margins_of_sum(noise, n, promise.confidence)
                if n > 1 and not promise.allow_negative_counts:
                    due_if_cut = margins_of_sum(noise, n, promise.confidence, is_cut=True)
                wrong = ~np.isclose(variance[own], n * noise.variance, rtol=1e-9, atol=1e-12)
                for margin, (least, largest) in zip(margins, (due, due_if_cut), strict=True):
                    wrong |= (margin[own] < least) | (margin[own] > largest)
                failures.add_each(
                    wrong,
                    f"a count measured at {level.region_type}, level {level.level}, as a sum of "
                    f"{n}, has another variance than its noise, or other margins than {due[1]}",
                )


def _text_batches(
    path: Path, labels: Sequence[str], promise: Promise, failures: Failures
) -> Iterator[pa.RecordBatch]:
    """Yield rows of a text file of the release, whose columns are texts and a count; record
    failures of the file. Raises UnusableRunFile.
    """
    if not path.is_file():
        raise UnusableRunFile(f"the file {path.name} of the release is missing")
    check_stamp(path, is_private=promise.is_private, failures=failures)
    columns = (*_KEY, *labels, "COUNT")
    refuse_other_header(path, columns)
    coded = pa.dictionary(pa.int32(), pa.string())
    types = dict.fromkeys(columns[:-1], coded) | {columns[-1]: pa.int64()}
    with opened_text(path, types) as reader:
        yield from reader


def _tidy_batches(path: Path, promise: Promise, failures: Failures) -> Iterator[pa.RecordBatch]:
    """Yield rows of the tidy file of the release; record failures of the file. Raises
    UnusableRunFile for a file without its columns.
    """
    columns = [*_TIDY_KEY, *_NUMBERS, *promise.tabulation.labels]
    if promise.tabulation is PERSONS:
        columns.append("measured_at")
    with open_parquet(path, columns, as_dictionary=columns) as file:
        check_stamp(path, is_private=promise.is_private, failures=failures)
        yield from file.iter_batches(batch_size=ROWS_PER_BATCH, columns=columns)

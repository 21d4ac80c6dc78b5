"""The released files show the groups and counts that the rules give, and nothing else.

The rows of t1.csv, t2.csv and population_groups.parquet are decoded from their own layouts, in
batches, and compared with the expected counts by the number of their group. Rows may stand in any
order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from ..outcome import Failures
from ..run_files import UnusableRunFile, check_stamp, head_of_text, opened, opened_text, positions
from .margins import cells_in_rows, check_margins
from .measured import GroupCounts
from .tables import AGE_BINS, N_CELLS, OLDEST_AGE
from .universe import ExpectedRun

T1, T2, TIDY = "t1.csv", "t2.csv", "population_groups.parquet"

_KEY = ("REGION_ID", "REGION_TYPE", "ITERATION_CODE")
_T1_COLUMNS = (*_KEY, "COUNT")
_T2_COLUMNS = (*_KEY, "AGESTART", "AGEEND", "SEX", "COUNT")
_TIDY_COLUMNS = (
    "region_id",
    "region_type",
    "iteration_code",
    "table",
    "sex",
    "age_start",
    "age_end",
    "count",
    "variance",
    "measured_at",
    "margin",
    "margin_if_cut",
)
_TIDY_CODED = ("region_id", "region_type", "iteration_code", "table", "sex", "measured_at")
_MARGINS = ("margin", "margin_if_cut")
"""The columns that a tidy file of version 0.2.0 and before lacks."""

_TABLES = ("T01001", "T02001", "T02002", "T02003")
_SEXES = {"1": 0, "2": 1, "male": 0, "female": 1}
_MOST_BINS = max(map(len, AGE_BINS.values()))


@dataclass(frozen=True)
class _Totals:
    group: np.ndarray
    count: np.ndarray


@dataclass(frozen=True)
class _Cells:
    """Rows of sex by age: sex is 0 or 1, ages are -1 for a marginal."""

    group: np.ndarray
    sex: np.ndarray
    age_start: np.ndarray
    age_end: np.ndarray
    count: np.ndarray


Rows = TypeVar("Rows", _Totals, _Cells)


def check_release(
    folder: Path, expected: ExpectedRun, counts: GroupCounts, failures: Mapping[str, Failures]
) -> None:
    """Check the three files of a release; `counts` are those that the rules give.

    Raises UnusableRunFile for a missing file or other columns, and Arrow's exceptions for files
    that cannot be parsed.
    """
    for name, totals, cells in _read(folder, expected, counts, failures):
        _check_totals(name, totals, expected, counts, failures)
        _check_cells(name, cells, expected, counts, failures)


def looked_up(column: pa.Array, known: Mapping[str, int]) -> np.ndarray:
    """What is known of each text of a column, -1 for nothing."""
    return np.array([*known.values(), -1])[positions(column, pa.array(list(known), pa.string()))]


def _read(
    folder: Path, expected: ExpectedRun, counts: GroupCounts, failures: Mapping[str, Failures]
) -> Iterator[tuple[str, _Totals, _Cells]]:
    """The two forms in which totals and cells are released, each with all its rows."""
    totals, cells = [], []
    for batch in text_batches(folder / T1, _T1_COLUMNS, expected, failures["files_agree"]):
        totals.append(
            _Totals(expected.numbers(*batch.columns[:3]), batch.column("COUNT").to_numpy())
        )
    for batch in text_batches(folder / T2, _T2_COLUMNS, expected, failures["files_agree"]):
        cells.append(
            _Cells(
                group=expected.numbers(*batch.columns[:3]),
                sex=looked_up(batch.column("SEX"), _SEXES),
                age_start=looked_up(batch.column("AGESTART"), _AGES),
                age_end=looked_up(batch.column("AGEEND"), _AGES),
                count=batch.column("COUNT").to_numpy(),
            )
        )
    yield "the text files", _joined(totals, _Totals), _joined(cells, _Cells)
    totals, cells = [], []
    for batch in _tidy_batches(folder / TIDY, expected, failures["files_agree"]):
        group = expected.numbers(*(batch.column(name) for name in _TIDY_COLUMNS[:3]))
        table = looked_up(batch.column("table"), {t: i for i, t in enumerate(_TABLES)})
        sex = looked_up(batch.column("sex"), {"total": 2, **_SEXES})
        is_total = (table == 0) & (sex == 2)
        count = batch.column("count").to_numpy()
        # Totals are in T01001, other rows in the table that their group received.
        failures["keys_are_complete"].add_each(
            (group >= 0) & (table != np.where(is_total, 0, counts.table[np.maximum(group, 0)])),
            f"{TIDY}: a row is in a table not its group's",
        )
        ages = [
            batch.column(name).fill_null(-1).to_numpy().astype(np.int64)
            for name in ("age_start", "age_end")
        ]
        if set(_MARGINS) <= set(batch.schema.names):
            _check_noise(batch, group, is_total, ages[0] == -1, expected, counts, failures)
        totals.append(_Totals(group[is_total], count[is_total]))
        own = ~is_total
        cells.append(_Cells(group[own], sex[own], ages[0][own], ages[1][own], count[own]))
    yield TIDY, _joined(totals, _Totals), _joined(cells, _Cells)


_AGES = {"*": -1} | {str(age): age for age in range(OLDEST_AGE + 1)}


def _check_totals(
    name: str,
    totals: _Totals,
    expected: ExpectedRun,
    counts: GroupCounts,
    failures: Mapping[str, Failures],
) -> None:
    """Each group that is to be shown has one total, which is the sum of its counts."""
    known = totals.group >= 0
    failures["groups_shown_follow_the_rules"].add_each(
        ~known, lambda _: f"{name}: a total is of a group outside the universe"
    )
    group, count = totals.group[known], totals.count[known]
    times = np.bincount(group, minlength=expected.n_groups)
    failures["groups_shown_follow_the_rules"].add_each(
        times != counts.is_shown,
        lambda g: (
            f"{name}: {expected.describe(g)} has {times[g]} totals instead of "
            f"{int(counts.is_shown[g])}"
        ),
    )
    shown = counts.is_shown[group]
    failures["totals_add_up"].add_each(
        shown & (count != counts.totals[group]),
        lambda i: f"{name}: {expected.describe(group[i])} has another total than its counts",
    )
    _check_sign(name, group, count, expected, failures)


def _check_cells(
    name: str,
    cells: _Cells,
    expected: ExpectedRun,
    counts: GroupCounts,
    failures: Mapping[str, Failures],
) -> None:
    """Each group with a sex by age table has each of its cells and marginals once, as they are."""
    known = (cells.group >= 0) & (cells.sex >= 0) & (cells.sex < 2)
    table = counts.table[np.where(known, cells.group, 0)]
    age_bin, width = _age_bins(table, cells.age_start, cells.age_end)
    known &= (table > 0) & (age_bin >= 0) & counts.is_shown[np.where(known, cells.group, 0)]
    failures["keys_are_complete"].add_each(
        ~known, lambda _: f"{name}: a row is of a group or cell that is not to be shown"
    )
    rows = np.flatnonzero(known)
    group, sex, age_bin, width = cells.group[rows], cells.sex[rows], age_bin[rows], width[rows]
    count = cells.count[rows]
    # The marginal of a sex is numbered after its cells.
    slot = group * (2 * (_MOST_BINS + 1)) + sex * (_MOST_BINS + 1) + age_bin
    distinct, times = np.unique(slot, return_counts=True)
    failures["keys_are_complete"].add_each(
        times > 1, lambda _: f"{name}: a row of a group stands twice"
    )
    n_rows = np.bincount(distinct // (2 * (_MOST_BINS + 1)), minlength=expected.n_groups)
    n_due = np.where(counts.is_shown & (counts.table > 0), N_CELLS[counts.table] + 2, 0)
    failures["keys_are_complete"].add_each(
        n_rows != n_due,
        lambda g: (
            f"{name}: {expected.describe(g)} has {n_rows[g]} rows of sex by age "
            f"instead of {n_due[g]}"
        ),
    )
    is_marginal = age_bin == width
    first = counts.first_cell[group] + sex * width
    sums = np.concatenate([[0], np.cumsum(counts.cells)])
    marginal = sums[first + width] - sums[first]
    failures["marginals_add_up"].add_each(
        is_marginal & (count != marginal),
        lambda i: (
            f"{name}: a marginal of {expected.describe(group[i])} is not the sum of its cells"
        ),
    )
    cell = counts.cells[first + np.where(is_marginal, 0, age_bin)]
    failures["cells_are_those_measured"].add_each(
        ~is_marginal & (count != cell),
        lambda i: f"{name}: a cell of {expected.describe(group[i])} is not what was measured",
    )
    _check_sign(name, group, count, expected, failures)


def _check_sign(
    name: str,
    group: np.ndarray,
    count: np.ndarray,
    expected: ExpectedRun,
    failures: Mapping[str, Failures],
) -> None:
    if not expected.allow_negative_counts:
        failures["counts_are_not_negative"].add_each(
            count < 0, lambda i: f"{name}: {expected.describe(group[i])} has a negative count"
        )


def _check_noise(
    batch: pa.RecordBatch,
    group: np.ndarray,
    is_total: np.ndarray,
    is_marginal: np.ndarray,
    expected: ExpectedRun,
    counts: GroupCounts,
    failures: Mapping[str, Failures],
) -> None:
    """Rows of known groups have the margin and variance of the counts that they are sums of."""
    rows = np.flatnonzero(group >= 0)
    margin, margin_if_cut = (batch.column(name).to_numpy()[rows] for name in _MARGINS)
    check_margins(
        group[rows],
        cells_in_rows(counts.table[group[rows]], is_total[rows], is_marginal[rows]),
        margin,
        margin_if_cut,
        batch.column("variance").to_numpy()[rows],
        batch.column("measured_at").take(pa.array(rows)),
        counts,
        expected,
        failures["margins_are_those_of_the_noise"],
    )


def _age_bins(
    table: np.ndarray, start: np.ndarray, end: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Number of each row's age bin in its table, or the number of bins for a marginal, or -1."""
    found = np.full(table.size, -1, dtype=np.int64)
    width = np.zeros(table.size, dtype=np.int64)
    for number, bins in AGE_BINS.items():
        rows = table == number
        last = np.array([*(first - 1 for first in bins[1:]), OLDEST_AGE])
        bin_of_start = np.full(OLDEST_AGE + 2, -1)
        bin_of_start[list(bins)] = np.arange(len(bins))
        own_bin = bin_of_start[np.clip(start[rows], -1, OLDEST_AGE + 1)]
        fits = (own_bin >= 0) & (end[rows] == last[own_bin])
        is_marginal = (start[rows] == -1) & (end[rows] == -1)
        found[rows] = np.where(is_marginal, len(bins), np.where(fits, own_bin, -1))
        width[rows] = len(bins)
    return found, width


def _joined(parts: list[Rows], kind: type[Rows]) -> Rows:
    names = [field.name for field in fields(kind)]
    if not parts:
        return kind(*(np.zeros(0, dtype=np.int64) for _ in names))
    columns = ([getattr(part, name) for part in parts] for name in names)
    return kind(*map(np.concatenate, columns))


def text_batches(
    path: Path, columns: tuple[str, ...], expected: ExpectedRun, failures: Failures
) -> Iterator[pa.RecordBatch]:
    """The rows of a text file of the release, whose columns are texts and a count; failures are
    those of files. Raises UnusableRunFile.
    """
    if not path.is_file():
        raise UnusableRunFile(f"the file {path.name} of the release is missing")
    check_stamp(path, is_private=expected.is_private, failures=failures)
    if not head_of_text(path, columns):
        return
    coded = pa.dictionary(pa.int32(), pa.string())
    types = dict.fromkeys(columns[:-1], coded) | {columns[-1]: pa.int64()}
    with opened_text(path, types) as reader:
        yield from reader


def _tidy_batches(
    path: Path, expected: ExpectedRun, failures: Failures
) -> Iterator[pa.RecordBatch]:
    """The rows of the tidy file of the release; failures are those of files. Raises
    UnusableRunFile for a file without its columns, but those of margins.
    """
    needed = [name for name in _TIDY_COLUMNS if name not in _MARGINS]
    with opened(path, needed, _TIDY_CODED) as file:
        check_stamp(path, is_private=expected.is_private, failures=failures)
        present = [name for name in _TIDY_COLUMNS if name in file.schema_arrow.names]
        yield from file.iter_batches(batch_size=1 << 18, columns=present)

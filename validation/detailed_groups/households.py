"""All checks of a finished run of households by detailed group, from its public files alone.

Which groups are measured, and in which table, follows from the totals that the run keeps; which
categories are rows, and what they are sums of, from the lists of the production program. Nothing
here uses the code that chose, drew or wrote, and nothing opens `confidential/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..outcome import Failures, Outcome
from ..run_files import check_stamp, read_table, unusable_files_fail
from .margins import check_margins
from .measured import COMPLETE, GroupCounts, read_counts
from .release import looked_up, text_batches
from .universe import ExpectedRun

UNIVERSE = "households"
MEASURED = "detailed_households"
TOTALS = Path("spine") / "group_totals.parquet"
TIDY = "detailed_households.parquet"
NO_TABLE = -1

CHECKS: Mapping[str, str] = {
    "measurements_are_complete": "every group with a total was measured once, and no other",
    "measured_loss_is_the_budget": "of every group, and the variance of the noise",
    "tables_follow_the_totals": "every group has the table that its total of persons chose",
    "rows_are_complete": "every group has each category of its table once, and no other",
    "counts_are_those_measured": "or their sums, for categories that hold others",
    "margins_are_those_of_the_noise": "of every count in the tidy file, and its variance",
    "counts_are_not_negative": "where negative counts are not allowed",
    "files_agree": "text and Parquet files hold the same release and carry the stamp if due",
}
"""Each check's name, and what it found when it passed."""


@dataclass(frozen=True)
class Categories:
    """The categories of a tabulation: `measured` those of every table in the order of its counts,
    `within` the further ones that each is a part of.
    """

    tables: tuple[str, ...]
    measured: tuple[tuple[int, ...], ...]
    within: Mapping[int, tuple[int, ...]]

    def shown(self, table: int) -> tuple[int, ...]:
        """The codes of a table's rows."""
        own = self.measured[table]
        return tuple(sorted({*own, *(code for cell in own for code in self.within[cell])}))

    def sums(self, table: int) -> np.ndarray:
        """0/1 matrix (rows, counts): which counts of a table each of its rows is the sum of."""
        own = self.measured[table]
        return np.array(
            [[code in (cell, *self.within[cell]) for cell in own] for code in self.shown(table)],
            dtype=np.int64,
        )


CATEGORIES: Mapping[str, Categories] = {
    "t3": Categories(
        ("T03001", "T03002", "T03003", "T03004"),
        ((0,), (1, 6), (2, 3, 7, 8), (2, 4, 5, 7, 8)),
        {
            0: (),
            1: (0,),
            2: (0, 1),
            3: (0, 1),
            4: (0, 1, 3),
            5: (0, 1, 3),
            6: (0,),
            7: (0, 6),
            8: (0, 6),
        },
    ),
    "t4": Categories(("T04001", "T04002"), ((0,), (1, 2, 3)), {0: (), 1: (0,), 2: (0,), 3: (0,)}),
}
"""Household types: 0 all, 1 families, 2 married couples, 3 other families, 4 of a man, 5 of a
woman, 6 nonfamilies, 7 alone, 8 not alone. Tenures: 0 all, 1 with a mortgage, 2 free and clear, 3
rented."""


def run_household_checks(
    run_directory: Path, expected: Mapping[str, ExpectedRun], release_directory: Path
) -> tuple[Outcome, ...]:
    """The outcome of each of `CHECKS`; `expected` are the promises of every tabulation by name.

    A file that is missing, unreadable or of another layout fails the checks that need it.
    """
    failures = {name: Failures() for name in CHECKS}
    with unusable_files_fail(*failures.values()):
        columns = ["region_type", "region_id", "iteration_code", "count"]
        totals = read_table(run_directory / TOTALS, columns)
        counts = {}
        for name, run in expected.items():
            due = _due_tables(totals, run)
            counts[name] = _read_measurements(run_directory, name, run, due, failures)
            if not run.allow_negative_counts:
                np.maximum(counts[name].cells, 0, out=counts[name].cells)
            _check_text(release_directory, name, run, counts[name], failures)
        _check_tidy(release_directory, expected, counts, failures)
    return tuple(failures[name].outcome(name, UNIVERSE, CHECKS[name]) for name in CHECKS)


def _due_tables(totals: pa.Table, run: ExpectedRun) -> np.ndarray:
    """The table of every group by its total: how many thresholds this reaches."""
    due = np.full(run.n_groups, NO_TABLE, dtype=np.int64)
    for level in run.levels:
        own = totals.filter(pc.equal(totals["region_type"], level.region_type))
        group = level.numbers(own["region_id"], own["iteration_code"])
        value = own["count"].to_numpy()[group >= 0]
        due[group[group >= 0]] = sum((value >= bound).astype(int) for bound in level.thresholds)
    return due


def _read_measurements(
    run_directory: Path,
    name: str,
    run: ExpectedRun,
    due: np.ndarray,
    failures: Mapping[str, Failures],
) -> GroupCounts:
    """The measurements of a tabulation, checked on the way: each due group once, in its table, at
    the budget of its level."""
    n_cells = np.array([len(own) for own in CATEGORIES[name].measured])
    times, counts = read_counts(
        run_directory, f"{MEASURED}/{name}", run, n_cells, failures, has_total_only=False
    )
    is_due = due != NO_TABLE
    failures[COMPLETE].add_each(
        times != is_due,
        lambda g: f"{run.describe(g)} was measured {times[g]} times instead of {int(is_due[g])}",
    )
    failures["tables_follow_the_totals"].add_each(
        (times > 0) & (counts.table != due),
        lambda g: f"{run.describe(g)} has table {counts.table[g]}, and its total chose {due[g]}",
    )
    counts.is_shown = is_due
    return counts


def _check_text(
    folder: Path, name: str, run: ExpectedRun, counts: GroupCounts, failures: Mapping[str, Failures]
) -> None:
    file, code = f"{name}.csv", f"{name.upper()}_DATA_CELL"
    columns = ("REGION_ID", "REGION_TYPE", "ITERATION_CODE", code, "COUNT")
    codes = {str(n): n for n in CATEGORIES[name].within}
    found = [(np.zeros(0, np.int64),) * 3]
    for batch in text_batches(folder / file, columns, run, failures["files_agree"]):
        found.append(
            (
                run.numbers(*batch.columns[:3]),
                looked_up(batch.column(code), codes),
                batch.column("COUNT").to_numpy(),
            )
        )
    group, own, count = (np.concatenate(part) for part in zip(*found, strict=True))
    _check_rows(file, name, run, counts, (group, own, count), failures)


def _check_rows(
    file: str,
    name: str,
    run: ExpectedRun,
    counts: GroupCounts,
    rows: tuple[np.ndarray, np.ndarray, np.ndarray],
    failures: Mapping[str, Failures],
) -> np.ndarray:
    """Every due group has each category of its table once, with the sum of its counts.

    `rows` are group, code and count. Returns how many counts each row is the sum of, 0 for rows
    that are not to be there.
    """
    group, code, count = rows
    known = (group >= 0) & (code >= 0)
    known &= counts.is_shown[np.where(known, group, 0)]
    table = counts.table[np.where(known, group, 0)]
    n_cells = np.zeros(group.size, dtype=np.int64)
    due = np.zeros(group.size, dtype=np.int64)
    n_due = np.zeros(run.n_groups, dtype=np.int64)
    for number in range(len(CATEGORIES[name].tables)):
        shown, sums = CATEGORIES[name].shown(number), CATEGORIES[name].sums(number)
        n_due[counts.is_shown & (counts.table == number)] = len(shown)
        row_of = np.full(max(CATEGORIES[name].within) + 1, -1)
        row_of[list(shown)] = np.arange(len(shown))
        here = np.flatnonzero(known & (table == number))
        row = row_of[code[here]]
        here, row = here[row >= 0], row[row >= 0]
        n_cells[here] = sums.sum(axis=1)[row]
        cells = counts.cells[counts.first_cell[group[here]][:, None] + np.arange(sums.shape[1])]
        due[here] = (cells * sums[row]).sum(axis=1)
    keys = failures["rows_are_complete"]
    keys.add_each(
        n_cells == 0, lambda _: f"{file}: a row is of a group or category not to be shown"
    )
    of_table = n_cells > 0
    slot, times = np.unique(group[of_table] * 16 + code[of_table], return_counts=True)
    keys.add_each(times > 1, lambda _: f"{file}: a row of a group stands twice")
    n_rows = np.bincount(slot // 16, minlength=run.n_groups)
    keys.add_each(
        n_rows != n_due,
        lambda g: f"{file}: {run.describe(g)} has {n_rows[g]} rows instead of {n_due[g]}",
    )
    failures["counts_are_those_measured"].add_each(
        of_table & (count != due),
        lambda i: (
            f"{file}: a count of {run.describe(group[i])} is not what was "
            "measured, or the sum of it"
        ),
    )
    if not run.allow_negative_counts:
        failures["counts_are_not_negative"].add_each(
            of_table & (count < 0),
            lambda i: f"{file}: {run.describe(group[i])} has a negative count",
        )
    return n_cells


_KEYS = ("region_id", "region_type", "iteration_code")
_FIGURES = ("category_code", "count", "variance", "margin", "margin_if_cut")


def _check_tidy(
    folder: Path,
    expected: Mapping[str, ExpectedRun],
    counts: Mapping[str, GroupCounts],
    failures: Mapping[str, Failures],
) -> None:
    """The tidy file has the rows of both text files, with table, margins and variance."""
    first = next(iter(expected.values()))
    coded = [*_KEYS, "table"]
    table = read_table(folder / TIDY, [*coded, *_FIGURES], coded)
    check_stamp(folder / TIDY, is_private=first.is_private, failures=failures["files_agree"])
    of_tables: list[str] = []
    for name, run in expected.items():
        tables = CATEGORIES[name].tables
        of_tables += tables
        own = table.filter(pc.is_in(table["table"].cast(pa.string()), pa.array(tables)))
        own = own.combine_chunks()
        region_id, region_type, iteration = (
            own[key].cast(pa.string()).combine_chunks() for key in _KEYS
        )
        group = run.numbers(region_id, region_type, iteration)
        code, count, variance, margin, if_cut = (own[key].to_numpy() for key in _FIGURES)
        code = np.where((code >= 0) & (code <= max(CATEGORIES[name].within)), code, -1)
        n_cells = _check_rows(
            TIDY, name, run, counts[name], (group, code.astype(np.int64), count), failures
        )
        number = looked_up(
            own["table"].cast(pa.string()).combine_chunks(),
            {name: i for i, name in enumerate(tables)},
        )
        right = n_cells > 0
        failures["rows_are_complete"].add_each(
            right & (number != counts[name].table[np.maximum(group, 0)]),
            lambda _: f"{TIDY}: a row is in a table not its group's",
        )
        check_margins(
            group[right],
            n_cells[right],
            margin[right],
            if_cut[right],
            variance[right],
            region_type.filter(pa.array(right)),
            counts[name],
            run,
            failures["margins_are_those_of_the_noise"],
        )
    known = pc.is_in(table["table"].cast(pa.string()), pa.array(of_tables)).to_numpy()
    failures["rows_are_complete"].add_each(
        ~known, lambda _: f"{TIDY}: a row is in no table of households"
    )

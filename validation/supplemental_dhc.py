"""Checks of a run of the supplemental tables from its settings and public files.

Privacy accounting, layout (every row of every table once, Parquet and text alike), faithfulness
(noisy values are those of the measurements, estimated counts those of truncated normal laws),
possibility (no negative counts, no household impossibly small or large). Nothing here uses the code
that planned, measured or estimated, and nothing opens `confidential/`.

Neighbours differ by one record of a person and up to two records of units. A record of a unit that
comes or goes takes with it the rows of the persons who are joined with it: tau at most, 2 tau for
two. A record of a person that comes or goes adds or removes its own row, and lets one more of the
household in, or one out, if there are more than tau: two rows. So the counts of persons move by 2
tau + 2 in the L1 norm, which bounds the L2 norm; numbers of households, which read the units alone,
by 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from . import plan
from .outcome import Failures, Outcome
from .run_files import (
    UnusableRunFile,
    checked_table,
    read_settings,
    read_table,
    unusable_files_fail,
)

UNIVERSE = "people_in_households"
AREAS = "geography/areas.parquet"

CELLS = {
    "PH1_num": 2,
    "PH1_denom": 1,
    "PH2": 8,
    "PH3": 7,
    "PH4": 2,
    "PH5_denom": 1,
    "PH6": 16,
    "PH7": 3,
    "PH8_denom": 2,
}
"""Cells of every count."""

OF_UNITS = ("PH1_denom", "PH5_denom", "PH8_denom")
"""Counts that read the records of units alone."""

CODES = {"*": "*", "A-G": "ABCDEFG", "H,I": "HI"}
"""Codes of the iterations that are measured together."""

TAUS = {"PH1_num": 10, "PH2": 10, "PH3": 6, "PH4": 10, "PH6": 6, "PH7": 10}
"""The most persons of a household who are joined, in production."""

COLUMNS = (
    *("table", "level", "region", "iteration", "cell", "label"),
    *("noisy", "estimate", "low", "high"),
)
KEY = ["table", "level", "region", "iteration", "cell"]

CHECKS: Mapping[str, str] = {
    "privacy_accounting": "noise covers what a person can change in every count, and costs what "
    "the settings say",
    "layout": "every row of every table of every region and iteration once, Parquet and text alike",
    "faithfulness": "noisy values are sums and quotients of the measurements; estimated counts are "
    "the means of normal laws on what is possible, and their intervals have 90 % of these",
    "possibility": "counts are not negative, averages between 1, or 2 in families, and 10, and "
    "every estimate is within its interval",
}
"""Each check's name, and its text when it passed."""


class Row(NamedTuple):
    """A row of a table: the measured cells that are added, and of an average the households by
    whose number the sum is divided, and the least possible value of a whole, not of a part."""

    table: str
    cell: int
    measure: str
    cells: tuple[int, ...]
    per: str | None
    per_cells: tuple[int, ...]
    least: int


_TABLES = (
    ("PH1", "PH1_num", "PH1_denom", 1, "0-1/0 0/0 1/0"),
    ("PH2", "PH2", None, 0, "0-7 0-1 0 1 2-3 2 3 4-5 4 5 6-7 6 7"),
    ("PH3", "PH3", None, 0, "0-6 0 1-4 1 2 3 4 5-6 5 6"),
    ("PH4", "PH4", None, 0, "0-1 0 1"),
    ("PH5", "PH4", "PH5_denom", 2, "0-1/0 0/0 1/0"),
    ("PH6", "PH6", None, 0, "0-15 0-3 0 1 2 3 4-7 4 5 6 7 8-11 8 9 10 11 12-15 12 13 14 15"),
    ("PH7", "PH7", None, 0, "0-2 0 1 2"),
    ("PH8", "PH7", "PH8_denom", 1, "0-2/0-1 0-1/0 2/1"),
)
"""Tables: the measures of persons and households, the least average, and the cells of every row."""

PARTS_OF_AGES = ("PH1", "PH5")
"""Tables whose second and third cell are parts of the first, divided by the same households."""


def _cells(text: str) -> tuple[int, ...]:
    """The cells from a first to a last one."""
    first, _, last = text.partition("-")
    return tuple(range(int(first), int(last or first) + 1)) if text else ()


ROWS = {
    (table, number): Row(
        table,
        number,
        measure,
        _cells(cells.partition("/")[0]),
        per,
        _cells(cells.partition("/")[2]),
        0 if table in PARTS_OF_AGES and number > 1 else least,
    )
    for table, measure, per, least, rows in _TABLES
    for number, cells in enumerate(rows.split(), 1)
}
"""The rows of all tables."""

LARGEST, PROBABILITY = 10, 0.9
ROUNDED = 1.001e-4
"""Largest change by rounding to four decimals."""


def regions_by_level(root: Path) -> dict[str, list[str]]:
    """The regions of every level, in ascending order; raises UnusableRunFile."""
    table = read_table(root / AREAS)
    return {name: sorted(set(table[name].drop_null().to_pylist())) for name in table.column_names}


def check_privacy(root: Path, failures: Failures) -> None:
    """Check that the plan agrees with the settings, and that its noise covers the largest change by
    a person.

    To be called before noise is drawn. Raises UnusableRunFile for a plan of another form.
    """
    settings, regions = read_settings(root), regions_by_level(root)
    if list(regions) != settings["geography"]["levels"]:
        failures.add("the levels of the areas differ from the settings")
    rhos = {
        (measure, level, key): Fraction(rho)
        for measure, levels in settings["mechanism"]["budgets"].items()
        for level, keys in levels.items()
        for key, rho in keys.items()
        if Fraction(rho)
    }
    taus, total = TAUS | settings["mechanism"]["truncation"], sum(rhos.values())
    measures = [
        plan.Measure(
            UNIVERSE,
            level,
            f"{measure} {key}",
            f"{level} {measure} {key}",
            areas=len(regions[level]),
            answers=len(regions[level]) * CELLS[measure] * len(CODES[key]),
            share=rho / total,
            loss=None if settings["privacy"]["infinite"] else rho,
            moved=(2 if measure in OF_UNITS else 2 * taus[measure] + 2) ** 2,
        )
        for (measure, level, key), rho in rhos.items()
    ]
    guarantees = (plan.Guarantee(UNIVERSE, "unbounded", Fraction(total)),)
    wanted = plan.Plan(
        "supplemental-dhc",
        tuple(measures),
        guarantees,
        guarantees,
        ("areas",),
        frozenset(["settings.toml", AREAS]),
        (f"confidential/histograms/{UNIVERSE}.parquet",),
    )
    plan.check_plan(root, wanted, settings, failures)
    plan.check_sums(root, failures)


def run_checks(root: Path, release: Path) -> tuple[Outcome, ...]:
    """Check the run below `root` whose tables are in `release`; an outcome for each of `CHECKS`.

    A file that is missing or of another layout fails the checks that need it.
    """
    failures = {name: Failures() for name in CHECKS}
    privacy, layout, faithful, possible = failures.values()
    with unusable_files_fail(privacy):
        check_privacy(root, privacy)
        plan.check_measured(root, UNIVERSE, regions_by_level(root), privacy)
    with unusable_files_fail(layout, faithful, possible):
        settings = read_settings(root)
        is_private = plan.not_private_reason(settings) is None
        table = checked_table(release, "supplemental_dhc", is_private=is_private, failures=layout)
        if tuple(table.schema.names) != COLUMNS:
            raise UnusableRunFile(
                "supplemental_dhc.parquet does not have the columns of its layout"
            )
        rows, noisy = table.to_pandas(), read_noisy(root)
        check_rows(rows, noisy, layout)
        if not layout.count:
            check_faithful(rows, noisy, faithful)
            check_possible(rows, possible, is_noisy=not settings["privacy"]["infinite"])
    return tuple(failures[name].outcome(name, UNIVERSE, CHECKS[name]) for name in CHECKS)


Noisy = Mapping[tuple[str, str, str], Mapping[str, tuple[np.ndarray, float | None]]]
"""By level, region and iteration code, the noisy counts (n_cells,) of each measure and the standard
deviation of their noise, None without noise."""


def read_noisy(root: Path) -> Noisy:
    """The measurements of a run; raises UnusableRunFile."""
    found: dict[tuple[str, str, str], dict[str, tuple[np.ndarray, float | None]]] = {}
    measures = {(own.level, own.query): own.parameter for own in plan.read_plan(root).measures}
    for level in {level for level, _ in measures}:
        table = pq.read_table(plan.answers_file(root, UNIVERSE, level))
        for row in table.select(["geocode", "query_name", "value"]).to_pylist():
            query = row["query_name"].removesuffix("_dpq")
            parameter, (measure, _, key) = measures[level, query], query.partition(" ")
            sigma = None if parameter is None else math.sqrt(parameter)
            values = np.array(row["value"]).reshape(len(CODES[key]), CELLS[measure])
            for code, own in zip(CODES[key], values, strict=True):
                found.setdefault((level, row["geocode"], code), {})[measure] = own, sigma
    return found


def check_rows(rows: pd.DataFrame, noisy: Noisy, failures: Failures) -> None:
    """Check that the rows are those of the measurements, each once."""
    keys = list(rows[KEY].itertuples(index=False, name=None))
    if len(set(keys)) < len(keys):
        failures.add("a row appears twice", len(keys) - len(set(keys)))
    due = {
        (row.table, *place, row.cell)
        for place, measured in noisy.items()
        for row in ROWS.values()
        if row.measure in measured and (row.per is None or row.per in measured)
    }
    wrong = due ^ set(keys)
    if wrong:
        table, level, region, code, cell = min(wrong)
        failures.add(
            f"{table} {cell} of {level} {region}, iteration {code}, is missing or not in the plan",
            len(wrong),
        )


def check_faithful(rows: pd.DataFrame, noisy: Noisy, failures: Failures) -> None:
    """Noisy values come from the measurements, and estimated counts from them alone."""
    for row in rows.itertuples():
        own, measured = ROWS[row.table, row.cell], noisy[row.level, row.region, row.iteration]
        counts, sigma = measured[own.measure]
        value = float(counts[list(own.cells)].sum())
        if own.per is None:
            mean, share = value, 1.0
            if sigma is not None:
                wide = sigma * math.sqrt(len(own.cells))
                mean, share = _moments(value, wide, row.low, row.high)
            if abs(row.estimate - mean) > ROUNDED + 1e-9 * abs(mean):
                failures.add(f"an estimate of {row.table} differs from that of its noisy counts")
            if share < PROBABILITY - 1e-6:
                failures.add(f"an interval of {row.table} has a smaller probability than 90 %")
        else:
            number = measured[own.per][0][list(own.per_cells)].sum()
            value = value / number if number > 0 else math.nan
        # The release is rounded; NaN marks a division by nothing.
        if not (abs(row.noisy - value) <= ROUNDED or (math.isnan(row.noisy) and math.isnan(value))):
            failures.add(f"a noisy value of {row.table} differs from the measurements")


def check_possible(rows: pd.DataFrame, failures: Failures, *, is_noisy: bool) -> None:
    """No count is negative, no average impossible, and estimates are within their intervals.

    Without noise, averages over no households have no estimate.
    """
    published = rows if is_noisy else rows[rows["estimate"].notna()]
    low, high, estimate = (published[name].to_numpy() for name in ("low", "high", "estimate"))
    if np.isnan([low, high, estimate]).any():
        failures.add("an estimate or a limit is missing")
    is_ordered = (low <= high) & (estimate >= 0) & (low >= 0)
    failures.add_each(~is_ordered, "an estimate or a limit is negative or out of order")
    is_inside = (low - ROUNDED <= estimate) & (estimate <= high + ROUNDED)
    failures.add_each(~is_inside, "an estimate is not within its interval")
    if is_noisy:
        own = [ROWS[key] for key in zip(published["table"], published["cell"], strict=True)]
        least = np.array([row.least for row in own])
        is_wrong = (low < least - ROUNDED) | (high > LARGEST + ROUNDED)
        is_wrong &= np.array([row.per is not None for row in own])
        failures.add_each(is_wrong, lambda i: f"an average of {own[i].table} is impossible")


def _moments(noisy: float, sigma: float, low: float, high: float) -> tuple[float, float]:
    """Mean of a normal law about a noisy count on 0, 1, 2, ..., and its share from low to high."""
    top = max(noisy, 0.0)
    counts = np.arange(max(0.0, math.floor(top - 12 * sigma)), math.ceil(top + 12 * sigma) + 1)
    logarithm = -((counts - noisy) ** 2 - (top - noisy) ** 2) / (2 * sigma**2)
    weight = np.exp(logarithm)
    inside = weight[(counts >= low) & (counts <= high)].sum()
    return float((counts * weight).sum() / weight.sum()), float(inside / weight.sum())

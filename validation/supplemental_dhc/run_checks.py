"""Checks of a finished run of the supplemental tables, from its public files.

Privacy accounting, layout (every row of every table once, Parquet and text alike), faithfulness
(noisy values are those of the measurements, estimated counts those of truncated normal laws),
possibility (no negative counts, no household impossibly small or large). Nothing here uses the code
that measured or estimated, and nothing opens `confidential/`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from ..outcome import Failures, Outcome
from ..plan import not_private_reason, read_plan
from ..run_files import UnusableRunFile, check_text, read_settings, unusable_files_fail
from .privacy_loss import (
    CODES,
    UNIVERSE,
    check_measurements,
    check_privacy,
    read_noisy,
    regions_by_level,
)

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

COUNTS: Mapping[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
    "PH2": (
        "PH2",
        (tuple(range(8)), (0, 1), (0,), (1,), (2, 3), (2,), (3,), (4, 5), (4,), (5,))
        + ((6, 7), (6,), (7,)),
    ),
    "PH3": (
        "PH3",
        (tuple(range(7)), (0,), (1, 2, 3, 4), (1,), (2,), (3,), (4,), (5, 6), (5,), (6,)),
    ),
    "PH4": ("PH4", ((0, 1), (0,), (1,))),
    "PH6": (
        "PH6",
        (
            tuple(range(16)),
            *(
                cells
                for first in range(0, 16, 4)
                for cells in (tuple(range(first, first + 4)), *((first + n,) for n in range(4)))
            ),
        ),
    ),
    "PH7": ("PH7", ((0, 1, 2), (0,), (1,), (2,))),
}
"""Tables of counts: their measure, and the measured cells of every row from cell 1 on."""

AVERAGES: Mapping[
    str, tuple[str, str, tuple[tuple[tuple[int, ...], tuple[int, ...]], ...], int]
] = {
    "PH1": ("PH1_num", "PH1_denom", (((0, 1), (0,)), ((0,), (0,)), ((1,), (0,))), 1),
    "PH5": ("PH4", "PH5_denom", (((0, 1), (0,)), ((0,), (0,)), ((1,), (0,))), 2),
    "PH8": ("PH7", "PH8_denom", (((0, 1, 2), (0, 1)), ((0, 1), (0,)), ((2,), (1,))), 1),
}
"""Tables of averages: the measures of persons and households, the cells of every row, and the least
possible average."""

PARTS_OF_AGES = ("PH1", "PH5")
"""Tables whose second and third cell are parts of the first, divided by the same households."""

LARGEST, PROBABILITY = 10, 0.9
ROUNDED = 1.001e-4
"""Largest change by rounding to four decimals."""


def run_checks(root: Path, release: Path) -> tuple[Outcome, ...]:
    """Check the run below `root` whose tables are in `release`; an outcome for each of `CHECKS`.

    A file that is missing or of another layout fails the checks that need it.
    """
    failures = {name: Failures() for name in CHECKS}
    privacy, layout = failures["privacy_accounting"], failures["layout"]
    faithful, possible = failures["faithfulness"], failures["possibility"]
    with unusable_files_fail(privacy):
        check_privacy(root, privacy)
        check_measurements(root, privacy)
    with unusable_files_fail(layout, faithful, possible):
        settings, rows = read_settings(root), read_released(release)
        is_private = not_private_reason(settings) is None
        check_text(release, "supplemental_dhc", is_private=is_private, failures=layout)
        check_rows(root, rows, layout)
        if not layout.count:
            check_faithful(root, rows, faithful)
            check_possible(rows, possible, is_noisy=not settings["privacy"]["infinite"])
    return tuple(failures[name].outcome(name, UNIVERSE, CHECKS[name]) for name in CHECKS)


def read_released(release: Path) -> pd.DataFrame:
    """The released rows; raises UnusableRunFile for another layout."""
    table = pq.read_table(release / "supplemental_dhc.parquet")
    if tuple(table.schema.names) != COLUMNS:
        raise UnusableRunFile("supplemental_dhc.parquet does not have the columns of its layout")
    return table.to_pandas()


def expected_rows(root: Path) -> set[tuple[str, str, str, str, int]]:
    """Table, level, region, iteration and cell of all rows that the plan promises."""
    regions = regions_by_level(root)
    measured: dict[tuple[str, str], set[str]] = {}
    for own in read_plan(root).measures:
        measure, _, key = own.query.partition(" ")
        for code in CODES[key]:
            measured.setdefault((own.level, code), set()).add(measure)
    found = set()
    for (level, code), measures in measured.items():
        tables = [(name, len(own[1])) for name, own in COUNTS.items() if own[0] in measures]
        tables += [
            (name, len(own[2])) for name, own in AVERAGES.items() if {own[0], own[1]} <= measures
        ]
        found |= {
            (table, level, region, code, cell)
            for table, n_cells in tables
            for region in regions[level]
            for cell in range(1, n_cells + 1)
        }
    return found


def check_rows(root: Path, rows: pd.DataFrame, failures: Failures) -> None:
    """Check that the rows are those that the plan promises, each once."""
    keys = list(rows[KEY].itertuples(index=False, name=None))
    if len(set(keys)) < len(keys):
        failures.add("a row appears twice", len(keys) - len(set(keys)))
    wrong = expected_rows(root) ^ set(keys)
    if wrong:
        table, level, region, code, cell = min(wrong)
        failures.add(
            f"{table} {cell} of {level} {region}, iteration {code}, is missing or not in the plan",
            len(wrong),
        )


def check_faithful(root: Path, rows: pd.DataFrame, failures: Failures) -> None:
    """Noisy values come from the measurements, and estimated counts from them alone."""
    noisy, sigmas = read_noisy(root), _sigmas(root)
    for row in rows.itertuples():
        place = row.level, row.region
        if row.table in COUNTS:
            measure, cells = COUNTS[row.table]
            own = noisy[*place, measure, row.iteration][list(cells[row.cell - 1])]
            value: float = float(own.sum())
            sigma = sigmas[measure, row.level, row.iteration]
            mean, share = value, 1.0
            if sigma is not None:
                wide = sigma * math.sqrt(len(own))
                mean, share = _moments(value, wide, row.low, row.high)
            if abs(row.estimate - mean) > ROUNDED + 1e-9 * abs(mean):
                failures.add(f"an estimate of {row.table} differs from that of its noisy counts")
            if share < PROBABILITY - 1e-6:
                failures.add(f"an interval of {row.table} has a smaller probability than 90 %")
        else:
            persons, households, parts, _ = AVERAGES[row.table]
            counted, of = parts[row.cell - 1]
            number = noisy[*place, households, row.iteration][list(of)].sum()
            total = noisy[*place, persons, row.iteration][list(counted)].sum()
            value = float(total / number) if number > 0 else math.nan
        # The release is rounded; NaN marks a division by nothing.
        if not (abs(row.noisy - value) <= ROUNDED or (math.isnan(row.noisy) and math.isnan(value))):
            failures.add(f"a noisy value of {row.table} differs from the measurements")


def check_possible(rows: pd.DataFrame, failures: Failures, *, is_noisy: bool) -> None:
    """No count is negative, no average impossible, and estimates are within their intervals.

    Without noise, averages over no households have no estimate.
    """
    published = rows if is_noisy else rows[rows["estimate"].notna()]
    if published[["estimate", "low", "high"]].isna().to_numpy().any():
        failures.add("an estimate or a limit is missing")
    ordered = (
        (published["low"] <= published["high"])
        & (published["estimate"] >= 0)
        & (published["low"] >= 0)
    )
    failures.add_each(~ordered.to_numpy(), "an estimate or a limit is negative or out of order")
    inside = (published["low"] - ROUNDED <= published["estimate"]) & (
        published["estimate"] <= published["high"] + ROUNDED
    )
    failures.add_each(~inside.to_numpy(), "an estimate is not within its interval")
    for table, (*_, least) in AVERAGES.items():
        own = published[published["table"] == table]
        is_part = (table in PARTS_OF_AGES) & (own["cell"] > 1)
        low = np.where(is_part, 0.0, least) if is_noisy else 0.0
        wrong = (own["low"] < low - ROUNDED) | (own["high"] > LARGEST + ROUNDED)
        if is_noisy:
            failures.add_each(wrong.to_numpy(), f"an average of {table} is impossible")


def _sigmas(root: Path) -> dict[tuple[str, str, str], float | None]:
    """Standard deviation of the noise by measure, level and code; None without noise."""
    found: dict[tuple[str, str, str], float | None] = {}
    for own in read_plan(root).measures:
        measure, _, key = own.query.partition(" ")
        sigma = None if own.parameter is None else math.sqrt(own.parameter)
        for code in CODES[key]:
            found[measure, own.level, code] = sigma
    return found


def _moments(noisy: float, sigma: float, low: float, high: float) -> tuple[float, float]:
    """Mean of a normal law about a noisy count on 0, 1, 2, ..., and its share from low to high."""
    top = max(noisy, 0.0)
    counts = np.arange(max(0.0, math.floor(top - 12 * sigma)), math.ceil(top + 12 * sigma) + 1)
    logarithm = -((counts - noisy) ** 2 - (top - noisy) ** 2) / (2 * sigma**2)
    weight = np.exp(logarithm)
    inside = weight[(counts >= low) & (counts <= high)].sum()
    return float((counts * weight).sum() / weight.sum()), float(inside / weight.sum())

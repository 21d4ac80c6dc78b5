"""Effects of noise on margins, populations and suppression, from its distribution alone.

How large a group must be for its tables to have a small relative error, from the noise alone.

A group of N persons has N / k of them in the average of the k cells of a table. With a margin m of
every noisy count, the average cell is within the part r of its size from N = k m / r on; with a
margin M of the sum of k counts, the group's total is from N = M / r on. The thresholds that choose
tables can be set by these ([SafeTabP2025], section 6.3, which uses expected errors instead).

Suppression of a group of a given size, from the distribution of the noise alone.

The two curves follow figures 1 and 2 of [SafeTabP2025]: the probability that a group of
n persons is suppressed, P(n + X <= T), and the expected error of its count if it is released,
E[X | n + X > T], both with sizes as fractions of the threshold T. No data enter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from ...noise.distributions import IntegerDistribution
from ...noise.quantiles import margin_of_sum
from ...pages.document import Figure, Table
from ...pages.figures import line_chart
from ..workload.budgets import LevelBudget
from ..workload.tabulations import N_CELLS, SEX_BY_AGE

RELATIVE_ERRORS = (Fraction(1, 20), Fraction(1, 10))
"""Errors of cells and totals for which populations are given."""


def table_populations(
    level: LevelBudget,
    thresholds: tuple[int, ...],
    coverage: Fraction,
) -> list[dict[str, Any]]:
    """The populations that each of the four tables needs; margins hold with the coverage.

    For every table `cells` is the number of noisy counts, `from_total` the noisy total from which
    on a group gets it, `margin_of_cell` and `margin_of_total` are the margins of one count and of
    the sum of all, and the others, by relative error, the population from which on the average
    cell, and the total, are within it.

    >>> level = LevelBudget(Fraction("0.159"), 9, Fraction("0.1"))
    >>> tables = table_populations(level, (1000, 5000, 20000), Fraction("0.95"))
    >>> [table["population_for_cells"]["1/10"] for table in tables]
    [110, 880, 1980, 5060]
    """
    found = []
    for name, table, start in zip(
        SEX_BY_AGE.names, sorted(N_CELLS), (None, *thresholds), strict=True
    ):
        k = N_CELLS[table]
        one, whole = (margin_of_sum(level.second_stage, n, coverage) for n in (1, k))
        found.append(
            {
                "table": name,
                "cells": k,
                "from_total": start,
                "margin_of_cell": one,
                "margin_of_total": whole,
                "population_for_cells": {str(r): math.ceil(k * one / r) for r in RELATIVE_ERRORS},
                "population_for_total": {str(r): math.ceil(whole / r) for r in RELATIVE_ERRORS},
            }
        )
    return found


def populations_table(levels: Iterable[Mapping[str, Any]]) -> Table:
    """The populations that tables need, of `levels`, at least one, as `budget_report` has them."""

    def within(what: str, populations: Mapping[str, int]) -> dict[str, int]:
        percent = {r: f"{float(100 * Fraction(r)):.6g} %" for r in populations}
        return {f"{what} within {percent[r]}": number for r, number in populations.items()}

    rows = [
        {
            "region type": level["region_type"],
            "level": level["level"],
            "table": table["table"],
            "cells": table["cells"],
            "given from": table["from_total"],
            "margin of a cell": table["margin_of_cell"],
            "of the total": table["margin_of_total"],
            **within("average cell", table["population_for_cells"]),
            **within("total", table["population_for_total"]),
        }
        for level in levels
        for table in level["tables"]
    ]
    return Table.of(rows, "of the total")


LARGEST_SIZE = 2
"""The curves end at this multiple of the threshold."""

_SMALLEST_LOG_WEIGHT = -700.0
_LARGEST_TABLE = 1 << 22


def suppression_probability(
    noise: IntegerDistribution, threshold: int, sizes: np.ndarray
) -> np.ndarray:
    """P(n + X <= T) for each size n, as floats."""
    values, weights = _weights(noise, threshold, sizes)
    up_to = np.concatenate([[0.0], np.cumsum(weights)]) / weights.sum()
    return up_to[threshold - sizes - int(values[0]) + 1]


def released_bias(noise: IntegerDistribution, threshold: int, sizes: np.ndarray) -> np.ndarray:
    """E[X | n + X > T] for each size n (the paper's equation 13, without its normal limit)."""
    values, weights = _weights(noise, threshold, sizes)
    above = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
    moment = np.append(np.cumsum((weights * values)[::-1])[::-1], 0.0)
    first = threshold - sizes - int(values[0]) + 1
    return moment[first] / above[first]


def suppression_figures(
    levels: Mapping[str, tuple[IntegerDistribution, int]],
) -> tuple[Figure, ...]:
    """The two figures for levels, by label, of noise and threshold.

    Thresholds of 0 and below have no curve: sizes are shown as fractions of them. No figures if no
    level is left.
    """
    suppressed, biased = {}, {}
    for label, (noise, threshold) in levels.items():
        if threshold > 0:
            step = max(1, threshold // 100)
            sizes = np.arange(0, LARGEST_SIZE * threshold + 1, step)
            fraction = sizes / threshold
            suppressed[label] = fraction, suppression_probability(noise, threshold, sizes)
            biased[label] = fraction, released_bias(noise, threshold, sizes) / threshold
    if not suppressed:
        return ()
    x_label = "true size as a fraction of the threshold"
    titles = (
        "Probability that a group is suppressed",
        "Expected error of a released count, as a fraction of the threshold",
    )
    return tuple(
        Figure(
            line_chart(series, title=title, x_label=x_label, y_label=y_label),
            f"{title}, by the true size of the group. From the distribution of the noise alone.",
        )
        for title, y_label, series in zip(
            titles, ("probability", "expected error / threshold"), (suppressed, biased), strict=True
        )
    )


def _weights(
    noise: IntegerDistribution, threshold: int, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Values and weights within the range of floats and of the sizes."""
    reach = (-_SMALLEST_LOG_WEIGHT / float(noise.c)) ** (1 / noise.power)
    largest = int(min(reach, _LARGEST_TABLE)) + 1
    largest = max(largest, int(np.abs(threshold - sizes).max()) + 1)
    values = np.arange(-largest, largest + 1)
    return values, np.exp(-float(noise.c) * np.abs(values).astype(float) ** noise.power)

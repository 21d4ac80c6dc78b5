"""Effects of noise on margins, populations and suppression, from its distribution alone.

Gaussian against geometric noise of detailed groups: guarantees at equal margins.

The discrete Gaussian is accounted for by rho, the geometric by epsilon: the two are compared by the
epsilon that either has at the same delta, from the distributions of their privacy losses. Both get
the least budgets with which the margins of every level hold, in each of the two stages. One person
added or removed changes as many counts of each stage of a level as its stability, by one each;
changing a person, twice as many.

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
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from ...ledger.accounting import BOUNDED, UNBOUNDED
from ...ledger.exact_curve import PrivacyCurve
from ...ledger.loss_laws import ChangedCount
from ...ledger.plan import REPORT_DELTA
from ...noise.distributions import IntegerDistribution
from ...noise.quantiles import margin, margin_of_sum
from ...pages.document import Figure, Table
from ...pages.figures import line_chart
from ..workload.budgets import LevelBudget, least_budget
from ..workload.tabulations import N_CELLS
from .tables import TABLE_NAMES


def sentence_of(comparison: Mapping[str, Any]) -> str:
    """A comparison, as `compare_noise` has it, in words."""
    gained, people = comparison["gained"], "changed"
    if comparison["neighbors"] == UNBOUNDED:
        people = "added or removed"
    return (
        f"With one person {people}, discrete Gaussian noise of these margins has epsilon "
        f"{comparison['gaussian']:.4g} at delta {float(Fraction(comparison['delta'])):g}, "
        f"{abs(gained):.1%} {'less' if gained >= 0 else 'more'} than two-sided geometric noise "
        f"with {comparison['geometric']:.4g} ({comparison['geometric_pure']:.4g} at delta 0)."
    )


def compare_noise(
    levels: Iterable[LevelBudget], coverage: Fraction, delta: Fraction = REPORT_DELTA
) -> tuple[dict[str, Any], ...]:
    """Both kinds of noise at the margins that the noise of some levels has, by kind of neighbours:
    in JSON types.

    `gaussian` and `geometric` are the epsilons at `delta`, `geometric_pure` the geometric's at
    delta 0, and `gained` the part of the geometric's that the Gaussian saves, negative if it costs.
    The budgets of the levels only determine the margins.
    """
    changed: dict[bool, Counter[IntegerDistribution]] = {False: Counter(), True: Counter()}
    for level in levels:
        stages = [level.second_stage, *([level.first_stage] if level.stage_1_fraction else [])]
        for noise in stages:
            due = margin(noise, coverage)
            for is_pure, counts in changed.items():
                counts[narrowest(due, coverage, is_pure=is_pure)] += level.stability
    pure = float(sum(noise.c * count for noise, count in changed[True].items()))
    found = []
    for neighbors, times in ((UNBOUNDED, 1), (BOUNDED, 2)):
        gaussian, geometric = (
            PrivacyCurve(
                {ChangedCount(noise): times * k for noise, k in counts.items()}
            ).epsilon_upper(delta)
            for counts in changed.values()
        )
        found.append(
            {
                "neighbors": neighbors,
                "delta": str(delta),
                "gaussian": gaussian,
                "geometric": geometric,
                "geometric_pure": times * pure,
                "gained": 1 - gaussian / geometric,
            }
        )
    return tuple(found)


@lru_cache(maxsize=256)
def narrowest(due: int, coverage: Fraction, *, is_pure: bool) -> IntegerDistribution:
    """The noise of least loss that stays within a margin, of one of the two kinds."""
    one = LevelBudget(Fraction(1), 1, Fraction(0), is_pure)
    return one.with_budget(least_budget(one, due, coverage)).second_stage


def table_populations(
    level: LevelBudget,
    thresholds: tuple[int, ...],
    relative_errors: tuple[Fraction, ...],
    coverage: Fraction,
) -> list[dict[str, Any]]:
    """The populations that each of the four tables needs; margins hold with the coverage.

    For every table `cells` is the number of noisy counts, `from_total` the noisy total from which
    on a group gets it, `margin_of_cell` and `margin_of_total` are the margins of one count and of
    the sum of all, and the others, by relative error, the population from which on the average
    cell, and the total, are within it.

    >>> level = LevelBudget(Fraction("0.159"), 9, Fraction("0.1"))
    >>> tables = table_populations(level, (1000, 5000, 20000), (Fraction(1, 10),), Fraction("0.95"))
    >>> [table["population_for_cells"]["1/10"] for table in tables]
    [110, 880, 1980, 5060]
    """
    found = []
    for name, table, start in zip(TABLE_NAMES, sorted(N_CELLS), (None, *thresholds), strict=True):
        k = N_CELLS[table]
        one, whole = (margin_of_sum(level.second_stage, n, coverage) for n in (1, k))
        found.append(
            {
                "table": name,
                "cells": k,
                "from_total": start,
                "margin_of_cell": one,
                "margin_of_total": whole,
                "population_for_cells": {str(r): math.ceil(k * one / r) for r in relative_errors},
                "population_for_total": {str(r): math.ceil(whole / r) for r in relative_errors},
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

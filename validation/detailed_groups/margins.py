"""Margins and variances of released counts, recomputed from the noise that their losses imply."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pyarrow as pa

from ..outcome import Failures
from ..run_files import numbered
from .measured import GroupCounts
from .privacy_loss import noise_variance
from .tables import N_CELLS
from .universe import ExpectedRun

_ROUNDING = 1e-9
"""Of probabilities: either of two margins is taken where the coverage is as near to one's."""


@lru_cache(maxsize=1024)
def margins_of_sum(
    loss: Fraction, stability: int, n: int, coverage: Fraction, *, is_pure: bool
) -> tuple[int, int]:
    """The least and the largest number that may be the margin of a sum of n noisy counts.

    They are equal but for rounding. The noise has P(x) proportional to exp(-(loss / s) |x|^power);
    its probabilities are tabulated and convolved by a Fourier transform.
    """
    rate, power = float(loss) / stability, 1 if is_pure else 2
    # Beyond this lies a probability of less than 1e-12, of one count and of the sum.
    reach = math.ceil((0.6 * n + 60) / rate if is_pure else math.sqrt(30 * n / rate)) + 2
    x = np.arange(reach + 1)
    weights = np.exp(-rate * x.astype(float) ** power)
    wrapped = np.concatenate([weights, weights[:0:-1]])
    of_sum = np.fft.irfft(np.fft.rfft(wrapped / wrapped.sum()) ** n, wrapped.size)
    within = 2 * np.cumsum(of_sum[: reach + 1]) - of_sum[0]
    bounds = [float(coverage) - _ROUNDING, float(coverage) + _ROUNDING]
    least, largest = np.searchsorted(within, bounds)
    return int(least), int(largest)


@lru_cache(maxsize=1024)
def margins_of_cut_sum(
    loss: Fraction, stability: int, n: int, coverage: Fraction, *, is_pure: bool
) -> tuple[int, int]:
    """The least and the largest number that may be the margin of a sum of n noisy counts that were
    cut at 0, whatever the counts were.

    Such a sum is off by no less than the sum of the draws and no more than that of their positive
    parts, so that either tail is that of one of these.
    """
    rate, power = float(loss) / stability, 1 if is_pure else 2
    reach = math.ceil((3 * n + 60) / rate if is_pure else math.sqrt(n * (n + 30) / rate)) + 2
    x = np.arange(-reach, reach)
    weights = np.exp(-rate * np.abs(x).astype(float) ** power)
    weights /= weights.sum()
    cut = np.concatenate([np.zeros(reach), [weights[: reach + 1].sum()], weights[reach + 1 :]])
    tails = []
    for own in (weights, cut):
        of_sum = np.fft.irfft(np.fft.rfft(np.roll(own, -reach)) ** n, 2 * reach)[:reach]
        tails.append(np.cumsum(of_sum[::-1])[::-1])
    missed = np.append(tails[0] + tails[1], 0.0)[1:]
    bounds = [1 - float(coverage) + _ROUNDING, 1 - float(coverage) - _ROUNDING]
    least, largest = (int(np.argmax(missed <= bound)) for bound in bounds)
    return least, largest


def check_margins(
    group: np.ndarray,
    n_cells: np.ndarray,
    margin: np.ndarray,
    margin_if_cut: np.ndarray,
    variance: np.ndarray,
    measured_at: pa.Array,
    counts: GroupCounts,
    expected: ExpectedRun,
    failures: Failures,
) -> None:
    """Each count's margin and variance are those of the sum of so many noisy counts.

    All arrays have shape (n_rows,). `group` is the number of a count's group; the noise is that of
    the group whose measurement it shows, which is of the region type `measured_at`.
    """
    source = counts.source[group]
    names, place = numbered(measured_at)
    place_of = {name: position for position, name in enumerate(names)}
    first = np.array([level.first for level in expected.levels])
    of_level = np.searchsorted(first, source, side="right") - 1
    for number, level in enumerate(expected.levels):
        here = np.flatnonzero(of_level == number)
        failures.add_each(
            place[here] != place_of.get(level.region_type, -1),
            f"a count measured at {level.region_type} says that it was elsewhere",
        )
        only = level.total_only[(source[here] - level.first) % max(1, len(level.iterations))]
        for is_only, share in ((True, Fraction(1)), (False, 1 - expected.stage_1_fraction)):
            for n in np.unique(n_cells[here[only == is_only]]).tolist():
                rows = here[(only == is_only) & (n_cells[here] == n)]
                due, due_if_cut, wide = (0, 0), (0, 0), 0.0
                if level.budget is not None:
                    noise = level.budget * share, level.stability
                    is_pure, asked = expected.is_pure, (*noise, n, expected.confidence)
                    due = due_if_cut = margins_of_sum(*asked, is_pure=is_pure)
                    if n > 1 and not expected.allow_negative_counts:
                        due_if_cut = margins_of_cut_sum(*asked, is_pure=is_pure)
                    wide = n * noise_variance(*noise, is_pure=is_pure)
                wrong = ~np.isclose(variance[rows], wide, rtol=1e-9, atol=1e-12)
                for own, (least, largest) in ((margin, due), (margin_if_cut, due_if_cut)):
                    wrong |= (own[rows] < least) | (own[rows] > largest)
                failures.add_each(
                    wrong,
                    f"a count measured at {level.region_type}, level {level.level}, as a sum of "
                    f"{n}, has another variance than its noise, or other margins than {due[1]}",
                )


def cells_in_rows(table: np.ndarray, is_total: np.ndarray, is_marginal: np.ndarray) -> np.ndarray:
    """How many noisy counts each row of a release is the sum of, by the table of its group."""
    return np.where(is_total, N_CELLS[table], np.where(is_marginal, N_CELLS[table] // 2, 1))

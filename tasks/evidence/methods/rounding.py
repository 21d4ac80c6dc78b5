"""Rounding and cell keys: methods that change every count separately.

**Rounding** is to the nearest multiple, at random without bias, or so that tables add up. A count n
with remainder r to base b becomes one of the two nearest multiples. Random rounding takes the upper
one with probability r/b, so that the error has mean 0 and variance r(b - r); multiples, zero among
them, stay. The random number of a count is fixed by the records that it counts, so that the same
count is rounded alike wherever it is published, and repeated requests reveal nothing.

**Cell keys** give noise that the records of a cell fix, so that the same cell has the same. Every
record has a random key. The key of a cell is the fractional part of the sum of its records' keys,
and chooses the noise from the perturbation table's row of the cell's count (Fraser and Wooton 2005;
the European handbook on statistical disclosure control). Totals have noise of their own, so that
tables do not add up unless that is restored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import sparse

from ...solvers.highs import SolveStatus, solve
from ..tables import PublishedTable


def nearest(counts: np.ndarray, base: int) -> PublishedTable:
    """Counts rounded to the nearest multiple of the base, halves away from zero.

    >>> nearest(np.array([[1.0, 2.0, 5.0]]), 3).value
    array([[0., 3., 6.]])
    """
    value = base * np.floor(counts / base + 0.5)
    below = base // 2
    return PublishedTable(value, np.maximum(value - below, 0), value + (base - 1) // 2)


def random(counts: np.ndarray, base: int, uniform: np.ndarray) -> PublishedTable:
    """Counts rounded without bias by random numbers in [0, 1) of the same shape.

    >>> random(np.array([[17.0, 17.0, 18.0]]), 3, np.array([[0.1, 0.9, 0.1]])).value
    array([[18., 15., 18.]])
    """
    remainder = np.mod(counts, base)
    value = counts - remainder + base * (uniform < remainder / base)
    return PublishedTable.within(value, base - 1)


def round_controlled(counts: np.ndarray, base: int, groups: Sequence[np.ndarray]) -> PublishedTable:
    """Round counts to one of the two nearest multiples so that rows and columns add up.

    counts : (n_entities, n_answers).
    groups : for each two-way table its rows, positions of entities; every entity in one of them.

    Each two-way table is rounded with its row totals, column totals and total, each to one of its
    two nearest multiples, at the least sum of absolute changes of all of them: a network flow,
    whose linear program has a whole-number solution. Only values of the cells are returned; totals
    are their sums, as near to the true ones as a cell is. Raises ValueError if the solver finds no
    solution.
    """
    value = np.empty_like(counts)
    for rows in groups:
        value[rows] = _round_two_way(counts[rows], base)
    sums = PublishedTable.within(value.sum(axis=1), base - 1)
    return replace(PublishedTable.within(value, base - 1), total=np.stack([sums.low, sums.high]))


def _round_two_way(counts: np.ndarray, base: int) -> np.ndarray:
    """One two-way table `(m, n)`: in units of the base, the additions to the floors are a flow.

    The unknowns are whether each cell, row total, column total and the total take their upper
    multiple; rows equate the additions of cells with those of totals.
    """
    m, n = counts.shape
    totals = [counts.ravel(), counts.sum(axis=1), counts.sum(axis=0), counts.sum()[None]]
    floors = [np.floor(part / base) for part in totals]
    parts = [part / base - floor for part, floor in zip(totals, floors, strict=True)]
    fraction = np.concatenate(parts)
    free = fraction > 0
    # Going up from a fraction f changes a count by 1 - f in place of f, so costs 1 - 2f more.
    cost = np.where(free, 1 - 2 * fraction, 0)
    by_row = sparse.kron(sparse.eye_array(m), np.ones((1, n)))
    by_column = sparse.kron(np.ones((1, m)), sparse.eye_array(n))
    above = sparse.vstack([by_row, by_column, sparse.csr_array(np.ones((1, m * n)))])
    matrix = sparse.csr_array(sparse.hstack([above, -sparse.eye_array(m + n + 1)]))
    missing = np.concatenate(floors[1:]) - above @ floors[0]
    found = solve(cost, matrix, missing, missing, np.zeros(len(cost)), free.astype(float))
    if found.status is not SolveStatus.OPTIMAL or found.x is None:
        raise ValueError(f"controlled rounding to base {base} ended as {found.status}")
    return base * (floors[0] + np.round(found.x[: m * n])).reshape(m, n)


def look_up_noise(counts: np.ndarray, keys: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The noise of cells `(n,)` by their counts and keys: the first column of the row of each
    whose cumulated probability is above the key, as a number from -D to D.

    >>> rows = np.array([[0, 1, 0], [0, 1, 0], [0, 1, 0], [0.3, 0.4, 0.3]])
    >>> looked_up(np.array([3]), np.array([0.8]), rows)
    array([1])
    """
    row = np.minimum(counts, len(table) - 1).astype(np.int64)
    below = np.cumsum(table, axis=1)[row] <= keys[:, None]
    # Rounding of the last sum may leave the largest key above it.
    column = np.minimum(below.sum(axis=1), table.shape[1] - 1)
    return column - table.shape[1] // 2


def perturb_counts(counts: np.ndarray, sums: np.ndarray, table: np.ndarray) -> PublishedTable:
    """Counts `(n_entities, n_answers)` with their cells' noise, by the sums of records' keys.

    With the perturbation table known, a count is at most the largest noise away, a published zero
    may be a small count, and a published value above 0 is a count of at least 1: zeros stay.
    """
    keys = np.mod(sums, 1.0)
    noise = look_up_noise(counts.ravel(), keys.ravel(), table).reshape(counts.shape)
    value = counts + noise
    bounds = PublishedTable.within(value, table.shape[1] // 2)
    return replace(bounds, low=np.maximum(bounds.low, value > 0))

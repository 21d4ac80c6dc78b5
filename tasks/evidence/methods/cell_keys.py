"""The cell-key method: noise that the records of a cell fix, so that the same cell has the same.

Every record has a random key. The key of a cell is the fractional part of the sum of its records'
keys, and chooses the noise from the perturbation table's row of the cell's count (Fraser and Wooton
2005; the European handbook on statistical disclosure control). Totals have noise of their own, so
that tables do not add up unless that is restored.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..workload.tables import PublishedTable


def looked_up(counts: np.ndarray, keys: np.ndarray, table: np.ndarray) -> np.ndarray:
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


def perturbed(counts: np.ndarray, sums: np.ndarray, table: np.ndarray) -> PublishedTable:
    """Counts `(n_entities, n_answers)` with their cells' noise, by the sums of records' keys.

    With the perturbation table known, a count is at most the largest noise away, a published zero
    is a count that may become one, and what is published above 0 is a count of 1 at least: zeros
    stay.
    """
    keys = np.mod(sums, 1.0)
    noise = looked_up(counts.ravel(), keys.ravel(), table).reshape(counts.shape)
    value = counts + noise
    bounds = PublishedTable.within(value, table.shape[1] // 2)
    return replace(bounds, low=np.maximum(bounds.low, value > 0))

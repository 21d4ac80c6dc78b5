"""Noise averaged away over all published figures that share cells.

A total that was perturbed on its own is also the sum of the perturbed parts of every table that
splits it [Averaging2020]. Least squares makes the best of all of them at once; rounded,
it is the exact count once enough tables are out. Noise of bounded size leaves intervals besides,
of which `ranges` finds what all integer solutions have in common.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.stats import norm

from .systems import UNBOUNDED, TableSystem

COUNT_CLASSES = {"0": (0, 0), "1": (1, 1), "2": (2, 2), "3-9": (3, 9), "10+": (10, UNBOUNDED)}
"""Classes of true counts by name: the least and the greatest."""


def answers_needed(variance: float, confidence: float = 0.95) -> float:
    """How many independent answers of a variance leave less than a half of error: (2 z)^2 variance.

    15.4 times the variance for 95 %; a split in two parts has twice the variance.
    """
    return float((2 * norm.ppf((1 + confidence) / 2)) ** 2 * variance)


@dataclass(frozen=True)
class Estimates:
    """`values` has shape `(blocks, figures)`, `variance` is one a figure; NaN if none follows."""

    values: np.ndarray
    variance: np.ndarray

    def counts(self) -> np.ndarray:
        """The nearest counts, none below 0."""
        return np.maximum(np.rint(self.values), 0)


def best_estimates(
    system: TableSystem,
    published: np.ndarray,
    variance: np.ndarray,
    wanted: sparse.csr_array | None = None,
) -> Estimates:
    """Weighted least squares of `wanted @ x` from `published`, the rows of `system.matrix @ x`.

    With W the inverse of the variances and B = W^1/2 A, x = B^+ W^1/2 y, whose covariance is
    B^+ B^+' (the least there is without bias). `published` has shape `(blocks, rows)`, `variance`
    `(rows,)`, all above 0; wanted figures are the published ones unless others are given. One that
    no combination of rows gives has NaN. Raises ValueError if a variance is not above 0.
    """
    if not (np.asarray(variance) > 0).all():
        raise ValueError("every row must have a variance above 0")
    weight = 1 / np.sqrt(np.asarray(variance, dtype=float))
    weighted = sparse.csr_array(sparse.diags_array(weight) @ system.matrix)
    asked = sparse.csr_array(system.matrix if wanted is None else wanted, dtype=float)
    gram = (weighted @ weighted.T).toarray()
    gain = (asked @ weighted.T).toarray() @ np.linalg.pinv(gram, rcond=1e-10, hermitian=True)
    lacking = np.abs(gain @ weighted - asked.toarray()).max(axis=1, initial=0) > 1e-6
    values = np.asarray(published, dtype=float) @ (gain * weight).T
    spread = (gain**2).sum(axis=1)
    return Estimates(np.where(lacking, np.nan, values), np.where(lacking, np.nan, spread))


def bounded_noise(
    published: np.ndarray, reach: int, *, zeros_stay: bool = False, smallest: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the rows under noise of at most `reach` in size, for `reconstruct` and `ranges`.

    With `zeros_stay`, true zeros are published as such, so that whatever is above 0 is at least 1.
    Counts below `smallest` are never published, so that a zero may be any count within the reach.
    """
    published = np.asarray(published, dtype=np.int64)
    lower = np.maximum(published - reach, 0)
    if zeros_stay:
        lower = np.where(published > 0, np.maximum(lower, 1), 0)
    upper = np.where(published > 0, published + reach, max(reach, smallest - 1))
    return lower, upper


def recovered(estimates: np.ndarray, truth: np.ndarray) -> dict[str, tuple[int, float]]:
    """Cells and the share of them recovered exactly, by the class of their true count.

    A NaN is not recovered; the share of a class without cells is NaN.
    """
    shares = {}
    right = np.asarray(estimates) == truth
    for name, (least, greatest) in COUNT_CLASSES.items():
        inside = (truth >= least) & (truth <= greatest)
        shares[name] = (int(inside.sum()), float(right[inside].mean()) if inside.any() else np.nan)
    return shares

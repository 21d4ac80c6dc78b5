"""Noise averaged away over all published figures that share cells.

A total that was perturbed on its own is also the sum of the perturbed parts of every table that
splits it [Averaging2020]. Least squares makes the best of all of them at once; rounded,
it is the exact count once enough tables are out: (2 z)^2 V independent answers of variance V, which
for 95 % are 15.4 V.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from .systems import UNBOUNDED, TableSystem

COUNT_CLASSES = {"0": (0, 0), "1": (1, 1), "2": (2, 2), "3-9": (3, 9), "10+": (10, UNBOUNDED)}
"""Classes of true counts by name: the least and the greatest."""


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

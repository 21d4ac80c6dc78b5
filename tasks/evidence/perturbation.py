"""Perturbation tables of the cell-key method: the distribution of the noise of every count.

A row has the largest entropy among distributions with mean 0, at most a given variance and a
largest noise (Giessing 2016; the R package ptable, which the European handbook on statistical
disclosure control describes); counts from 1 to a threshold are not published, and zeros stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import LinearConstraint, minimize

_LEAST = 1e-8
"""Least probability of a noise that a row allows, as in ptable."""
_NEAR = 5e-4
"""A variance is met if it is right to three digits."""


@dataclass(frozen=True)
class Perturbation:
    """Parameters of a perturbation table.

    largest : largest absolute noise D.
    variance : largest variance V of a row.
    threshold : js; there are no published counts from 1 to it.
    staying : least probability that a count stays; None for no such demand.
    monotone : for the rows 1, 2, ..., whether probabilities may not fall towards noise 0 from the
        left; the last holds for all later rows.
    """

    largest: int
    variance: float
    threshold: int = 0
    staying: float | None = None
    monotone: Sequence[bool] = (True,)

    def __post_init__(self) -> None:
        if self.largest < 1 or self.variance <= 0 or not 0 <= self.threshold <= self.largest:
            raise ValueError(
                "a perturbation table needs a largest noise of at least 1, a variance above 0 and "
                "a threshold from 0 to the largest noise"
            )

    @property
    def last_row(self) -> int:
        """The count from which on all have one row, which is symmetric."""
        return self.largest + (self.threshold + 1 if self.threshold else 0)

    def row(self, count: int) -> np.ndarray:
        """Probabilities `(2 D + 1,)` of the noise -D to D at a count of at least 1.

        The row of largest entropy -sum p log p under sum p = 1, sum p v = 0, sum p v^2 <= V, with
        every possible p at least 1e-8. Where the variance is not reached because the least
        probability of staying is too large, that probability is lowered by 0.05 at a time. Raises
        ValueError where no distribution has mean 0 and a variance of at most V.
        """
        count = min(count, self.last_row)
        noise = np.arange(-self.largest, self.largest + 1)
        target = count + noise
        possible = (target >= 0) & ~((target >= 1) & (target <= self.threshold))
        own = noise[possible]
        is_monotone = self.monotone[min(count, len(self.monotone)) - 1]
        staying = self.staying if 0 in own else None
        for _ in range(21):
            found = _largest_entropy(own, self.variance, staying, is_monotone)
            if found is None:
                raise ValueError(
                    f"no noise of at most {self.largest} with mean 0 and a variance of at most "
                    f"{self.variance:g} turns a count of {count} into 0 or more than "
                    f"{self.threshold}: raise the variance or lower the threshold"
                )
            reached = (found * own**2).sum() > self.variance - _NEAR
            if staying is None or reached or count <= self.threshold or staying <= 0:
                break
            staying = max(staying - 0.05, 0.0)
        row = np.zeros(len(noise))
        row[possible] = found
        return row

    def table(self) -> np.ndarray:
        """Rows for the counts 0 to `last_row`, (last_row + 1, 2 D + 1); a count of 0 stays."""
        zero = (np.arange(-self.largest, self.largest + 1) == 0).astype(float)
        return np.array([zero, *(self.row(count) for count in range(1, self.last_row + 1))])


def _largest_entropy(
    noise: np.ndarray, variance: float, staying: float | None, is_monotone: bool
) -> np.ndarray | None:
    """Probabilities of some noise values `(k,)` of the largest entropy; see `Perturbation.row`.

    None where no distribution meets the demands.
    """
    lower = np.full(len(noise), _LEAST)
    if staying is not None:
        lower[noise == 0] = max(staying, _LEAST)
    n = len(noise)
    fixed = LinearConstraint(np.array([np.ones(n), noise]), [1.0, 0.0], [1.0, 0.0])
    limited = [LinearConstraint(noise[None] ** 2.0, -np.inf, variance)]
    if is_monotone and (n_left := int((noise <= 0).sum())) > 1:
        rises = np.diff(np.eye(n), axis=0)[: n_left - 1]
        limited.append(LinearConstraint(rises, 0.0, np.inf))
    found = minimize(
        lambda p: float((p * np.log(p)).sum()),
        np.full(n, 1 / n),
        jac=lambda p: np.log(p) + 1,
        bounds=[(least, 1.0) for least in lower],
        constraints=[fixed, *limited],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    p = np.maximum(found.x, 0)
    if abs((p * noise).sum()) > _NEAR or (p * noise**2).sum() > variance + _NEAR:
        return None
    return p / p.sum()

"""What a measurement of detailed groups cost, and the noise that this implies, recomputed."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa

from ..noise import gaussian_variance, laplace_variance
from ..outcome import Failures
from ..run_files import encoded, parse_fraction
from .universe import ExpectedLevel, ExpectedRun

INFINITE = "inf"


def noise_variance(loss: Fraction, stability: int, *, is_pure: bool) -> float:
    """Variance of the discrete Gaussian of sigma^2 = s / (2 loss), or of the geometric of s / loss.

    The geometric's is 2 r / (1 - r)^2 with r = exp(-loss / s). The discrete Gaussian's is a sum;
    from sigma^2 = 30 on it is sigma^2 to within the accuracy of a float.
    """
    if is_pure:
        return laplace_variance(stability / loss)
    return gaussian_variance(stability / (2 * loss))


def check_noise(
    batch: pa.RecordBatch,
    rows: np.ndarray,
    level: ExpectedLevel,
    share: Fraction,
    expected: ExpectedRun,
    loss: Failures,
) -> None:
    """The rows of a mask spent this share of the level's budget, with noise of its variance."""
    due = None if level.budget is None else level.budget * share
    plb = encoded(batch.column("plb"))
    texts, codes = plb.dictionary.to_pylist(), plb.indices.to_numpy()
    is_due = [
        text == INFINITE if due is None else text != INFINITE and parse_fraction(text) == due
        for text in texts
    ]
    loss.add_each(
        rows & ~np.array(is_due, dtype=bool)[codes],
        lambda i: (
            f"a {level.region_type} group of level {level.level} was measured at a plb of "
            f"{texts[codes[i]]} instead of {INFINITE if due is None else due}"
        ),
    )
    noise = 0.0
    if due is not None:
        noise = noise_variance(due, level.stability, is_pure=expected.is_pure)
    variance = batch.column("variance").to_numpy()
    loss.add_each(
        rows & ~np.isclose(variance, noise, rtol=1e-9, atol=1e-12),
        lambda i: (
            f"a {level.region_type} group of level {level.level} has the variance "
            f"{variance[i]:.6g} instead of {noise:.6g}"
        ),
    )

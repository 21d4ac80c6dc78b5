"""Noisy measurements carry the noise that their loss pays for: variances and values recomputed.

A measurement of loss rho has discrete Gaussian noise with sigma^2 = 1 / rho, and one of loss
epsilon discrete Laplace noise of scale 2 / epsilon, between neighbours of which one record is
another. Variances are computed anew from the definitions of these distributions.
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..outcome import Failures
from ..run_files import UnusableRunFile, encoded, parse_fraction
from .cells import spelled
from .privacy_loss import DPQUERY_SUFFIX, INFINITE
from .run_files import ExpectedUniverse, SpineLevel, read_batches

RELATIVE_TOLERANCE = 1e-9
LARGEST_SUMMED = 1_000
"""sigma^2 up to which the variance is summed term by term; by Poisson's summation formula it
differs from a larger sigma^2 by less than exp(-2 pi^2 sigma^2)."""

ANSWERED_ROWS_PER_BATCH = 1 << 12
"""Rows read at once: each has as many values as its query has rows."""


def gaussian_variance(sigma_squared: Fraction) -> float:
    """Sum of x^2 exp(-x^2 / (2 sigma^2)) over all integers x, over the sum without the x^2.

    >>> round(gaussian_variance(Fraction(1, 4)), 4)
    0.2132
    """
    if sigma_squared > LARGEST_SUMMED:
        return float(sigma_squared)
    furthest = math.ceil(40 * math.sqrt(sigma_squared)) + 2
    # Quotients of integers are rounded as a fraction is, and cost a tenth.
    above, below = sigma_squared.denominator, 2 * sigma_squared.numerator
    weights = [math.exp(-(x * x * above / below)) for x in range(1, furthest)]
    second_moment = 2 * math.fsum(x * x * weight for x, weight in enumerate(weights, 1))
    return second_moment / (1 + 2 * math.fsum(weights))


def laplace_variance(scale: Fraction) -> float:
    """Sum of x^2 r^|x| over all integers x, over the sum without the x^2, for r = exp(-1 / scale).

    With geometric series this is 2 r / (1 - r)^2.
    """
    exponent = -float(1 / scale)
    return 2 * math.exp(exponent) / math.expm1(exponent) ** 2


def variance_of_loss(loss: str, *, is_pure: bool) -> float:
    """Variance of the noise that a loss, as a file spells it, pays for; 0 for `inf`.

    Raises UnusableRunFile for a loss that is no positive fraction.
    """
    if loss == INFINITE:
        return 0.0
    value = parse_fraction(loss)
    if not value:
        raise UnusableRunFile("a measurement has a loss of 0")
    return laplace_variance(2 / value) if is_pure else gaussian_variance(1 / value)


def check_measured_noise(
    run_directory: Path, expected: ExpectedUniverse, level: SpineLevel, failures: Failures
) -> None:
    """Check the values and variances of a geolevel's measurements, or of a part of one.

    Every measurement has an integer for each row of its query, unless it was measured on demand,
    and the variance of the noise that its loss pays for, which is not 0 unless the run is without
    noise. Queries that are not expected
    are left to the check of completeness. Raises UnusableRunFile for a file of another layout.
    """
    n_rows = {
        spelled(name) + DPQUERY_SUFFIX: expected.cells.margin(name).n_rows
        for name in expected.query_shares[level.name]
    }
    variances: dict[str, float] = {}
    measured = run_directory / "measurements" / expected.cells.universe / level.name
    for batch in read_batches(
        measured / expected.measurements,
        ("geocode", "query_name", "value", "variance", "plb"),
        as_dictionary=["query_name", "plb"],
        level=level,
        rows_per_batch=ANSWERED_ROWS_PER_BATCH,
    ):
        queries, losses = encoded(batch.column("query_name")), encoded(batch.column("plb"))
        due = [n_rows.get(name, -1) for name in queries.dictionary.to_pylist()]
        due_rows = np.array(due, dtype=np.int64)[queries.indices.to_numpy()]
        lengths = _lengths(batch.column("value"))
        if not expected.on_demand:
            _add_lengths(failures, level, lengths, due_rows)
        for text in losses.dictionary.to_pylist():
            if text not in variances:
                variances[text] = variance_of_loss(text, is_pure=expected.is_pure)
        wanted = np.array([variances[text] for text in losses.dictionary.to_pylist()])
        wanted = wanted[losses.indices.to_numpy()]
        found = batch.column("variance").cast(pa.float64()).to_numpy()
        _add_variances(failures, level, found, wanted)
        if expected.total is not None:
            failures.add_each(
                found <= 0, lambda _: f"a measurement at {level.name} carries no noise"
            )


def _add_lengths(
    failures: Failures, level: SpineLevel, lengths: np.ndarray, due: np.ndarray
) -> None:
    """Record measurements of another number of values than is `due`, where that is known."""
    failures.add_each(
        (due >= 0) & (lengths != due),
        lambda i: f"a measurement at {level.name} has {lengths[i]} values instead of {due[i]}",
    )


def _add_variances(
    failures: Failures, level: SpineLevel, found: np.ndarray, wanted: np.ndarray
) -> None:
    """Record measurements of another variance than their loss pays for."""
    failures.add_each(
        ~(np.abs(found - wanted) <= RELATIVE_TOLERANCE * wanted),
        lambda i: (
            f"a measurement at {level.name} has variance {found[i]:g}, its loss pays for "
            f"{wanted[i]:g}"
        ),
    )


def _lengths(values: pa.Array) -> np.ndarray:
    """Number of values of each measurement; raises UnusableRunFile for what are no integers."""
    kind = values.type
    if not (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    ) or not pa.types.is_integer(kind.value_type):
        raise UnusableRunFile("the values of measurements are no lists of integers")
    if values.flatten().null_count:
        raise UnusableRunFile("a value of a measurement is missing")
    return pc.list_value_length(values).to_numpy(zero_copy_only=False).astype(np.int64)

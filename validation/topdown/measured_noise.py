"""Noisy measurements carry the noise that their loss pays for: variances and values recomputed.

A measurement of loss rho has discrete Gaussian noise with sigma^2 = 1 / rho, and one of loss
epsilon discrete Laplace noise of scale 2 / epsilon, between neighbours of which one record is
another. Variances are computed anew from the definitions of these distributions (`noise`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from ..noise import gaussian_variance, laplace_variance
from ..outcome import Failures
from ..run_files import UnusableRunFile, numbered, parse_fraction
from .cells import spelled
from .privacy_loss import DPQUERY_SUFFIX, INFINITE
from .run_files import ExpectedUniverse, SpineLevel, lengths_of_lists, read_batches

RELATIVE_TOLERANCE = 1e-9
ANSWERED_ROWS_PER_BATCH = 1 << 9
"""Rows read at once: each has as many values as its query has rows."""


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
        queries, query = numbered(batch.column("query_name"))
        due_rows = np.array([n_rows.get(name, -1) for name in queries], dtype=np.int64)[query]
        lengths = lengths_of_lists(
            batch.column("value"),
            "the values of measurements are no lists of integers",
            "a value of a measurement is missing",
        )
        if not expected.on_demand:
            _add_lengths(failures, level, lengths, due_rows)
        losses, loss = numbered(batch.column("plb"))
        for text in losses:
            if text not in variances:
                variances[text] = variance_of_loss(text, is_pure=expected.is_pure)
        wanted = np.array([variances[text] for text in losses])[loss]
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

"""How often intervals have the truth: truths of the flat prior, and noise from the sampler."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from spineflow.tasks.noise.distributions import DISCRETE_GAUSSIAN, SeededRandom
from spineflow.tasks.noise.sampler import draw_noise
from spineflow.tasks.supplemental_dhc.estimation import (
    ROWS,
    NoisyCounts,
    Row,
    average_estimate,
    condition_on_presence,
    count_posterior,
    estimate_row,
)

REPLICATES = 2_000
TOLERANCE = 0.015
WITHIN = 60
"""Truths lie between 0 and so many standard deviations: few of them see the upper end."""

pytestmark = [pytest.mark.slow, pytest.mark.soak(5)]


def noise(sigma_squared: Fraction, size: int, seed: int) -> np.ndarray:
    return draw_noise(DISCRETE_GAUSSIAN, sigma_squared, size, SeededRandom(seed, "coverage"))


@pytest.mark.parametrize("sigma_squared", [Fraction(98 * 10**6, 662976), Fraction(14_783)])
def test_intervals_of_counts(sigma_squared: Fraction) -> None:
    """The noise of PH3 by race in states, and of persons by origin in states."""
    rng = np.random.default_rng(20)
    sigma = float(sigma_squared) ** 0.5
    truth = rng.integers(0, int(WITHIN * sigma) + 1, REPLICATES)
    noisy = truth + noise(sigma_squared, REPLICATES, 1)
    found = [count_posterior(int(one), float(sigma_squared)).estimate() for one in noisy]
    covered = [own.low <= one <= own.high for own, one in zip(found, truth, strict=True)]
    assert np.mean(covered) == pytest.approx(0.9, abs=TOLERANCE)


def row_of(table: str, number: int) -> Row:
    return next(row for row in ROWS if (row.table, row.number) == (table, number))


@pytest.mark.parametrize(
    ("table", "number"), [("PH1", 1), ("PH1", 2), ("PH5", 1), ("PH5", 3), ("PH8", 2), ("PH8", 1)]
)
def test_intervals_of_averages(table: str, number: int) -> None:
    """Truths are drawn flat from all persons and households that are possible together."""
    row = row_of(table, number)
    assert row.of is not None
    rng = np.random.default_rng(number + len(table))
    sigma_persons, sigma_households = Fraction(22**2 * 10**6, 2 * 141622), Fraction(10**6, 585)
    n_counted = len(row.counted.numbers)
    rest = [] if row.rest is None else row.rest.numbers
    most = WITHIN * float(sigma_households) ** 0.5
    truths = np.empty((0, 3))
    while len(truths) < REPLICATES:
        tried = rng.uniform(0, 1, (400_000, 3)) * [10 * most, 10 * most if rest else 0, most]
        tried = np.round(tried)
        whole, households = tried[:, 0] + tried[:, 1], tried[:, 2]
        possible = (households >= 1) & (whole >= row.smallest * households)
        truths = np.concatenate([truths, tried[possible & (whole <= 10 * households)]])
    truths = truths[:REPLICATES].astype(np.int64)
    counted = truths[:, 0] + noise(sigma_persons * n_counted, REPLICATES, 2)
    others = truths[:, 1] + noise(sigma_persons, REPLICATES, 3)
    households = truths[:, 2] + noise(sigma_households * len(row.of.numbers), REPLICATES, 4)
    covered = []
    for one, other, number_of, (true, _, true_households) in zip(
        counted, others, households, truths, strict=True
    ):
        found = average_estimate(
            count_posterior(int(one), float(sigma_persons * n_counted)),
            condition_on_presence(
                count_posterior(int(number_of), float(sigma_households * len(row.of.numbers)))
            ),
            (float(row.smallest), 10.0),
            count_posterior(int(other), float(sigma_persons)) if rest else None,
        )
        covered.append(found.low <= true / true_households <= found.high)
        assert found.high <= 10 + 1e-9
        assert found.low >= (0.0 if rest else row.smallest) - 1e-9
    assert np.mean(covered) == pytest.approx(0.9, abs=TOLERANCE)


def test_rows_are_estimated_as_their_cells_are_measured() -> None:
    """`estimate_row` takes from the noisy counts what the tests above give to the posteriors."""
    values = {
        "PH4": np.array([310, 790]),
        "PH5_denom": np.array([400]),
        "PH7": np.array([100, 200, 300]),
        "PH8_denom": np.array([110, 120]),
    }
    noisy = NoisyCounts(values, dict.fromkeys(values, 900.0))
    value, found = estimate_row(row_of("PH5", 2), noisy)
    assert value == 310 / 400
    young, old = count_posterior(310, 900.0), count_posterior(790, 900.0)
    households = condition_on_presence(count_posterior(400, 900.0))
    assert found == average_estimate(young, households, (2.0, 10.0), old)
    value, found = estimate_row(row_of("PH8", 1), noisy)
    assert value == 600 / 230
    persons, homes = (
        count_posterior(600, 2700.0),
        condition_on_presence(count_posterior(230, 1800.0)),
    )
    assert found == average_estimate(persons, homes, (1.0, 10.0))
    value, found = estimate_row(row_of("PH7", 1), noisy)
    assert value == 600.0 and found == count_posterior(600, 2700.0).estimate()

"""Epsilon from distributions of the privacy loss: against closed forms, enumeration and bounds."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest
from spineflow.tasks.ledger.accounting import epsilon_tight
from spineflow.tasks.ledger.loss_distributions import epsilon_of_changed_counts
from spineflow.tasks.noise.distributions import IntegerDistribution

DELTAS = [Fraction(1, 10**3), Fraction(1, 10**6), Fraction(1, 10**10)]


def gaussian(sigma_squared: str) -> IntegerDistribution:
    return IntegerDistribution(1 / (2 * Fraction(sigma_squared)), 2)


def laplace(epsilon: str) -> IntegerDistribution:
    return IntegerDistribution(Fraction(epsilon), 1)


def single_losses(noise: IntegerDistribution) -> dict[float, float]:
    """Probability of each loss of one count, by the probabilities of its draws."""
    c, power = float(noise.c), noise.power
    reach = 60 if power == 2 else 120
    weights = {x: math.exp(-c * abs(x) ** power) for x in range(-reach, reach + 1)}
    whole = math.fsum(weights.values())
    found: dict[float, float] = {}
    for x, weight in weights.items():
        loss = round(c * (abs(x - 1) ** power - abs(x) ** power), 9)
        found[loss] = found.get(loss, 0.0) + weight / whole
    return found


def delta_by_enumeration(noises: list[IntegerDistribution], epsilon: float) -> float:
    total = {0.0: 1.0}
    for noise in noises:
        added: dict[float, float] = {}
        for (a, p), (b, q) in product(total.items(), single_losses(noise).items()):
            added[round(a + b, 9)] = added.get(round(a + b, 9), 0.0) + p * q
        total = added
    return math.fsum(p * -math.expm1(epsilon - loss) for loss, p in total.items() if loss > epsilon)


@pytest.mark.parametrize("delta", [Fraction(1, 50), Fraction(1, 10**4), Fraction(1, 10**8)])
@pytest.mark.parametrize(
    "noises",
    [
        [gaussian("1.3")],
        [gaussian("2"), gaussian("2"), gaussian("5")],
        [laplace("0.7"), laplace("0.7"), laplace("0.2"), laplace("1.1")],
        [laplace("0.5"), gaussian("3")],
    ],
)
def test_delta_at_the_epsilon_is_that_of_all_outcomes(noises, delta: Fraction) -> None:
    changed = {noise: noises.count(noise) for noise in noises}
    found = epsilon_of_changed_counts(changed, delta)
    assert delta_by_enumeration(noises, found) <= float(delta) * (1 + 1e-3)
    if found > 0.01:
        assert delta_by_enumeration(noises, found - 0.01) > float(delta)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("count", [1, 9, 40])
def test_geometric_noise_never_costs_more_than_composition(count: int, delta: Fraction) -> None:
    found = epsilon_of_changed_counts({laplace("0.3"): count}, delta)
    assert 0 < found <= 0.3 * count + 1e-3
    if count == 40 and delta == DELTAS[1]:
        assert found < 0.8 * 0.3 * count


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize(("sigma_squared", "count"), [("2.343", 18), ("31.4", 36), ("625", 45)])
def test_gaussian_noise_is_within_the_conversion_of_its_rho(
    sigma_squared: str, count: int, delta: Fraction
) -> None:
    """Below the bound of [DiscreteGaussian2020], and not far."""
    noise = gaussian(sigma_squared)
    bound = epsilon_tight(noise.c * count, delta)
    assert 0.85 * bound < epsilon_of_changed_counts({noise: count}, delta) < bound


def test_nothing_changed_costs_nothing() -> None:
    assert epsilon_of_changed_counts({}, DELTAS[0]) == 0
    assert epsilon_of_changed_counts({gaussian("2"): 0}, DELTAS[0]) == 0


@pytest.mark.parametrize("delta", [Fraction(1, 10**12), Fraction(1)])
def test_other_deltas_are_refused(delta: Fraction) -> None:
    with pytest.raises(ValueError, match="is not from 1e-11 to 1"):
        epsilon_of_changed_counts({gaussian("2"): 1}, delta)

"""The curves of suppression and bias against simulation-free sums and the normal limit."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from spineflow.tasks.detailed_groups.release.figures import released_bias, suppression_probability
from spineflow.tasks.noise.distributions import IntegerDistribution

SIZES = np.array([0, 1, 40, 93, 94, 150, 186])


def by_definition(noise: IntegerDistribution, threshold: int, n: int) -> tuple[float, float]:
    weights = {x: math.exp(-float(noise.c) * abs(x) ** noise.power) for x in range(-4000, 4001)}
    all_of_it = sum(weights.values())
    shown = {x: w for x, w in weights.items() if n + x > threshold}
    return (
        1 - sum(shown.values()) / all_of_it,
        sum(x * w for x, w in shown.items()) / sum(shown.values()),
    )


@pytest.mark.parametrize(("power", "c"), [(2, Fraction(1, 1250)), (1, Fraction(1, 20))])
def test_curves_are_the_sums_that_they_stand_for(power: int, c: Fraction) -> None:
    noise = IntegerDistribution(c, power)
    probability = suppression_probability(noise, 93, SIZES)
    bias = released_bias(noise, 93, SIZES)
    for i, n in enumerate(SIZES.tolist()):
        due_probability, due_bias = by_definition(noise, 93, n)
        assert probability[i] == pytest.approx(due_probability, abs=1e-12)
        assert bias[i] == pytest.approx(due_bias, rel=1e-9)


def test_a_group_of_nobody_is_suppressed_with_the_chance_that_was_asked() -> None:
    noise = IntegerDistribution(Fraction(1, 1250), 2)
    at, below = (suppression_probability(noise, t, np.array([0]))[0] for t in (93, 92))
    assert below < 0.9999 <= at

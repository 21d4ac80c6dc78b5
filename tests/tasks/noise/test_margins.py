"""The loss that a margin needs: the smallest one of four digits, by the exact distribution."""

from __future__ import annotations

from fractions import Fraction

import pytest
from spineflow.tasks.noise.draws import Noise
from spineflow.tasks.noise.margins import COVERAGE, _exponent, distribution_of, loss_for_margin
from spineflow.tasks.noise.mechanisms import DISCRETE_GAUSSIAN, DISCRETE_LAPLACE
from spineflow.tasks.noise.quantiles import margin


@pytest.mark.parametrize("mechanism", [DISCRETE_GAUSSIAN, DISCRETE_LAPLACE])
@pytest.mark.parametrize("target", [0, 1, 7, 60])
@pytest.mark.parametrize("now", [Fraction(1, 1000), Fraction(3)])
def test_the_loss_is_enough_and_a_little_less_is_not(
    mechanism: str, target: int, now: Fraction
) -> None:
    noise = Noise(mechanism, 40 / now)
    needed = loss_for_margin(noise, now, target)

    def margin_at(loss: Fraction) -> int:
        return margin(distribution_of(Noise(mechanism, noise.parameter * now / loss)), COVERAGE)

    assert margin_at(needed) <= target
    assert margin_at(needed * Fraction(998, 1000)) > target


def test_the_answer_does_not_depend_on_the_present_loss() -> None:
    at = [
        loss_for_margin(Noise(DISCRETE_GAUSSIAN, Fraction(50) / loss), loss, 9)
        for loss in (Fraction(1, 7), Fraction(1), Fraction(200))
    ]
    assert len(set(at)) == 1


def test_a_negative_margin_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        loss_for_margin(Noise(DISCRETE_LAPLACE, Fraction(1)), Fraction(1), -1)


@pytest.mark.parametrize(
    ("value", "exponent"),
    [("1", 0), ("10", 1), ("11", 2), ("99/100", 0), ("1/10", -1), ("1/11", -1), ("1/1000", -3)],
)
def test_an_exponent_is_that_of_the_next_power_of_ten(value: str, exponent: int) -> None:
    assert _exponent(Fraction(value)) == exponent

"""Variances of discrete noise against high-precision sums of their definitions."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from spineflow.validation.noise import gaussian_variance, laplace_variance
from spineflow.validation.run_files import UnusableRunFile
from spineflow.validation.topdown.measured_noise import variance_of_loss

PARAMETERS = [Fraction(text) for text in ("1/50", "1/4", "2/3", "1", "17/5", "40", "999", "1001")]


def summed_variance(ratio: Decimal, ratio_of_ratios: Decimal) -> float:
    """Sum of x^2 w(x) over sum of w(x), to where the weights vanish.

    The weight of 0 is 1, w(1) is `ratio`, and w(x + 1) / w(x) changes by `ratio_of_ratios` from
    one x to the next: an exponential for each of a hundred thousand terms would take seconds.
    """
    total, second, x, weight = Decimal(1), Decimal(0), 1, ratio
    while weight > Decimal("1e-50"):
        total, second, x = total + 2 * weight, second + 2 * x * x * weight, x + 1
        ratio *= ratio_of_ratios
        weight *= ratio
    return float(second / total)


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_variances_are_those_of_the_definitions(parameter):
    with localcontext() as context:
        context.prec = 60
        value = Decimal(parameter.numerator) / Decimal(parameter.denominator)
        # Squares grow by 1, 3, 5 and so on.
        gaussian = summed_variance((-1 / (2 * value)).exp(), (-1 / value).exp())
        laplace = summed_variance((-1 / value).exp(), Decimal(1))
    assert math.isclose(gaussian_variance(parameter), gaussian, rel_tol=1e-12)
    assert math.isclose(laplace_variance(parameter), laplace, rel_tol=1e-12)


def test_small_noise_has_visibly_less_variance_than_sigma_squared():
    assert gaussian_variance(Fraction(1, 4)) < 0.9 / 4
    assert gaussian_variance(Fraction(101)) == pytest.approx(101, rel=1e-12)


def test_a_loss_pays_for_the_noise_of_its_mechanism():
    assert variance_of_loss("1/50", is_pure=False) == pytest.approx(50)
    assert variance_of_loss("1/50", is_pure=True) == laplace_variance(Fraction(100))
    assert variance_of_loss("inf", is_pure=True) == 0
    for text in ("0", "-1/2", "1/0", "x"):
        with pytest.raises(UnusableRunFile):
            variance_of_loss(text, is_pure=False)

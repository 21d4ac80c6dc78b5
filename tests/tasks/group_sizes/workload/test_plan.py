"""Plans: calibrated, stored, and refused where noise would not fit."""

from __future__ import annotations

from fractions import Fraction

import pytest
from spineflow.tasks.group_sizes.workload.mechanisms import VECTOR_OF
from spineflow.tasks.group_sizes.workload.plan import ImpossiblePlan, Plan, make_plan

CENSUS = {
    "names": ["nation", "state", "county"],
    "n_regions": [1, 52, 3144],
    "sizes": (1, 1000),
    "groups": 117_630_445,
}


def scales(**changes) -> list[Fraction | None]:
    return [level.scale for level in make_plan(**CENSUS | changes).levels]


def test_scales_are_those_of_the_paper_where_it_covers_the_sensitivity() -> None:
    epsilon = Fraction("0.1")
    assert scales(epsilon=epsilon, mechanism="hierarchical_dp") == [60, 60, 60]
    assert scales(epsilon=epsilon, mechanism="cumulative_dp") == [30, 30, 30]
    assert scales(epsilon=epsilon, mechanism="chain_dp") == [30, 30 * 52, 30 * 3144]
    assert scales(epsilon=epsilon, mechanism="chain_dp", calibration="published") == [30, 30, 30]


def test_bounded_neighbours_double_and_quantities_multiply() -> None:
    one = Fraction(1)
    assert scales(epsilon=one, mechanism="hierarchical_dp", bounded=True) == [12, 12, 12]
    assert scales(epsilon=one, mechanism="cumulative_dp", bounded=True, quantity=4) == [24, 24, 24]
    assert scales(epsilon=one, mechanism="hierarchical_dp", quantity=4) == [6, 6, 6]


def test_shares_and_no_noise() -> None:
    shares = [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)]
    plan = make_plan(**CENSUS, epsilon=Fraction(1), shares=shares)
    assert plan.mechanism == "cumulative_dp"
    assert [level.scale for level in plan.levels] == [2, 4, 4]
    assert plan.weights == (16, 4, 4)
    assert scales(epsilon=None) == [None, None, None]


@pytest.mark.parametrize("mechanism", [None, *VECTOR_OF])
@pytest.mark.parametrize("epsilon", [None, Fraction("0.1")])
def test_a_plan_is_read_back_as_it_was(mechanism: str | None, epsilon: Fraction | None) -> None:
    plan = make_plan(**CENSUS, epsilon=epsilon, mechanism=mechanism)
    assert Plan.from_json(plan.to_json()) == plan


def test_noise_that_does_not_fit_is_refused() -> None:
    make_plan(**CENSUS, epsilon=Fraction("0.01"), mechanism="chain_dp")
    make_plan(**CENSUS, epsilon=Fraction("1e-6"), mechanism="cumulative_dp")
    with pytest.raises(ImpossiblePlan):
        make_plan(**CENSUS, epsilon=Fraction("1e-5"), mechanism="chain_dp")

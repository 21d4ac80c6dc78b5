"""Plans: calibrated, stored, and refused where noise would not fit."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from spineflow.geography.hierarchy import AreaLevel
from spineflow.tasks.group_sizes.ingest.regions import RegionHierarchy
from spineflow.tasks.group_sizes.plan import VECTOR_OF, Plan
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.files import read_values, write_values

from tests.tasks.group_sizes.plans import make_plan

CENSUS = {
    "names": ["nation", "state", "county"],
    "n_regions": [1, 52, 3144],
    "sizes": (1, 1000),
    "groups": 117_630_445,
}


def parameters(plan: Plan) -> list[Fraction | None]:
    """The scale or sigma^2 of every level."""
    return [None if level.noise is None else level.noise.parameter for level in plan.levels]


def scales(**changes) -> list[Fraction | None]:
    return parameters(make_plan(**CENSUS | changes))


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
    assert parameters(plan) == [2, 4, 4]
    assert plan.weights == (16, 4, 4)
    assert scales(epsilon=None) == [None, None, None]


def variances(**changes) -> list[Fraction | None]:
    plan = make_plan(**CENSUS | {"epsilon": None} | changes)
    assert plan.noise == "discrete_gaussian"
    return parameters(plan)


def test_gaussian_noise_covers_squared_sensitivities() -> None:
    half = Fraction(1, 2)
    assert variances(rho=half, mechanism="hierarchical_dp") == [6, 6, 6]
    assert variances(rho=half, mechanism="hierarchical_dp", bounded=True) == [18, 18, 18]
    assert variances(rho=half, mechanism="cumulative_dp") == [3, 3, 3]
    assert variances(rho=half, mechanism="cumulative_dp", bounded=True, quantity=4) == [24] * 3
    assert variances(rho=half, mechanism="chain_dp") == [3, 3 * 52, 3 * 3144]


def test_levels_with_the_same_regions_are_measured_once() -> None:
    census = CENSUS | {"n_regions": [1, 1, 5], "groups": 1000, "epsilon": Fraction(1)}
    plan = make_plan(**census)
    assert [level.share for level in plan.levels] == [Fraction(1, 2), 0, Fraction(1, 2)]
    assert parameters(plan) == [2, None, 2]
    assert plan.repeated == {"state": "nation"}
    assert (plan.measured, plan.weights) == ((0, 2), (1, 0, 1))
    given = make_plan(**census, shares=[Fraction(1, 6), Fraction(1, 6), Fraction(2, 3)])
    assert [level.share for level in given.levels] == [Fraction(1, 3), 0, Fraction(2, 3)]
    county = make_plan(**census | {"n_regions": [1, 1, 1]})
    assert [level.share for level in county.levels] == [1, 0, 0]
    assert county.repeated == {"state": "nation", "county": "nation"}


def test_a_level_without_a_share_is_not_measured() -> None:
    shares = [Fraction(0), Fraction(1, 3), Fraction(2, 3)]
    plan = make_plan(**CENSUS, epsilon=Fraction(1), shares=shares)
    assert parameters(plan) == [None, 3, Fraction(3, 2)]
    assert plan.weights == (0, 4, 16)
    assert plan.repeated == {}


@pytest.mark.parametrize("mechanism", [None, *VECTOR_OF])
@pytest.mark.parametrize(
    "loss", [{"epsilon": None}, {"epsilon": Fraction("0.1")}, {"epsilon": None, "rho": Fraction(2)}]
)
def test_a_plan_is_read_back_as_it_was(mechanism: str | None, loss, tmp_path: Path) -> None:
    plan = make_plan(**CENSUS, **loss, mechanism=mechanism, exact_level="state", is_top_coded=True)
    write_values(tmp_path / "plan.json", plan)
    assert read_values(tmp_path / "plan.json", Plan) == plan


def test_a_plan_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"mechanism": "chain_dp", "levels": [{"level": "US"}]}))
    with pytest.raises(InputRefused, match="use the version that wrote it"):
        read_values(path, Plan)


def test_noise_that_does_not_fit_is_refused() -> None:
    make_plan(**CENSUS, epsilon=Fraction("0.01"), mechanism="chain_dp")
    make_plan(**CENSUS, epsilon=Fraction("1e-6"), mechanism="cumulative_dp")
    with pytest.raises(InputRefused, match="64-bit"):
        make_plan(**CENSUS, epsilon=Fraction("1e-5"), mechanism="chain_dp")


@pytest.fixture
def hierarchy() -> RegionHierarchy:
    parents = ([-1], [0, 0], [0, 0, 1], [0, 1, 1, 2])
    return RegionHierarchy(
        tuple(
            AreaLevel(f"l{depth}", np.array([f"{depth}.{i}" for i in range(len(p))]), np.array(p))
            for depth, p in enumerate(parents)
        )
    )


def test_counts_are_summed_up_to_the_root(hierarchy: RegionHierarchy) -> None:
    finest = np.arange(8).reshape(4, 2)
    levels = hierarchy.sum_up(finest)
    assert levels[3] is finest
    assert levels[2].tolist() == [[0, 1], [6, 8], [6, 7]]
    assert levels[1].tolist() == [[6, 9], [6, 7]]
    assert levels[0].tolist() == [[12, 16]]

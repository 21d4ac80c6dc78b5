from __future__ import annotations

from fractions import Fraction

import pytest
from spineflow.tasks.census.cef_2020 import PERSONS, UNITS
from spineflow.tasks.topdown.spine.build import on_aian_spine
from spineflow.tasks.topdown.spine.summary import total_shares
from spineflow.tasks.topdown.workload.budget import Budget


def budget(mechanism: str, geolevels: dict[str, str], queries: dict[str, str]) -> Budget:
    shares = {name: Fraction(share) for name, share in queries.items()}
    return Budget(
        "persons",
        mechanism,
        Fraction(1),
        None,
        {name: Fraction(share) for name, share in geolevels.items()},
        dict.fromkeys(geolevels, shares),
    )


def test_tracts_take_the_shares_of_geolevels_that_they_replace() -> None:
    names = [
        "US",
        "State",
        "County",
        "Prim",
        "Tract_Subset_Group",
        "Tract_Subset",
        "Block_Group",
        "Block",
    ]
    shares = on_aian_spine(dict.fromkeys(names, Fraction(1, 8)))
    assert list(shares) == ["US", "State", "County", "Tract", "Block_Group", "Block"]
    assert shares["Tract"] == Fraction(3, 8)
    assert sum(shares.values()) == 1
    redistricting = {"State": Fraction(1, 2), "Tract": Fraction(1, 4), "Block": Fraction(1, 4)}
    assert on_aian_spine(redistricting) == redistricting


def test_population_is_told_by_every_query() -> None:
    gaussian = budget("discrete_gaussian", {"Block": "1"}, {"total": "1/2", "votingage": "1/2"})
    assert total_shares(gaussian, PERSONS, is_part=False) == {"Block": pytest.approx(3 / 4)}
    laplace = budget("discrete_laplace", {"Block": "1"}, {"total": "1/2", "votingage": "1/2"})
    assert total_shares(laplace, PERSONS, is_part=False) == {
        "Block": pytest.approx((1 / 4 + 1 / 8) ** 0.5)
    }


@pytest.mark.parametrize(
    "mechanism, expected", [("discrete_gaussian", 2.0), ("discrete_laplace", 2**0.5)]
)
def test_vacant_units_tell_as_much_as_occupied_ones(mechanism: str, expected: float) -> None:
    """Two answers of variance v whose sum is known: the variance of each is v / 2."""
    units = budget(mechanism, {"Block": "1"}, {"detailed": "1"})
    assert total_shares(units, UNITS, is_part=True) == {"Block": pytest.approx(expected)}


def test_tracts_of_the_comparison_ask_as_the_geolevels_that_they_replace() -> None:
    dhc = budget(
        "discrete_gaussian",
        {"Prim": "1/4", "Tract_Subset": "1/4", "Block": "1/2"},
        {"total": "1/2", "votingage": "1/2"},
    )
    assert total_shares(dhc, PERSONS, is_part=False)["Tract"] == pytest.approx(3 / 4)

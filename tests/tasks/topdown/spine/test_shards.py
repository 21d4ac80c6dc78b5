"""Cuts of a spine: whole families, everybody once, no larger than the geolevel asks for."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spineflow.tasks.census.queries import Schema
from spineflow.tasks.topdown.spine import files
from spineflow.tasks.topdown.spine.build import on_aian_spine
from spineflow.tasks.topdown.spine.files import VALUES_PER_SHARD, values_per_shard
from spineflow.tasks.topdown.workload.budget import Budget


@dataclass(frozen=True)
class Families:
    """What cutting asks of a spine of two geolevels."""

    n_children: list[int]
    names = ("County", "Tract")

    @property
    def geolevels(self) -> tuple[range, range]:
        return range(len(self.n_children)), range(sum(self.n_children))

    def children(self, _geolevel: str) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.n_children)])


@pytest.mark.parametrize(
    ("n_values", "most"),
    [
        (0, VALUES_PER_SHARD),
        (256 * VALUES_PER_SHARD, VALUES_PER_SHARD),
        (256 * VALUES_PER_SHARD + 256, VALUES_PER_SHARD + 1),
        (10**10, 32_000_000),
    ],
)
def test_shards_grow_with_a_nation_up_to_what_a_task_can_hold(n_values: int, most: int) -> None:
    assert values_per_shard(n_values) == most


@given(
    n_children=st.lists(st.integers(0, 9), min_size=1, max_size=40),
    values=st.integers(1, 5),
    smallest=st.integers(1, 20),
    n_shards=st.integers(1, 6),
    most=st.integers(1, 30),
)
def test_every_family_is_in_one_shard(n_children, values, smallest, n_shards, most) -> None:
    spine = Families(n_children)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "VALUES_PER_SHARD", smallest)
        patched.setattr(files, "SHARDS_OF_A_GEOLEVEL", n_shards)
        cut = files._cut(spine, "Tract", most, values)
        wanted = min(most, max(1, values_per_shard(sum(n_children) * values) // values))
    offsets = spine.children("County")
    assert [one.start for one in cut[1:]] == [one.stop for one in cut[:-1]]
    assert sum(one.stop - one.start for one in cut) == sum(n_children)
    for one in cut:
        assert (one.start, one.stop) == (offsets[one.parent_start], offsets[one.parent_stop])
        assert 0 < one.stop - one.start < wanted + 2 * max(n_children)


@pytest.mark.parametrize("on_demand", [False, True])
def test_shards_of_many_cells_are_smaller_unless_answers_are_drawn_on_demand(
    on_demand: bool, monkeypatch
) -> None:
    monkeypatch.setattr(files, "CELLS_PER_SHARD", 20)
    schema = Schema("persons", ("age",), (tuple("0123456789"),))
    shares = dict.fromkeys(Families.names, {"total": Fraction(1)})
    budget = Budget("persons", "discrete_gaussian", Fraction(1), None, {}, shares)
    cut = files.cut_spine(Families([2, 2, 2]), schema, budget, on_demand=on_demand)
    of_tracts = [(one.start, one.stop) for one in cut if one.geolevel == "Tract"]
    assert of_tracts == ([(0, 6)] if on_demand else [(0, 2), (2, 4), (4, 6)])


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

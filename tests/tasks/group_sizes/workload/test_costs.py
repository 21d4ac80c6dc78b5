"""Budgets for one level and for several at once: what is told does what is said."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest
from spineflow.tasks.group_sizes.workload.costs import needed_split
from spineflow.tasks.group_sizes.workload.plan import Plan, make_plan
from spineflow.tasks.runs.errors import InputRefused

NAMES, REGIONS = ("nation", "state", "county"), (1, 6, 60)


def plan(mechanism: str, rho: Fraction | None = Fraction(1, 2), **changes: object) -> Plan:
    of = {"names": NAMES, "n_regions": REGIONS, "sizes": (1, 12), "groups": 1000, "shares": None}
    of |= {"epsilon": None if rho else Fraction(1), "rho": rho, "mechanism": mechanism}
    return make_plan(**(of | changes))


@pytest.mark.parametrize("mechanism", ["cumulative_dp", "hierarchical_dp", "topdown"])
def test_a_split_that_is_told_needs_no_more(mechanism: str) -> None:
    told = needed_split(plan(mechanism), {"nation": 5, "county": 20})
    total, listed = re.search(r"at rho (\S+) with mechanism.levels = { (.*?) }", told).groups()
    shares = dict(part.split(" = ") for part in listed.split(", "))
    assert list(shares) == list(NAMES)
    fractions = [Fraction(share.strip('"')) for share in shares.values()]
    again = needed_split(plan(mechanism, shares=fractions), {"nation": 5, "county": 20})
    assert again.endswith(f"the shares of now need {total}")
    assert float(total) < float(told.rpartition(" ")[2])


def test_levels_with_the_same_regions_have_one_share() -> None:
    told = needed_split(
        plan("cumulative_dp", names=("nation", "state", "county"), n_regions=(1, 1, 9)),
        {"nation": 5, "county": 20},
    )
    assert 'state = "0"' in told


def test_where_there_is_no_split() -> None:
    assert needed_split(plan("chain_dp"), {"nation": 5, "county": 20}) is None
    assert needed_split(plan("cumulative_dp", rho=None), {"nation": 5, "county": 20}) is None
    with pytest.raises(InputRefused, match="name one of nation, state, county"):
        needed_split(plan("cumulative_dp"), {"tract": 5, "county": 20})

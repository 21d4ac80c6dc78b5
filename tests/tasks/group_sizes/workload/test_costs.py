"""Budgets for one level and for several at once: what is told does what is said."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
from spineflow.tasks.group_sizes.workload.costs import needed_budget, needed_split
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


def test_a_budget_that_is_told_is_enough_for_its_margin() -> None:
    told = needed_budget(plan("cumulative_dp"), "county", 20)
    assert told.startswith("The number of groups up to any size in a region of county is within 20")
    (total,) = re.findall(r"at rho (\S+) and these shares \(now 0\.5\)", told)
    values = np.arange(-600, 601)
    for loss, is_enough in ((Fraction(total), True), (Fraction(total) * 999 / 1000, False)):
        sigma_squared = plan("cumulative_dp", rho=loss).levels[-1].sigma_squared
        weights = np.exp(-(values**2) / (2 * float(sigma_squared)))
        within = weights[np.abs(values) <= 20].sum() / weights.sum()
        assert bool(within >= 0.95) is is_enough


def test_levels_that_are_not_measured_have_no_budget() -> None:
    own = plan("cumulative_dp", n_regions=(1, 1, 9))
    with pytest.raises(InputRefused, match="name a measured level: nation, county"):
        needed_budget(own, "state", 20)

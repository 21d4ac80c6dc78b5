"""Shares of the levels: exact sums, the paper's noise, and what optimising them buys."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from spineflow.tasks.solvers.level_split import RegularTree
from spineflow.tasks.trips.workload.budget import (
    geometric_shares,
    level_budget,
    mean_fanouts,
    measured_levels,
    optimised_shares,
    uniform_shares,
)
from spineflow.tasks.trips.workload.hierarchy import hierarchy_of_links
from spineflow.tasks.trips.workload.neighbors import Contribution
from spineflow.tasks.trips.workload.tree import Tree, od_tree


def country() -> Tree:
    regions = np.array([f"{i:02d}" for i in range(4)])
    towns = np.array([f"{r}{i:02d}" for r in regions for i in range(15)])
    levels = [("region", regions, None), ("town", towns, np.array([t[:2] for t in towns]))]
    return od_tree(hierarchy_of_links("from", levels), hierarchy_of_links("to", levels))


def test_noise_of_the_paper() -> None:
    """sigma^2 = T / rho with uniform shares, bounded neighbours and one trip a person."""
    tree, rho = country(), Fraction(1, 7)
    contribution = Contribution()
    budget = level_budget(
        tree, contribution, rho, uniform_shares(measured_levels(tree, contribution))
    )
    assert {budget.sigma_squared(level) for level in range(1, 5)} == {tree.depth / rho}


def test_unbounded_neighbours_measure_the_root() -> None:
    tree, contribution = country(), Contribution(is_bounded=False)
    assert measured_levels(tree, contribution) == (0, 1, 2, 3, 4)
    assert measured_levels(tree, Contribution()) == (1, 2, 3, 4)
    shares = uniform_shares(range(5))
    assert level_budget(tree, contribution, Fraction(1), shares).sigma_squared(0) == Fraction(5, 2)


def test_unsound_shares_are_refused() -> None:
    tree = country()
    for shares in ({1: Fraction(1, 2)}, {1: Fraction(3, 2), 2: Fraction(-1, 2)}):
        with pytest.raises(ValueError, match="exactly 1"):
            level_budget(tree, Contribution(), Fraction(1), shares)


def test_geometric_shares_add_to_one() -> None:
    shares = geometric_shares([1, 2, 3, 4], Fraction(3, 2))
    assert sum(shares.values()) == 1
    assert shares[4] / shares[3] == Fraction(3, 2)


@pytest.mark.parametrize("contribution", [Contribution(), Contribution(False, 5, True)])
def test_optimised_shares_beat_uniform_ones(contribution: Contribution) -> None:
    tree = country()
    levels = measured_levels(tree, contribution)
    shares = optimised_shares(tree, contribution, levels)
    assert sum(shares.values()) == 1
    assert all(share > 0 and 1000 % share.denominator == 0 for share in shares.values())

    def log_product(chosen) -> float:
        budget = level_budget(tree, contribution, Fraction(1), chosen)
        precisions = np.zeros(tree.depth + 1)
        for level in levels:
            precisions[level] = 1 / float(budget.sigma_squared(level))
        regular = RegularTree(tuple(mean_fanouts(tree)), contribution.has_invariant_total)
        found = regular.variances(precisions)
        return float(np.log(found[1:]).sum())

    assert log_product(shares) < log_product(uniform_shares(levels))

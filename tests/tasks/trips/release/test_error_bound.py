"""Theorem 4 with its constants: it holds in nearly all replicates, and is not absurdly far."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from spineflow.tasks.noise.draws import UnchargedNoise
from spineflow.tasks.noise.randomness import SeededRandom
from spineflow.tasks.trips.estimation.projection import chebyshev_projection
from spineflow.tasks.trips.measurement.measure import with_noise
from spineflow.tasks.trips.release.error_bound import theorem_4
from spineflow.tasks.trips.workload.budget import level_budget, measured_levels, uniform_shares
from spineflow.tasks.trips.workload.hierarchy import hierarchy_of_links
from spineflow.tasks.trips.workload.mechanisms import INFTDA, TDA_L2
from spineflow.tasks.trips.workload.neighbors import Contribution
from spineflow.tasks.trips.workload.plan import Plan
from spineflow.tasks.trips.workload.tree import od_tree
from spineflow.tasks.trips.workload.truth import TrueTree, summed


def plan_for(contribution: Contribution, mechanism: str = INFTDA) -> Plan:
    regions = np.array(["a", "b", "c"])
    towns = np.array([f"{region}{i}" for region in regions for i in range(5)])
    levels = [("region", regions, None), ("town", towns, np.array([t[0] for t in towns]))]
    tree = od_tree(hierarchy_of_links("from", levels), hierarchy_of_links("to", levels))
    shares = uniform_shares(measured_levels(tree, contribution))
    budget = level_budget(tree, contribution, Fraction(1, 50), shares)
    return Plan(mechanism, tree, None, budget, None, False)


@pytest.mark.parametrize("contribution", [Contribution(), Contribution(is_bounded=False)])
def test_bound_holds_in_replicates(contribution: Contribution) -> None:
    plan = plan_for(contribution)
    tree = plan.tree
    random = np.random.default_rng(1)
    keys = np.arange(tree.n_nodes(tree.depth))
    truth = TrueTree(tree, summed(keys, random.poisson(2, size=keys.size)))
    bounds = np.array(theorem_4(plan))
    n_replicates, worst = 60, []
    for replicate in range(n_replicates):
        source = UnchargedNoise(SeededRandom(replicate))
        counts = np.array([truth.leaves.total])
        if 0 in plan.budget.shares:
            counts = np.maximum(0, with_noise(counts, plan, 0, source))
        nodes, errors = np.zeros(1, dtype=np.int64), [abs(counts[0] - truth.leaves.total)]
        for level in range(1, tree.depth + 1):
            children, offsets, true = truth.children(level, nodes)
            noisy = with_noise(true, plan, level, source)
            counts = chebyshev_projection(noisy, offsets, counts)
            errors.append(abs(counts - true).max())
            nodes = children
        worst.append(errors)
    exceeded = (np.array(worst) > bounds).any(axis=1).mean()
    assert exceeded <= 0.05
    assert (np.mean(worst, axis=0)[1:] > bounds[1:] / 30).all()
    assert (np.diff(bounds) > 0).all()


def test_no_bound_where_the_theorem_does_not_hold() -> None:
    assert theorem_4(plan_for(Contribution(), TDA_L2)) is None
    assert theorem_4(plan_for(Contribution()))[0] == 0

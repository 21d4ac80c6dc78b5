"""The loss of every change of one person's trips, over all levels of a plan, against its charge."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
from spineflow.tasks.ledger.accounting import epsilon_tight
from spineflow.tasks.ledger.plan import REPORT_DELTA
from spineflow.tasks.noise.distributions import SeededRandom
from spineflow.tasks.trips.charge import epsilons_within_areas
from spineflow.tasks.trips.ingest.ingest import PersonTrips
from spineflow.tasks.trips.plan import Plan, make_plan
from spineflow.tasks.trips.settings import TripsSettings
from spineflow.tasks.trips.tree import Tree

from tests.tasks.trips.privacy import privacy_of
from tests.tasks.trips.workload.test_neighbors import small_trees


def settings_of(mechanism: str, neighbors: str, trips: int, *, distinct: bool) -> TripsSettings:
    privacy: dict[str, Any] = {
        "dataset": "d",
        "neighbors": neighbors,
        "trips_per_person": trips,
        "distinct_trips": distinct,
        "total": "measured",
        "excess_trips": "dropped",
    }
    loss = {"rho": "3/2"}
    if mechanism == "stability_histogram":
        loss = {"epsilon": "3/2", "delta": "1e-6"}
        del privacy["total"]
    source = {"trips": "t.csv", "origin": "o", "destination": "d", "person": "p", "areas": "a.csv"}
    return TripsSettings.model_validate(
        {"input": source, "privacy": privacy | loss, "mechanism": {"name": mechanism}}
    )


@cache
def contributions(n_leaves: int, trips: int, distinct: bool) -> tuple[tuple[int, ...], ...]:
    """What is kept of every table of one person with up to one trip more than are allowed."""
    kept = {()}
    for n in range(1, trips + 2):
        for leaves in combinations_with_replacement(range(n_leaves), n):
            rows = PersonTrips(np.zeros(n, np.int64), np.array(leaves), np.ones(n, np.int64))
            for seed in range(3):
                found = rows.sample_trips(privacy_of(True, trips, distinct), SeededRandom(seed))
                kept.add(tuple(np.repeat(found.keys, found.counts).tolist()))
    assert max(map(len, kept)) == trips
    return tuple(sorted(kept))


def counts(tree: Tree, level: int, leaves: tuple[int, ...]) -> np.ndarray:
    """The counts of a level of these trips."""
    nodes = np.array(leaves, dtype=np.int64)
    for above in range(tree.depth, level, -1):
        nodes = tree.parent_keys(above, nodes)
    return np.bincount(nodes, minlength=tree.n_nodes(level))


def loss(plan: Plan, change: dict[int, np.ndarray]) -> Fraction:
    """What the changes of all measured levels cost under the plan's noise."""
    total = Fraction(0)
    for level in plan.levels:
        parameter = plan.parameter(level)
        if plan.threshold is not None:
            total += int(np.abs(change[level]).sum()) / parameter
        else:
            total += int((change[level] ** 2).sum()) / (2 * parameter)
    return total


@pytest.mark.parametrize("mechanism", ["inftda", "inftda_full_information", "stability_histogram"])
@pytest.mark.parametrize("neighbors", ["bounded", "unbounded"])
@pytest.mark.parametrize("shape", ["columns", "pairs"])
@pytest.mark.parametrize(("trips", "distinct"), [(1, False), (2, False), (2, True)])
def test_no_change_of_a_person_costs_more_than_is_charged(
    mechanism: str, neighbors: str, shape: str, trips: int, distinct: bool
) -> None:
    """Sums over origins or destinations alone, which are the levels of pairs, included."""
    tree = small_trees()[shape]
    plan = make_plan(settings_of(mechanism, neighbors, trips, distinct=distinct), tree)
    leaves = contributions(tree.n_nodes(tree.depth), trips, distinct)
    if mechanism == "stability_histogram" and neighbors == "bounded":
        # The number of trips is exact there: everybody makes as many.
        leaves = tuple(own for own in leaves if len(own) == trips)
    of_person = [{level: counts(tree, level, own) for level in plan.levels} for own in leaves]
    others = of_person if neighbors == "bounded" else [of_person[0]]
    assert neighbors == "bounded" or leaves[0] == ()
    most = max(
        loss(plan, {level: one[level] - two[level] for level in plan.levels})
        for one in of_person
        for two in others
    )
    assert plan.guarantee is not None
    if neighbors == "unbounded" and not distinct:
        assert most == plan.guarantee.parameter
    assert most <= plan.guarantee.parameter


@pytest.mark.parametrize("neighbors", ["bounded", "unbounded"])
@pytest.mark.parametrize("shape", ["columns", "pairs"])
@pytest.mark.parametrize(("trips", "distinct"), [(1, False), (2, False), (2, True)])
def test_trips_that_stay_in_known_areas_cost_no_more_than_is_stated(
    neighbors: str, shape: str, trips: int, distinct: bool
) -> None:
    """Threat model: a certificate that claims too much."""
    tree = small_trees()[shape]
    plan = make_plan(settings_of("inftda", neighbors, trips, distinct=distinct), tree)
    leaves = contributions(tree.n_nodes(tree.depth), trips, distinct)
    of_person = [{level: counts(tree, level, own) for level in plan.levels} for own in leaves]
    stated = epsilons_within_areas(plan, REPORT_DELTA)
    assert stated
    for level in plan.levels[:-1]:
        most = max(
            loss(plan, {own: one[own] - two[own] for own in plan.levels})
            for one in of_person
            for two in of_person
            if (one[level] == two[level]).all()
        )
        assert most > 0
        assert epsilon_tight(most, REPORT_DELTA) <= stated[tree.level_name(level)]

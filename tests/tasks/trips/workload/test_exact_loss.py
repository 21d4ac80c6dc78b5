"""The exact curve of trips, against the losses of all changes of one person on small trees."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.ledger.accounting import epsilon_tight
from spineflow.tasks.ledger.spending import SpentDraw
from spineflow.tasks.noise.distributions import distribution_of
from spineflow.tasks.trips.charge import curve_of_change, exact_curve
from spineflow.tasks.trips.plan import Plan, make_plan
from spineflow.tasks.trips.settings import TripsSettings
from spineflow.tasks.trips.tree import Tree, column_tree, hierarchy_of_links, od_tree

from tests.tasks.ledger.all_outcomes import by_enumeration, counts_of
from tests.tasks.trips.workload.test_loss_of_neighbours import contributions, counts

EPSILONS = (Fraction(0), Fraction(1, 2), Fraction(5, 4), Fraction(5, 2))

TREES = {
    # Two regions of two places each, and pairs of places.
    "columns": column_tree(
        [
            hierarchy_of_links(
                "x",
                [
                    ("one", np.array(["a", "b"]), None),
                    ("two", np.array(["a1", "a2", "b1", "b2"]), np.array(["a", "a", "b", "b"])),
                ],
            )
        ]
    ),
    "pairs": od_tree(*[hierarchy_of_links("y", [("one", np.array(["p", "q"]), None)])] * 2),
}


def settings_of(
    *,
    neighbors: str = "bounded",
    trips: int = 1,
    distinct: bool = False,
    total: str = "measured",
    mechanism: str = "inftda",
    **loss: str,
) -> TripsSettings:
    privacy: dict[str, Any] = {
        "dataset": "d",
        "neighbors": neighbors,
        "trips_per_person": trips,
        "distinct_trips": distinct,
        "total": total,
    }
    source = {"trips": "t.csv", "origin": "o", "destination": "d", "person": "p", "areas": "a.csv"}
    return TripsSettings.model_validate(
        {
            "input": source,
            "privacy": privacy | (loss or {"rho": "3/2"}),
            "mechanism": {"name": mechanism},
        }
    )


def changes(plan: Plan, tree: Tree, asked: TripsSettings) -> set[frozenset]:
    """How many nodes of each level every change of one person moves, and by how much."""
    told, m = asked.privacy, asked.privacy.trips_per_person
    own = contributions(tree.n_nodes(tree.depth), m, told.distinct_trips)
    if told.has_invariant_total:
        own = tuple(leaves for leaves in own if len(leaves) == m)
    of_person = [{level: counts(tree, level, leaves) for level in plan.levels} for leaves in own]
    nobody = [{level: counts(tree, level, ()) for level in plan.levels}]
    return {
        frozenset(
            Counter(
                (level, abs(int(by)))
                for level in plan.levels
                for by in one[level] - two[level]
                if by
            ).items()
        )
        for one in of_person
        for two in (of_person if told.is_bounded else nobody)
    }


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["inftda", "gaussian_leaves"])
@pytest.mark.parametrize(("trips", "distinct"), [(1, False), (2, False), (3, False), (2, True)])
@pytest.mark.parametrize(
    ("neighbors", "total"),
    [("bounded", "measured"), ("bounded", "invariant"), ("unbounded", "measured")],
)
@pytest.mark.parametrize("shape", TREES)
def test_the_curve_is_that_of_the_worst_change(
    shape: str, neighbors: str, total: str, trips: int, distinct: bool, mechanism: str
) -> None:
    asked, tree = (
        settings_of(
            neighbors=neighbors, trips=trips, distinct=distinct, total=total, mechanism=mechanism
        ),
        TREES[shape],
    )
    plan = make_plan(asked, tree)
    curve = exact_curve(plan, asked.privacy)
    noises = {level: distribution_of(plan.measures[level].noise) for level in plan.levels}
    every = [counts_of(moves, noises) for moves in changes(plan, tree, asked)]
    for epsilon in EPSILONS:
        worst = max(by_enumeration(moves, epsilon) for moves in every)
        upper = Decimal(curve.delta_upper(float(epsilon)))
        assert worst <= upper <= worst + Decimal("1e-12")
        assert Decimal(curve.delta_lower(float(epsilon))) <= worst


@pytest.mark.slow
@pytest.mark.parametrize(("trips", "distinct"), [(1, False), (2, False), (3, False), (2, True)])
@pytest.mark.parametrize("shape", TREES)
def test_the_ledger_counts_a_person_who_is_changed_whatever_the_noise_is_made_for(
    shape: str, trips: int, distinct: bool
) -> None:
    """Noise for persons who are added or removed; all trips before and after are compared."""
    asked = settings_of(neighbors="unbounded", trips=trips, distinct=distinct)
    changed, tree = settings_of(trips=trips, distinct=distinct), TREES[shape]
    plan = make_plan(asked, tree)
    curve = curve_of_change(plan, asked.privacy)
    noises = {level: distribution_of(plan.measures[level].noise) for level in plan.levels}
    found = changes(plan, tree, changed) | changes(plan, tree, asked)
    every = [counts_of(moves, noises) for moves in found]
    for epsilon in EPSILONS:
        worst = max(by_enumeration(moves, epsilon) for moves in every)
        assert worst <= Decimal(curve.delta_upper(float(epsilon))) <= worst + Decimal("1e-12")
    assert curve.rho > exact_curve(plan, asked.privacy).rho
    assert SpentDraw(plan.guarantee, curve).known == curve


@pytest.mark.parametrize("total", ["measured", "invariant"])
def test_noise_for_a_change_has_its_own_curve(total: str) -> None:
    asked = settings_of(trips=2, total=total)
    plan = make_plan(asked, TREES["columns"])
    assert curve_of_change(plan, asked.privacy) == exact_curve(plan, asked.privacy)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(sorted(TREES)),
    st.sampled_from(["bounded", "unbounded"]),
    st.integers(1, 9),
    st.booleans(),
    st.sampled_from(["inftda", "gaussian_leaves", "inftda_full_information"]),
    st.fractions(Fraction(1, 9), 4, max_denominator=9),
    st.integers(2, 12),
)
def test_the_exact_epsilon_is_within_what_is_charged(
    shape, neighbors, trips, is_invariant, mechanism, rho, digits
) -> None:
    total = "invariant" if is_invariant and neighbors == "bounded" else "measured"
    asked = settings_of(
        neighbors=neighbors, trips=trips, total=total, mechanism=mechanism, rho=str(rho)
    )
    plan, delta = make_plan(asked, TREES[shape]), Fraction(1, 10**digits)
    curve = exact_curve(plan, asked.privacy)
    assert curve.rho <= rho
    assert curve.epsilon_upper(delta) <= epsilon_tight(rho, delta) + 1e-9
    if total == "invariant" or neighbors == "unbounded":
        assert curve.rho == rho


def test_where_the_worst_change_is_not_known() -> None:
    tree = TREES["columns"]
    three = settings_of(trips=3, distinct=True)
    assert exact_curve(make_plan(three, tree), three.privacy) is None
    histogram = settings_of(
        mechanism="stability_histogram", total="invariant", epsilon="1", delta="1e-6"
    )
    assert exact_curve(make_plan(histogram, tree), histogram.privacy) is None
    many = settings_of(trips=10_000)
    assert exact_curve(make_plan(many, tree), many.privacy) is None
    added = settings_of(neighbors="unbounded", trips=3, distinct=True)
    assert curve_of_change(make_plan(added, tree), added.privacy) is None
    plan = replace(make_plan(settings_of(), tree), guarantee=None)
    assert exact_curve(plan, settings_of().privacy) is None

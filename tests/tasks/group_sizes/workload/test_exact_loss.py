"""The exact curve of group sizes, against the losses of all neighbours of all small datasets."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.group_sizes.measurement import exact_curve
from spineflow.tasks.group_sizes.plan import VECTOR_OF, Plan
from spineflow.tasks.ledger.accounting import epsilon_tight
from spineflow.tasks.ledger.spending import SpentDraw
from spineflow.tasks.noise.distributions import distribution_of

from tests.tasks.group_sizes.plans import make_plan
from tests.tasks.group_sizes.workload.test_mechanisms import (
    Dataset,
    datasets,
    joined,
    measured,
    moved,
)
from tests.tasks.ledger.all_outcomes import by_enumeration, counts_of

N_SIZES = 5
LOSSES = {"epsilon": Fraction(3), "rho": Fraction(3, 2)}
EPSILONS = (Fraction(0), Fraction(1, 2), Fraction(5, 4), Fraction(5, 2))


def plan_of(mechanism: str, kind: str, *, bounded: bool, quantity: int, **other) -> Plan:
    levels = {"names": ["nation", "region"], "n_regions": [1, 2]}
    return make_plan(
        **levels | {"shares": [Fraction(1, 3), Fraction(2, 3)], "mechanism": mechanism} | other,
        sizes=(0, N_SIZES - 1),
        groups=3,
        bounded=bounded,
        quantity=quantity,
        **{"epsilon": None, "rho": None} | {kind: LOSSES[kind]},
    )


def changes(mechanism: str, *, bounded: bool, quantity: int) -> set[frozenset]:
    """How many entries of each level every neighbour changes, and by how much."""

    @cache
    def vectors(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
        nation = tuple((0, size) for _, size in dataset)
        vector = VECTOR_OF[mechanism]
        return measured(nation, vector, 1, N_SIZES), measured(dataset, vector, 2, N_SIZES)

    found = set()
    neighbours = moved if bounded else joined
    for n_groups in (1, 2):
        for one in datasets(n_groups, 2, N_SIZES):
            for two in neighbours(one, N_SIZES, quantity):
                pairs = zip(vectors(one), vectors(tuple(sorted(two))), strict=True)
                moves = Counter(
                    (depth, abs(int(by)))
                    for depth, (before, after) in enumerate(pairs)
                    for by in (before - after).ravel()
                    if by
                )
                found.add(frozenset(moves.items()))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["hierarchical_dp", "cumulative_dp", "chain_dp"])
@pytest.mark.parametrize("bounded", [False, True], ids=["joins or leaves", "moves"])
@pytest.mark.parametrize("quantity", [1, 2])
@pytest.mark.parametrize("kind", LOSSES)
def test_the_curve_is_that_of_the_worst_neighbour(
    mechanism: str, bounded: bool, quantity: int, kind: str
) -> None:
    plan = plan_of(mechanism, kind, bounded=bounded, quantity=quantity)
    curve = exact_curve(plan)
    noises = {depth: distribution_of(level.noise) for depth, level in enumerate(plan.levels)}
    found = changes(mechanism, bounded=bounded, quantity=quantity)
    every = [counts_of(moves, noises) for moves in found]
    for epsilon in EPSILONS:
        worst = max(by_enumeration(moves, epsilon) for moves in every)
        upper = Decimal(curve.delta_upper(float(epsilon)))
        assert worst <= upper <= worst + Decimal("1e-12")
        assert Decimal(curve.delta_lower(float(epsilon))) <= worst


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["hierarchical_dp", "cumulative_dp", "chain_dp"])
@pytest.mark.parametrize("bounded", [False, True], ids=["joins or leaves", "moves"])
@pytest.mark.parametrize("kind", LOSSES)
def test_the_ledger_counts_a_person_who_moves_whatever_the_noise_is_made_for(
    mechanism: str, bounded: bool, kind: str
) -> None:
    plan = plan_of(mechanism, kind, bounded=bounded, quantity=2)
    curve = exact_curve(plan, is_bounded=True)
    noises = {depth: distribution_of(level.noise) for depth, level in enumerate(plan.levels)}
    changed = changes(mechanism, bounded=True, quantity=2)
    every = [counts_of(moves, noises) for moves in changed | changes_of_one(mechanism)]
    for epsilon in EPSILONS:
        worst = max(by_enumeration(moves, epsilon) for moves in every)
        assert worst <= Decimal(curve.delta_upper(float(epsilon))) <= worst + Decimal("1e-12")
    assert SpentDraw(plan.universe.promised, curve).known == curve


def changes_of_one(mechanism: str) -> set[frozenset]:
    """Those of one who is in a group before or after only."""
    return changes(mechanism, bounded=False, quantity=2)


PLANS = st.builds(
    lambda n_regions, **other: plan_of(
        n_regions=n_regions,
        names=[str(depth) for depth in range(len(n_regions))],
        shares=None,
        **other,
    ),
    n_regions=st.lists(st.integers(1, 40), min_size=1, max_size=4).map(sorted),
    mechanism=st.sampled_from(sorted(VECTOR_OF)),
    kind=st.sampled_from(sorted(LOSSES)),
    bounded=st.booleans(),
    quantity=st.integers(1, 4),
)


@settings(max_examples=30, deadline=None)
@given(PLANS, st.integers(2, 12))
def test_the_exact_epsilon_is_within_what_is_charged(plan: Plan, digits: int) -> None:
    curve, delta = exact_curve(plan), Fraction(1, 10**digits)
    exact = curve.epsilon_upper(delta)
    assert exact <= epsilon_tight(plan.universe.promised.rho_per_record, delta) + 1e-9
    if plan.rho is None:
        assert curve.largest_loss == pytest.approx(float(plan.epsilon), rel=1e-12)
        assert exact <= curve.largest_loss
    else:
        assert curve.rho == plan.rho


@settings(max_examples=30, deadline=None)
@given(PLANS)
def test_a_draw_claims_no_more_than_its_guarantee(plan: Plan) -> None:
    guarantee, curve = plan.universe.promised, exact_curve(plan, is_bounded=True)
    assert curve.rho <= guarantee.bounded_rho
    assert curve == exact_curve(plan) if plan.bounded else curve.rho > exact_curve(plan).rho


def test_noise_that_is_not_proven_to_protect_has_none() -> None:
    for plan in (
        plan_of("chain_dp", "epsilon", bounded=False, quantity=1, calibration="published"),
        make_plan(names=["n"], n_regions=[1], sizes=(0, 4), groups=3, epsilon=None),
    ):
        assert exact_curve(plan) is None and exact_curve(plan, is_bounded=True) is None

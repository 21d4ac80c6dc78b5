from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from spineflow.tasks.census.cef_2020 import PERSONS, UNITS
from spineflow.tasks.census.queries import Schema
from spineflow.tasks.ledger.accounting import (
    SAFETAB_P,
    Guarantee,
    compose,
    epsilon_simple,
    epsilon_tight,
    rho_from_epsilon_simple,
    rho_from_epsilon_tight,
)
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.topdown.workload.budget import Budget
from spineflow.tasks.topdown.workload.costs import cost_of_budget
from spineflow.tasks.topdown.workload.exact_loss import (
    change_of_attribute,
    change_of_block,
    share_of,
)

DELTA = Fraction(1, 10**10)
PRODUCTION_PERSONS = Fraction(293764, 114921)
PRODUCTION_UNITS = Fraction(11417641, 152349649)


def shares(denominator: int, **numerators: int) -> dict[str, Fraction]:
    return {name: Fraction(n, denominator) for name, n in numerators.items()}


UNITS_BUDGET = Budget(
    universe="units",
    mechanism="discrete_gaussian",
    total=PRODUCTION_UNITS,
    delta=DELTA,
    geolevel_shares={
        "US": Fraction(1, 205),
        "State": Fraction(1, 205),
        "County": Fraction(7, 82),
        "Tract": Fraction(364, 1025),
        "Block_Group": Fraction(1759, 4100),
        "Block": Fraction(99, 820),
    },
    query_shares={
        name: {"detailed": Fraction(1)}
        for name in ("US", "State", "County", "Tract", "Block_Group", "Block")
    },
)

PERSONS_BUDGET = Budget(
    universe="persons",
    mechanism="discrete_gaussian",
    total=PRODUCTION_PERSONS,
    delta=DELTA,
    geolevel_shares=shares(4099, State=2239, County=440, Block=1420),
    query_shares={
        "State": shares(10, total=4, hhinstlevels=1, detailed=5),
        "County": {"total": Fraction(1)},
        "Block": {
            "hispanic * cenrace": Fraction(1, 3),
            "votingage": Fraction(1, 6),
            "detailed": Fraction(1, 2),
            "cenrace": Fraction(0),
        },
    },
)


@pytest.mark.parametrize(
    ("rho", "epsilon"),
    [(PRODUCTION_PERSONS, 17.14), (PRODUCTION_UNITS, 2.47)],
)
def test_tight_conversion_gives_the_reported_production_figures(rho, epsilon):
    assert round(epsilon_tight(rho, DELTA), 2) == epsilon


@pytest.mark.parametrize(("rho", "epsilon"), [("1.095", 11.14), ("0.1885", 4.36)])
def test_simple_bound_gives_the_april_2021_figures(rho, epsilon):
    assert round(epsilon_simple(Fraction(rho), DELTA), 2) == epsilon


@pytest.mark.parametrize("rho", [1e-6, 0.01, 1.0, 40.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-10, 1e-30])
def test_tight_conversion_is_the_minimum_over_alpha_and_below_the_simple_bound(rho, delta):
    alphas = 1 + np.exp(np.linspace(-12, 25, 20001))
    epsilons = alphas * rho + (
        alphas * np.log1p(-1 / alphas) - np.log(alphas - 1) - math.log(delta)
    ) / (alphas - 1)
    found = epsilon_tight(rho, delta)
    assert found <= max(epsilons.min(), 0) + 1e-12
    assert found == pytest.approx(max(epsilons.min(), 0), rel=1e-4, abs=1e-12)
    assert found <= epsilon_simple(rho, delta)


def delta_tight(rho: Fraction, epsilon: float) -> float:
    """The smallest delta that the conversion of [DiscreteGaussian2020] gives at this epsilon."""

    def log_delta(log_excess: float) -> float:
        alpha = 1 + math.exp(log_excess)
        log_ratio = log_excess - math.log(alpha)
        return (alpha - 1) * (alpha * float(rho) - epsilon) + alpha * log_ratio - log_excess

    best = min(np.arange(-15, 60, 0.25), key=log_delta)
    found = minimize_scalar(log_delta, bounds=(best - 0.25, best + 0.25), method="bounded")
    return math.exp(min(0.0, found.fun))


@pytest.mark.parametrize("rho", [Fraction(1, 100), PRODUCTION_PERSONS])
def test_delta_and_epsilon_are_each_others_inverse(rho):
    for delta in (1e-4, 1e-10):
        assert delta_tight(rho, epsilon_tight(rho, delta)) == pytest.approx(delta, rel=1e-6)
    assert delta_tight(rho, 0.0) <= 1


def test_nothing_spent_costs_nothing():
    assert epsilon_tight(Fraction(0), DELTA) == epsilon_simple(Fraction(0), DELTA) == 0


def test_delta_below_the_smallest_float_is_converted():
    tiny = Fraction(1, 10**400)
    log_inverse = 400 * math.log(10)
    assert epsilon_simple(Fraction(1), tiny) == pytest.approx(1 + 2 * math.sqrt(log_inverse))


@settings(deadline=None, max_examples=60)
@given(
    st.fractions(min_value=Fraction(1, 1000), max_value=50),
    st.integers(min_value=1, max_value=40),
)
def test_rho_from_epsilon_is_a_close_lower_bound(epsilon, digits):
    delta = Fraction(1, 10**digits)
    rho = rho_from_epsilon_simple(epsilon, delta)
    assert isinstance(rho, Fraction)
    spent = epsilon_simple(rho, delta)
    assert spent <= float(epsilon) * (1 + 1e-13)
    assert spent >= float(epsilon) * (1 - 1e-10)


def test_rho_from_epsilon_refuses_what_has_no_rho():
    with pytest.raises(InputRefused, match="epsilon is 0"):
        rho_from_epsilon_simple(Fraction(0), DELTA)
    with pytest.raises(InputRefused, match="delta is 2"):
        rho_from_epsilon_simple(Fraction(1), Fraction(2))


def test_bounded_figures_of_every_kind_of_guarantee():
    half = Fraction(1, 2)
    assert Guarantee("zcdp", half).bounded_rho == half
    assert Guarantee("zcdp", half, "unbounded").bounded_rho == 2
    safetab = Guarantee("zcdp", half, "unbounded", bounded_factor=SAFETAB_P)
    assert safetab.bounded_rho == 1
    assert Guarantee("pure_dp", half).bounded_rho == Fraction(1, 8)
    assert Guarantee("pure_dp", half, "unbounded").bounded_rho == half


def test_of_several_records_one_is_charged_and_all_are_stated():
    """As households of SafeTab-H: one that is changed costs twice the rho of one added, and two
    that move the same counts four times that; under pure DP losses add up before they are squared.
    """
    half, neighbors = Fraction(1, 2), "unbounded_one_of_several"
    zcdp = Guarantee("zcdp", half, neighbors)
    assert (zcdp.rho_per_record, zcdp.bounded_rho, zcdp.stated_rho) == (half, 2 * half, 8 * half)
    pure = Guarantee("pure_dp", half, neighbors)
    assert pure.bounded_rho == (2 * half) ** 2 / 2
    assert pure.stated_rho == (4 * half) ** 2 / 2
    assert compose([zcdp, pure]).parameter == zcdp.bounded_rho + pure.bounded_rho


def test_composition_adds_rho_and_delta():
    total = compose(
        [
            Guarantee("zcdp", PRODUCTION_PERSONS),
            Guarantee("zcdp", PRODUCTION_UNITS),
            Guarantee("pure_dp", Fraction(1), "unbounded", delta=Fraction(1, 10**8)),
        ]
    )
    assert total.parameter == PRODUCTION_PERSONS + PRODUCTION_UNITS + 2
    assert total.delta == Fraction(1, 10**8)
    assert compose([]).parameter == 0


def share_of_attribute(budget: Budget, schema: Schema, name: str) -> Fraction:
    return share_of(budget, budget.geolevel_shares, change_of_attribute(schema, name))


def share_within(budget: Budget, geolevel: str) -> Fraction:
    return share_of(budget, budget.geolevel_shares, change_of_block(budget, geolevel))


def test_attributes_are_charged_for_the_queries_that_use_them():
    state, block = Fraction(2239, 4099), Fraction(1420, 4099)
    assert share_of_attribute(PERSONS_BUDGET, PERSONS, "hhgq") == (
        state * Fraction(6, 10) + block * Fraction(1, 2)
    )
    assert share_of_attribute(PERSONS_BUDGET, PERSONS, "votingage") == (
        state * Fraction(5, 10) + block * Fraction(2, 3)
    )
    assert share_of_attribute(PERSONS_BUDGET, PERSONS, "cenrace") == (
        state * Fraction(5, 10) + block * Fraction(5, 6)
    )
    assert share_of_attribute(UNITS_BUDGET, UNITS, "occupancy") == 1


def test_block_within_is_what_the_geolevels_below_spend():
    assert share_within(UNITS_BUDGET, "Block_Group") == Fraction(99, 820)
    assert share_within(UNITS_BUDGET, "Tract") == Fraction(99, 820) + Fraction(1759, 4100)
    assert share_within(UNITS_BUDGET, "US") == 1 - Fraction(1, 205)
    assert share_within(UNITS_BUDGET, "Block") == 0


def test_report_holds_what_is_needed_to_recompute_it():
    report = json.loads(json.dumps(cost_of_budget(PERSONS_BUDGET, PERSONS).to_json()))
    assert Fraction(report["rho"]) == PRODUCTION_PERSONS
    assert Fraction(report["delta"]) == DELTA
    assert round(report["epsilon"]["tight"], 2) == 17.14
    assert report["epsilon"]["simple"] == epsilon_simple(PRODUCTION_PERSONS, DELTA)
    assert list(report["attributes"]) == list(PERSONS.attributes)
    assert list(report["block_within"]) == ["State", "County"]
    assert report["block_within"]["County"] == epsilon_tight(
        PRODUCTION_PERSONS * Fraction(1420, 4099), DELTA
    )
    queries = report["queries"]
    assert len(queries) == 7
    assert sum(Fraction(query["share"]) for query in queries) == 1
    for query in queries:
        spent = Fraction(query["share"]) * PRODUCTION_PERSONS
        assert Fraction(query["sigma_squared"]) * spent == 1


@pytest.mark.parametrize("delta", ["1e-300", "1e-12", "1e-8", "1/3"])
@pytest.mark.parametrize("epsilon", ["1e-3", "1/10", "1", "10", "1e6"])
def test_the_tight_rho_is_the_largest_whose_epsilon_is_not_passed(epsilon, delta) -> None:
    epsilon, delta = Fraction(epsilon), Fraction(delta)
    rho = rho_from_epsilon_tight(epsilon, delta)
    assert rho >= rho_from_epsilon_simple(epsilon, delta)
    assert epsilon_tight(rho, delta) <= float(epsilon) * (1 + 1e-9)
    assert epsilon_tight(rho * Fraction("1.000001"), delta) > float(epsilon)


def test_the_tight_conversion_is_refused_what_the_simple_one_is() -> None:
    with pytest.raises(InputRefused, match="epsilon is 0"):
        rho_from_epsilon_tight(Fraction(0), Fraction(1, 10))
    with pytest.raises(InputRefused, match="delta is 1"):
        rho_from_epsilon_tight(Fraction(1), Fraction(1))

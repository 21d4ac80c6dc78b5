"""Budgets, variances and margins of the supplemental tables, against those of production."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spineflow.tasks.ledger.plan import UniversePlan
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.supplemental_dhc.plan import (
    exact_curve,
    make_plan,
    margin_of,
    measure_of,
    rho_for_margin,
)
from spineflow.tasks.supplemental_dhc.settings import SupplementalDhcSettings

INPUT = {"persons": "p", "units": "u", "geography": "g"}
TOTALS = {"us": "1.257281", "pr": "1.226649"}
"""rho of the two production runs."""
TABLES = {
    "PH1_num": "0.182221",
    "PH1_denom": "0.001506",
    "PH2": "0.018990",
    "PH3": "0.679419",
    "PH4": "0.182221",
    "PH5_denom": "0.001506",
    "PH6": "0.007691",
    "PH7": "0.182221",
    "PH8_denom": "0.001506",
}
"""rho of every table in the run of the United States."""
MARGINS = {"US": 500, "State": 200}
OF_RACES = {"PH3": 20}


def settings_of(**own: object) -> SupplementalDhcSettings:
    tree = {"input": INPUT, "privacy": {"dataset": "d"}, **own}
    return load_settings(SupplementalDhcSettings, tree, presets=PRESETS).resolved()


def margin_wanted(measure: str, level: str, iterations: str) -> int:
    if level == "State" and iterations == "A-G":
        return OF_RACES.get(measure, 68)
    return MARGINS[level]


def preset_plan(run: str) -> UniversePlan:
    settings = settings_of(preset=f"supplemental_dhc_2020_{run}")
    numbers = {level: {"US": 1, "State": 51}[level] for level in settings.geography.levels}
    return make_plan(settings.rhos, settings.mechanism.taus, numbers)


@pytest.mark.parametrize("run", TOTALS)
def test_the_presets_cost_what_production_cost(run: str) -> None:
    plan = preset_plan(run)
    assert plan.loss == Fraction(TOTALS[run])
    if run == "us":
        for name, total in TABLES.items():
            shares = [own.share for own in plan.measures if measure_of(own.query)[0] == name]
            assert plan.loss * sum(shares) == Fraction(total), name


@pytest.mark.parametrize("run", TOTALS)
def test_margins_give_the_budgets_of_production(run: str) -> None:
    """Every one of them, to six decimals; and the noise has those margins."""
    plan = preset_plan(run)
    for own in plan.measures:
        measure, iterations = measure_of(own.query)
        wanted = margin_wanted(measure, own.level, iterations)
        assert plan.loss * own.share == rho_for_margin(math.isqrt(own.moved), wanted)
        # A rho of two significant digits is off by some percent.
        assert margin_of(own.noise.variance) == pytest.approx(wanted, rel=0.02)


def test_stabilities_and_variances_are_those_of_production() -> None:
    plan = preset_plan("us")
    found = {measure_of(own.query)[0]: math.isqrt(own.moved) for own in plan.measures}
    persons = {"PH1_num": 22, "PH2": 22, "PH3": 14, "PH4": 22, "PH6": 14, "PH7": 22}
    assert found == persons | dict.fromkeys(("PH1_denom", "PH5_denom", "PH8_denom"), 2)
    for own in plan.measures:
        assert own.noise.parameter == own.moved / (2 * plan.loss * own.share)


def test_the_ledger_is_charged_for_a_person_who_is_changed() -> None:
    plan = preset_plan("us")
    assert plan.promised.bounded_rho == 4 * plan.loss
    curve, changed = exact_curve(plan), exact_curve(plan, is_bounded=True)
    assert curve is not None and curve.rho == plan.loss
    assert changed is not None and changed.rho == 4 * plan.loss
    assert curve.epsilon_upper(1e-10) < plan.epsilons()["tight"]


@given(st.integers(2, 2002), st.integers(1, 1000))
def test_a_budget_is_the_least_that_has_the_margin(stability: int, margin: int) -> None:
    try:
        rho = rho_for_margin(stability, margin)
    except ValueError:
        assert stability / margin < 1e-2
        return
    exact = stability**2 * 1.645**2 / (2 * margin**2)
    assert abs(float(rho) - exact) <= 5.01e-7
    assert margin_of(stability**2 / (2 * exact)) == pytest.approx(margin)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"geography": {"levels": ["US"]}}, "geography.levels has US"),
        ({"mechanism": {"truncation": {"PH1_denom": 4}}}, "persons are joined"),
        ({"mechanism": {"truncation": {"PH2": 1001}}}, "at most 1000"),
        ({"mechanism": {"confidence": "1/2"}}, "does nothing without mechanism.margins"),
        ({"mechanism": {"budgets": {"PH9": {"US": {"*": "1"}}}}}, "there are PH1_num"),
        ({"mechanism": {"budgets": {"PH6": {"US": {"A-G": "1"}}}}}, "it is counted by"),
        ({"mechanism": {"budgets": {"PH6": {"US": {"*": "-1"}}}}}, "positive fraction"),
        ({"geography": {"levels": ["US", "State", "US"]}}, "none twice"),
        ({"geography": {"levels": ["US", "State", "County"]}}, "nothing is measured"),
        (
            {"mechanism": {"margins": {"PH2": {"US": {"*": 100_000}}}}},
            "wider than any budget makes it",
        ),
        (
            {
                "mechanism": {
                    "margins": {"PH2": {"US": {"*": 5}}},
                    "budgets": {"PH2": {"US": {"*": "1"}}},
                }
            },
            "both a budget and a margin",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(own: dict[str, object], words: str) -> None:
    with pytest.raises(InputRefused, match=words):
        settings_of(preset="supplemental_dhc_2020_us", **own)

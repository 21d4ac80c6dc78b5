"""Parameters of the mechanism: exact fractions, and refusals of what is out of range."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spineflow.tasks.detailed_groups.workload.parameters import (
    NEVER,
    choose_table,
    mechanism_parameters,
    read_config,
    thresholds_key,
)
from spineflow.tasks.detailed_groups.workload.regions import REGION_TYPES
from spineflow.tasks.detailed_groups.workload.specification import LEVELS, SpecificationError
from spineflow.tasks.detailed_groups.workload.tabulations import SEX_BY_AGE

BUDGETS = {SEX_BY_AGE.budget(name, level): 0.1 for name in REGION_TYPES for level in LEVELS}
THRESHOLDS = {
    thresholds_key(name, level): [10, 20, 30] for name in REGION_TYPES for level in LEVELS
}
GOOD = {
    "max_race_codes": 8,
    **BUDGETS,
    "privacy_budget_p_stage_1_fraction": 0.1,
    "thresholds_p": THRESHOLDS,
    "zero_suppression_chance": 0.9999,
    "allow_negative_counts": True,
    "run_us": True,
    "run_pr": True,
    "state_filter_us": ["01", "56"],
    "privacy_defn": "zcdp",
}
USA_1 = "privacy_budget_p_level_1_usa"


def parsed(infinite: bool = False, **changes):
    return mechanism_parameters(read_config(json.dumps(GOOD | changes)), infinite=infinite)


def test_decimals_are_read_exactly() -> None:
    found = parsed(**{USA_1: 2.134})
    assert found.budgets["p"]["USA", 1] == Fraction(2134, 1000)
    assert found.stage_1_fraction == Fraction(1, 10)
    assert found.zero_suppression_chance == Fraction(9999, 10000)


def test_levels_without_budget_are_not_measured() -> None:
    found = parsed(privacy_budget_p_level_1_aiannh=0)
    assert ("AIANNH", 1) not in found.budgets["p"]
    assert len(found.budgets["p"]) == 19
    assert [kind for kind, _ in found.budgets_of("p", "pr")][::2] == [
        "PR-STATE",
        "PR-COUNTY",
        "PR-TRACT",
        "PR-PLACE",
    ]


def test_passes_hold_different_people() -> None:
    found = parsed()
    assert found.total_of("us") == Fraction(12, 10)
    assert found.total_of("pr") == Fraction(8, 10)
    assert found.total == Fraction(12, 10)
    assert parsed(run_us=False).total == Fraction(8, 10)
    assert parsed(run_us=False).states_of("pr") == ("72",)


def test_keys_of_a_pass_that_is_not_run_may_be_missing() -> None:
    config = {key: value for key, value in GOOD.items() if "_pr_" not in key}
    config["thresholds_p"] = {k: v for k, v in THRESHOLDS.items() if "PR" not in k}
    found = mechanism_parameters(read_config(json.dumps(config | {"run_pr": False})))
    assert found.passes == ("us",)
    with pytest.raises(SpecificationError, match="privacy_budget_p_level_1_pr_state"):
        mechanism_parameters(read_config(json.dumps(config)))


REFUSED = {
    "neither pass": ({"run_us": False, "run_pr": False}, "run_us and run_pr are both false"),
    "truth as a number": ({"run_us": 1}, "run_us must be true or false"),
    "unknown definition": ({"privacy_defn": "dp"}, "'zcdp' or 'puredp'"),
    "race codes": ({"max_race_codes": 9}, "from 1 to 8"),
    "race codes as text": ({"max_race_codes": "8"}, "from 1 to 8"),
    "race codes as truth": ({"max_race_codes": True}, "from 1 to 8"),
    "negative counts": ({"allow_negative_counts": "yes"}, "true or false"),
    "fraction 0": ({"privacy_budget_p_stage_1_fraction": 0}, "above 0 and below 1"),
    "fraction 1": ({"privacy_budget_p_stage_1_fraction": 1}, "above 0 and below 1"),
    "chance 1": ({"zero_suppression_chance": 1}, "at least 0 and below 1"),
    "chance below 0": ({"zero_suppression_chance": -0.1}, "at least 0 and below 1"),
    "budget below 0": ({USA_1: -0.1}, "is negative"),
    "budget as text": ({USA_1: "0.1"}, "must be a number"),
    "budget infinite": ({USA_1: float("inf")}, "infinite = true"),
    "budget not a number": ({USA_1: float("nan")}, "NaN is no number"),
    "budget absurd": ({USA_1: 1e13}, "from 1e-12 to 1e12"),
    "budgets all 0": (dict.fromkeys(BUDGETS, 0), "every budget is 0"),
    "thresholds descend": ({"thresholds_p": THRESHOLDS | {"(USA, 1)": [3, 2, 9]}}, "ascending"),
    "two thresholds": ({"thresholds_p": THRESHOLDS | {"(USA, 1)": [3, 9]}}, "list of 3"),
    "four thresholds": ({"thresholds_p": THRESHOLDS | {"(USA, 1)": [1, 2, 3, 4]}}, "list of 3"),
    "threshold as text": ({"thresholds_p": THRESHOLDS | {"(USA, 1)": ["1", 2, 3]}}, "a number"),
    "thresholds of a level": ({"thresholds_p": {}}, "lacks '(USA, 1)'"),
    "thresholds as a list": ({"thresholds_p": [1, 2, 3]}, "an object of lists"),
    "no state": ({"state_filter_us": []}, "at least one"),
    "state as a number": ({"state_filter_us": [1]}, "not 1"),
    "state unknown": ({"state_filter_us": ["03"]}, "not '03'"),
    "territory": ({"state_filter_us": ["72"]}, "not '72'"),
    "state twice": ({"state_filter_us": ["01", "01"]}, "names each state once"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_out_of_range_is_refused(case: str) -> None:
    changes, expected = REFUSED[case]
    with pytest.raises(SpecificationError) as refused:
        parsed(**changes)
    assert expected in str(refused.value)
    assert str(refused.value).startswith("config.json: ")


@pytest.mark.parametrize("key", [key for key in GOOD if key != "zero_suppression_chance"])
def test_missing_keys_are_named(key: str) -> None:
    config = {name: value for name, value in GOOD.items() if name != key}
    with pytest.raises(SpecificationError, match=f"'{key}' is missing"):
        mechanism_parameters(read_config(json.dumps(config)))


def test_without_a_chance_nothing_is_suppressed() -> None:
    config = {name: value for name, value in GOOD.items() if name != "zero_suppression_chance"}
    assert mechanism_parameters(read_config(json.dumps(config))).zero_suppression_chance is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("{", "line 1"), ("[]", "one JSON object"), ('{"a": 1, "a": 2}', "is repeated")],
)
def test_what_is_no_configuration_is_refused(text: str, expected: str) -> None:
    with pytest.raises(SpecificationError, match=expected):
        read_config(text)


def test_budgets_under_infinite_tell_only_which_levels_are_measured() -> None:
    found = parsed(infinite=True, **{USA_1: float("inf"), "privacy_budget_p_level_2_usa": 0})
    assert ("USA", 1) in found.budgets["p"]
    assert ("USA", 2) not in found.budgets["p"]


def test_thresholds_are_those_of_whole_totals() -> None:
    found = parsed(thresholds_p=THRESHOLDS | {"(USA, 1)": [-2.5, 3.2, float("inf")]})
    assert found.thresholds["p"]["USA", 1] == (-2, 4, NEVER)


@given(
    st.lists(st.integers(-100, 100), min_size=1, max_size=30),
    st.tuples(*[st.integers(-90, 90)] * 3).map(sorted),
)
def test_tables_are_the_number_of_thresholds_reached(totals, thresholds) -> None:
    found = choose_table(np.array(totals), tuple(thresholds))
    assert found.tolist() == [sum(bound <= total for bound in thresholds) for total in totals]
    assert found.tolist() == np.digitize(totals, thresholds).tolist()

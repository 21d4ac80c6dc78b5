"""Designs over levels: optima by other searches, bounds that hold, fractions, refusals."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings import refuse_in
from spineflow.tasks.solvers.level_design import (
    LevelDesign,
    LevelErrors,
    RegularTree,
    design_levels,
    round_up_budget,
)
from spineflow.tasks.solvers.split import Goal

NAMES = {0: "nation", 1: "region", 2: "town"}
UNITS = {0: 1.0, 1: 2.0, 2: 3.0}
EVEN = dict.fromkeys(NAMES, Fraction(1, 3))
TREE = LevelErrors(NAMES, UNITS, RegularTree((6.0, 9.0), False), 1, "rho")
ALONE = {
    1: LevelErrors(NAMES, UNITS, None, 1, "rho"),
    2: LevelErrors(NAMES, UNITS, None, 2, "epsilon"),
}


def design(objective: str = "largest_ratio", **targets: dict) -> LevelDesign:
    return LevelDesign(
        objective=objective,
        targets={name: Goal(**own) for name, own in targets.items()},
    )


def random_shares(n: int = 4000) -> list[dict[int, float]]:
    random = np.random.default_rng(3)
    return [dict(enumerate(p)) for p in random.dirichlet(np.full(3, 0.6), n) if p.min() > 1e-6]


@pytest.mark.parametrize("errors", [TREE, *ALONE.values()], ids=["tree", "rho", "epsilon"])
def test_no_random_split_has_a_smaller_weighted_sum(errors: LevelErrors) -> None:
    wanted = design("weighted_sum", nation={"weight": 5}, town={"weight": "1/2"}, region={})
    found = design_levels(errors, wanted, Fraction(1), EVEN)
    weights = {0: 5.0, 1: 1.0, 2: 0.5}

    def value(shares) -> float:
        variances = errors.variances(shares, 1.0)
        return sum(w * variances[level] for level, w in weights.items())

    best = min(map(value, random_shares()))
    assert value(found.shares) <= best * 1.001
    assert best >= value(found.shares) * (1 - found.gap) * (1 - 1e-9)
    assert found.gap < 0.01 and sum(found.shares.values()) == 1
    assert found.further["needed_now"] is None and found.total == 1


@pytest.mark.parametrize("errors", [TREE, *ALONE.values()], ids=["tree", "rho", "epsilon"])
def test_the_smallest_budget_meets_all_margins_and_no_random_split_needs_less(
    errors: LevelErrors,
) -> None:
    due = {"nation": 30, "region": 12, "town": 8}
    wanted = design("smallest_budget", **{name: {"margin": m} for name, m in due.items()})
    found = design_levels(errors, wanted, Fraction(1), EVEN)
    places = {name: level for level, name in NAMES.items()}

    def needed(shares) -> float:
        at_one = errors.variances(shares, 1.0)
        return max(
            (at_one[places[name]] * (errors.margin_factor / m) ** 2) ** (1 / errors.power)
            for name, m in due.items()
        )

    best = min(map(needed, random_shares()))
    assert float(found.total) * (1 - found.gap) <= best * (1 + 1e-5)
    assert found.further["needed_now"] == pytest.approx(needed(EVEN))
    assert float(found.total) <= found.further["needed_now"]
    for target in found.targets:
        assert target["designed"] <= due[target["level"]]
    assert isinstance(found.total, Fraction) and found.gap < 0.01
    smaller = errors.variances(found.shares, float(found.total) * (1 - 1e-4))
    assert any(
        errors.margin_factor * math.sqrt(smaller[places[name]]) > m for name, m in due.items()
    )


def test_levels_alone_have_the_closed_form() -> None:
    """rho in proportion to sqrt(w c), epsilon to the cube root of it."""
    weights = {0: 3.0, 1: 1.0, 2: 10.0}
    wanted = design(
        "weighted_sum", **{NAMES[level]: {"weight": str(w)} for level, w in weights.items()}
    )
    for power, errors in ALONE.items():
        found = design_levels(errors, wanted, Fraction(2), EVEN).shares
        parts = np.array([(w * UNITS[level]) ** (1 / (power + 1)) for level, w in weights.items()])
        assert [float(found[level]) for level in range(3)] == pytest.approx(
            parts / parts.sum(), abs=6e-4
        )


def test_margins_left_out_are_those_of_now_and_become_smaller_by_one_factor() -> None:
    found = design_levels(TREE, design(nation={}, town={}), Fraction(1), EVEN)
    factors = [target["designed"] / target["now"] for target in found.targets]
    assert max(factors) < 1
    assert min(factors) == pytest.approx(max(factors), rel=0.01)
    assert [target["wanted"] for target in found.targets] == [None, None]
    assert found.further["needed_now"] == pytest.approx(1)


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-9, 1e9))
def test_budgets_are_rounded_up_to_six_digits(value: float) -> None:
    found = round_up_budget(value)
    assert Fraction(value) <= found <= Fraction(value) * (1 + Fraction(1, 10**5))


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        (design(town={"margin": 0}), "design.targets.town.margin must be above 0"),
        (design(town={"weight": 0}), "weight must be above 0"),
        (design("weighted_sum", town={"margin": 3}), "does nothing in a weighted sum"),
        (design(town={"weight": 2}), "weight does nothing but in a weighted sum"),
    ],
)
def test_settings_that_do_not_fit_are_refused(own: LevelDesign, sentence: str) -> None:
    with pytest.raises(InputRefused, match=sentence):
        own.refuse_invalid(False, refuse_in("settings.toml"))

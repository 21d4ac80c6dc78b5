"""The exact curve of detailed groups, against the losses of everybody in small specifications."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.detailed_groups.workload.budgets import level_budget, level_noise
from spineflow.tasks.detailed_groups.workload.guarantee import (
    curve_of_change,
    exact_curve,
    tabulation_plan,
)
from spineflow.tasks.detailed_groups.workload.parameters import (
    Parameters,
    read_parameters,
    read_specification,
)
from spineflow.tasks.detailed_groups.workload.specification import Specification, iteration_universe
from spineflow.tasks.detailed_groups.workload.tabulations import SEX_BY_AGE
from spineflow.tasks.ledger.accounting import epsilon_tight
from spineflow.tasks.ledger.loss_laws import ChangedCount
from spineflow.tasks.ledger.plan import Measure
from spineflow.tasks.ledger.spending import SpentDraw
from spineflow.tasks.noise.distributions import distribution_of

from tests.tasks.detailed_groups.workload.test_loss_of_neighbours import (
    LEVELS,
    MOST_CODES,
    parameters_of,
)
from tests.tasks.detailed_groups.workload.test_mapping import (
    ALONE,
    COMBINATION,
    brute_force,
    everybody,
    iteration,
    specifications,
)
from tests.tasks.ledger.all_outcomes import by_enumeration

EPSILONS = (Fraction(0), Fraction(1, 2), Fraction(5, 4), Fraction(5, 2))
DELTA = Fraction(1, 10**10)


@st.composite
def with_totals_only(draw) -> Specification:
    """A specification some of whose iterations are measured by a total only."""
    found = draw(specifications())
    iterations = {
        code: replace(item, detailed_only=draw(st.booleans()))
        for code, item in found.iterations.items()
    }
    return replace(found, iterations=iterations)


def parameters(specification: Specification, definition: str) -> Parameters:
    """Noise so narrow that all its outcomes can be listed."""
    found = parameters_of(specification, definition, by_margins=False)
    budgets = dict(zip(found.budgets["p"], (Fraction(2), Fraction(3)), strict=True))
    return replace(found, budgets={"p": budgets}, stage_1_fraction=Fraction(1, 2))


def moved(specification: Specification, own: Parameters, levels=LEVELS) -> set[frozenset]:
    """How many counts of which noise every person moves who is added, in the nation and a state."""
    universe = iteration_universe(specification, "detailed", 1)
    found = set()
    for races, ethnicity in everybody(specification, MOST_CODES):
        stages: list[Measure] = []
        for level in levels:
            noise = level_noise(
                level_budget(own, "p", level, universe), SEX_BY_AGE, level, own.total
            )
            for code in brute_force(specification, races, ethnicity):
                is_total_only = specification.iterations[code].detailed_only
                stages += [noise.total_only] if is_total_only else [noise.stage_1, noise.stage_2]
        counts = Counter(ChangedCount(distribution_of(stage.noise)) for stage in stages)
        found.add(frozenset(counts.items()))
    return found


def of_two(found: set[frozenset]) -> list[Counter]:
    """What a person moves who is changed, where no group is one of before and after."""
    pairs = combinations_with_replacement(sorted(found, key=str), 2)
    return [Counter(dict(one)) + Counter(dict(two)) for one, two in pairs]


@settings(max_examples=6, deadline=None)
@given(with_totals_only(), st.sampled_from(["zcdp", "puredp"]))
def test_nobody_is_told_apart_better_than_by_the_curve(
    specification: Specification, definition: str
) -> None:
    own = parameters(specification, definition)
    found = moved(specification, own)
    added = exact_curve(own, specification, "us", is_bounded=False)
    changed = exact_curve(own, specification, "us", is_bounded=True)
    for epsilon in EPSILONS:
        worst = max(by_enumeration(dict(moves), epsilon) for moves in found)
        assert worst <= Decimal(added.delta_upper(float(epsilon)))
        twice = max(by_enumeration(moves, epsilon) for moves in of_two(found))
        assert twice <= Decimal(changed.delta_upper(float(epsilon)))


@pytest.mark.parametrize("definition", ["zcdp", "puredp"])
@pytest.mark.parametrize("detailed_only", [False, True, None])
@pytest.mark.parametrize("is_bounded", [False, True])
def test_the_curve_is_that_of_the_worst_person(
    definition: str, detailed_only: bool | None, is_bounded: bool
) -> None:
    """Two races, each with one group alone and one in any combination, and no ethnicity: whoever is
    one of them has two groups, and whoever is both, the two combinations."""
    specification = two_races(detailed_only)
    own = parameters(specification, definition)
    found = moved(specification, own)
    curve = exact_curve(own, specification, "us", is_bounded=is_bounded)
    every = of_two(found) if is_bounded else [dict(moves) for moves in found]
    for epsilon in EPSILONS:
        worst = max(by_enumeration(moves, epsilon) for moves in every)
        upper = Decimal(curve.delta_upper(float(epsilon)))
        assert worst <= upper
        # With both kinds of groups, nobody is in as many by a total only as the bound allows for.
        if detailed_only is not None:
            assert upper <= worst + Decimal("2e-12")
            assert Decimal(curve.delta_lower(float(epsilon))) <= worst
    total = own.total * (2 if is_bounded else 1)
    if definition == "puredp":
        assert curve.epsilon_upper(DELTA) <= float(total)
    else:
        assert curve.rho == total
        assert curve.epsilon_upper(DELTA) <= epsilon_tight(total, DELTA)


@pytest.mark.parametrize("definition", ["zcdp", "puredp"])
@pytest.mark.parametrize("detailed_only", [False, True, None])
@pytest.mark.parametrize("other", ["1", "5/2"], ids="others have {}".format)
def test_the_ledger_counts_who_goes_from_any_pass_to_any(
    definition: str, detailed_only: bool | None, other: str
) -> None:
    """Of two passes: from groups of either to groups of either; the second has one level."""
    specification = two_races(detailed_only)
    us = parameters(specification, definition)
    assert curve_of_change(us, specification) == exact_curve(
        us, specification, "us", is_bounded=True
    )
    budgets = {**us.budgets["p"], ("PR-STATE", 1): Fraction(other)}
    both = replace(us, passes=("us", "pr"), budgets={"p": budgets})
    found = moved(specification, us) | moved(specification, both, levels=(("PR-STATE", 1),))
    curve = curve_of_change(both, specification)
    for epsilon in EPSILONS:
        worst = max(by_enumeration(moves, epsilon) for moves in of_two(found))
        upper = Decimal(curve.delta_upper(float(epsilon)))
        assert worst <= upper
        if detailed_only is not None:
            assert upper <= worst + Decimal("2e-12")
    assert SpentDraw(tabulation_plan(both, "p").promised, curve).known == curve


def two_races(detailed_only: bool | None) -> Specification:
    """None: the groups alone are measured by a total only, and the others are not."""
    kinds = (ALONE, ALONE, COMBINATION, COMBINATION)
    items = [iteration(1000 + i, kind) for i, kind in enumerate(kinds)]
    items = [
        replace(item, detailed_only=item.is_alone if detailed_only is None else detailed_only)
        for item in items
    ]
    pairs = tuple((item.code, str(2000 + i % 2)) for i, item in enumerate(items))
    names = {"2000": "", "2001": ""}
    return Specification(names, {item.code: item for item in items}, pairs)


def test_the_production_run(shared) -> None:
    folder = str(shared / "data" / "safetab" / "spec_2020")
    specification = read_specification(folder)
    for definition, region_pass, exact in (("zcdp", "us", 24.402), ("puredp", "pr", 2.5012)):
        own = read_parameters(folder, {"privacy_defn": definition})
        curve = exact_curve(own, specification, region_pass, is_bounded=False)
        found = curve.epsilon_upper(DELTA)
        assert found == pytest.approx(exact, abs=1e-3)
        total = own.total_of(region_pass)
        assert found < (float(total) if own.is_pure else 0.97 * epsilon_tight(total, DELTA))

"""The loss of everybody who may be added, removed or changed, over all levels and both stages."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.detailed_groups.ingest.counts import CountedPersons, count_groups
from spineflow.tasks.detailed_groups.workload.budgets import (
    LevelNoise,
    budgets_for_margins,
    level_budget,
    level_noise,
)
from spineflow.tasks.detailed_groups.workload.guarantee import tabulation_plan
from spineflow.tasks.detailed_groups.workload.parameters import Parameters
from spineflow.tasks.detailed_groups.workload.specification import (
    NONE,
    IterationUniverse,
    Specification,
    exact_stability,
    iteration_universe,
)
from spineflow.tasks.detailed_groups.workload.tabulations import N_CELLS, SEX_BY_AGE, cells_of_table
from spineflow.tasks.noise.distributions import DISCRETE_LAPLACE

from tests.tasks.detailed_groups.workload.test_mapping import everybody, specifications

LEVELS = (("USA", 1), ("STATE", 1))
MOST_CODES = 2
Person = tuple[tuple[int, ...], int, int, int]
"""Race codes, ethnicity code, area and finest cell."""


def parameters_of(specification: Specification, definition: str, *, by_margins: bool) -> Parameters:
    """Budgets as they are given, or as margins of error ask for them."""
    given_budgets = (Fraction(1, 3), Fraction(2, 3))
    wanted = dict(zip(LEVELS, (5, 9), strict=True))
    parameters = Parameters(
        definition=definition,
        max_race_codes=MOST_CODES,
        stage_1_fraction=Fraction(1, 10),
        budgets={"p": dict(zip(LEVELS, given_budgets, strict=True))},
        thresholds={"p": dict.fromkeys(LEVELS, (1, 2, 3))},
        zero_suppression_chance=None,
        allow_negative_counts=True,
        passes=("us",),
        states=("44",),
    )
    if not by_margins:
        return parameters
    found = budgets_for_margins(replace(parameters, wanted=wanted), specification)
    budgets = {level: found[level] for level in LEVELS}
    return replace(parameters, wanted=wanted, budgets={"p": budgets})


def counts(person: Person, universe: IterationUniverse, regions: np.ndarray) -> dict:
    """The finest counts of a table of one person, by region, group and cell, as ingest has them."""
    races, ethnicity, area, cell = person
    codes = np.full((1, MOST_CODES), NONE, dtype=np.int32)
    distinct = sorted(set(races))
    codes[0, : len(distinct)] = distinct
    one = CountedPersons(codes, np.array([ethnicity]), *(np.array([n]) for n in (area, 0, cell, 1)))
    return {
        (int(r), int(i), int(c)): int(n)
        for part in count_groups(one, regions, universe)
        for r, i, c, n in zip(part.region, part.iteration, part.cell, part.count, strict=True)
    }


def loss(universe: IterationUniverse, noise: LevelNoise, before: dict, after: dict) -> Fraction:
    """The largest loss of a change at a level, whatever table the first stage chooses."""
    total = Fraction(0)
    for region, iteration in {key[:2] for key in (*before, *after)}:

        def spent(table: int, stage, place: tuple = (region, iteration)) -> Fraction:
            change = np.zeros(N_CELLS[table], dtype=np.int64)
            for counted, sign in ((before, 1), (after, -1)):
                for key, n in counted.items():
                    if key[:2] == place:
                        change[cells_of_table(table)[key[2]]] += sign * n
            if stage.noise.mechanism == DISCRETE_LAPLACE:
                return int(np.abs(change).sum()) / stage.noise.parameter
            return int((change**2).sum()) / (2 * stage.noise.parameter)

        if universe.total_only[iteration]:
            total += spent(0, noise.total_only)
        else:
            second = max(spent(table, noise.stage_2) for table in range(len(N_CELLS)))
            total += spent(0, noise.stage_1) + second
    return total


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    specifications(),
    st.sampled_from(["zcdp", "puredp"]),
    st.booleans(),
)
def test_nobody_loses_more_than_is_charged(
    specification: Specification, definition: str, by_margins: bool
) -> None:
    """A person who is added loses at most the charge; one who changes, twice as much."""
    parameters = parameters_of(specification, definition, by_margins=by_margins)
    names = sorted(specification.names)
    people: list[Person] = [
        (tuple(names.index(race) for race in races), names.index(ethnicity), area, cell)
        for (races, ethnicity), area, cell in product(
            everybody(specification, MOST_CODES), range(2), (0, 30)
        )
    ]
    # Everybody is counted at home and in the nation; two areas lie in two states.
    at = {"USA": np.zeros(2, dtype=np.int32), "STATE": np.arange(2, dtype=np.int32)}
    added: dict[Person, Fraction] = dict.fromkeys(people, Fraction(0))
    several = people[:: max(1, len(people) // 12)]
    changed = dict.fromkeys(product(several, several), Fraction(0))
    is_exact = True
    for region_type, level in LEVELS:
        universe = iteration_universe(specification, "detailed", level)
        budget = level_budget(parameters, "p", (region_type, level), universe)
        is_exact &= budget.stability == exact_stability(universe, MOST_CODES)
        noise = level_noise(budget, SEX_BY_AGE, (region_type, level), parameters.total)
        found = {person: counts(person, universe, at[region_type]) for person in people}
        for person in people:
            added[person] += loss(universe, noise, found[person], {})
        for one, two in changed:
            changed[one, two] += loss(universe, noise, found[one], found[two])
    guarantee = tabulation_plan(parameters, "p").promised
    assert max(added.values()) <= guarantee.parameter == parameters.total
    if is_exact:
        assert max(added.values()) == guarantee.parameter
    assert max(changed.values()) <= 2 * guarantee.parameter
    if definition == "zcdp":
        assert guarantee.bounded_rho == 2 * guarantee.parameter

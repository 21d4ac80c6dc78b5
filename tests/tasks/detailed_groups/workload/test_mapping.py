"""Iterations of persons, and the stability that follows from a specification alone."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.detailed_groups.workload.specification import (
    NONE,
    CharacteristicIteration,
    IterationUniverse,
    Specification,
    alone_counterparts,
    exact_stability,
    iteration_universe,
    iterations_of,
    production_stability,
    stability,
)

ALONE, COMBINATION, ETHNICITY = True, False, None
KINDS = (ALONE, COMBINATION, ETHNICITY)


def iteration(code: int, is_alone: bool | None, **flags: bool) -> CharacteristicIteration:
    return CharacteristicIteration(f"{code:04d}", f"iteration {code}", 1, is_alone, **flags)


@st.composite
def specifications(draw) -> Specification:
    """A few codes, each in at most one iteration of each kind."""
    n_codes = draw(st.integers(1, 5))
    of_kind = {kind: draw(st.integers(0, 4)) for kind in KINDS}
    iterations, pairs = [], []
    for kind, n in of_kind.items():
        own = [iteration(1000 + len(iterations) + i, kind) for i in range(n)]
        iterations += own
        for code in range(n_codes):
            chosen = draw(st.integers(-1, n - 1))
            if chosen >= 0:
                pairs.append((own[chosen].code, str(2000 + code)))
    names = {str(2000 + code): "" for code in range(n_codes)}
    return Specification(names, {item.code: item for item in iterations}, tuple(pairs))


def brute_force(specification: Specification, races: list[str], ethnicity: str) -> set[str]:
    """The iterations of a person, from the pairs as sets of texts."""

    def of(code: str, kind: bool | None) -> set[str]:
        return {
            iteration
            for iteration, other in specification.pairs
            if other == code and specification.iterations[iteration].is_alone is kind
        }

    alone = set.intersection(*(of(code, ALONE) for code in races))
    return alone.union(*(of(code, COMBINATION) for code in races), of(ethnicity, ETHNICITY))


def everybody(specification: Specification, max_race_codes: int) -> list[tuple[list[str], str]]:
    codes = sorted(specification.names)
    return [
        (list(races), ethnicity)
        for n in range(1, max_race_codes + 1)
        for races in combinations_with_replacement(codes, n)
        for ethnicity in codes
    ]


@given(specifications(), st.integers(1, 4))
@settings(deadline=None, max_examples=40)
def test_stability_is_the_most_groups_that_anybody_can_be_in(
    specification: Specification, max_race_codes: int
) -> None:
    universe = iteration_universe(specification, "detailed", 1)
    sizes = [
        len(brute_force(specification, races, ethnicity))
        for races, ethnicity in everybody(specification, max_race_codes)
    ]
    assert exact_stability(universe, max_race_codes) == max(sizes)
    assert stability(universe, max_race_codes) >= max(1, *sizes)


@given(specifications(), st.integers(1, 3))
@settings(deadline=None, max_examples=60)
def test_iterations_of_persons_are_those_of_the_sets(
    specification: Specification, max_race_codes: int
) -> None:
    universe = iteration_universe(specification, "detailed", 1)
    people = everybody(specification, max_race_codes)
    number = {code: place for place, code in enumerate(sorted(specification.names))}
    races = np.full((len(people), max_race_codes), NONE)
    for row, (own, _) in enumerate(people):
        races[row, : len(own)] = [number[code] for code in own]
    ethnicity = np.array([number[code] for _, code in people])
    found, start = iterations_of(universe, races, ethnicity)
    for row, (own, code) in enumerate(people):
        codes = universe.codes[found[start[row] : start[row + 1]]]
        assert len(set(codes)) == len(codes)
        assert set(codes) == brute_force(specification, own, code)


def test_stability_of_production_holds_without_enough_groups() -> None:
    """One 'alone' group whose codes are in three groups in combination: 1 + 3, and an ethnicity."""
    universe = IterationUniverse((), np.zeros(3, int), np.arange(1, 4), np.full(3, 4))
    assert exact_stability(universe, 3) == 5
    assert production_stability(universe, 3) == 4
    assert stability(universe, 3) == 5


def test_real_specification_has_stability_nine(shared) -> None:
    from spineflow.tasks.detailed_groups.workload.parameters import read_specification

    specification = read_specification(str(shared / "data" / "safetab" / "spec_2020"))
    sizes = {"detailed": {1: 52, 2: 2944}, "coarse": {1: 48, 2: 2150}}
    for granularity, levels in sizes.items():
        for level, size in levels.items():
            universe = iteration_universe(specification, granularity, level)
            assert len(universe) == size
            assert exact_stability(universe, 8) == production_stability(universe, 8) == 9


def test_granularities_leave_out_each_others_iterations() -> None:
    items = [
        iteration(1, ALONE, detailed_only=True),
        iteration(2, ALONE, coarse_only=True),
        iteration(3, COMBINATION),
    ]
    specification = Specification(
        {"2000": ""},
        {item.code: item for item in items},
        (("0001", "2000"), ("0002", "2000"), ("0003", "2000")),
    )
    detailed = iteration_universe(specification, "detailed", 1)
    assert detailed.codes.tolist() == ["0001", "0003"]
    assert detailed.total_only.tolist() == [True, False]
    coarse = iteration_universe(specification, "coarse", 1)
    assert coarse.codes.tolist() == ["0002", "0003"]
    assert not coarse.total_only.any()


def test_counterpart_holds_everybody_who_is_alone() -> None:
    """Group 2 holds both codes of group 1; group 3 only one of them."""
    items = [iteration(1, ALONE), iteration(2, COMBINATION), iteration(3, COMBINATION)]
    pairs = (("0001", "a"), ("0001", "b"), ("0002", "a"), ("0002", "b"), ("0003", "a"))
    known = {item.code: item for item in items}
    specification = Specification({"a": "", "b": ""}, known, pairs)
    assert alone_counterparts(specification) == {"0001": "0002"}
    partial = Specification({"a": "", "b": ""}, known, (*pairs[:2], *pairs[4:]))
    assert alone_counterparts(partial) == {}

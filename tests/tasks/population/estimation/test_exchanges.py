"""Members told otherwise and exchanges within blocks: what they keep, what they make smaller, and
what they carry on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.census.households import Members
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.population.estimation import blocks as blocks_module
from spineflow.tasks.population.estimation.blocks import populated
from spineflow.tasks.population.estimation.cells import Cells
from spineflow.tasks.population.estimation.composition import Households
from spineflow.tasks.population.estimation.counts import Spans
from spineflow.tasks.population.estimation.drift import Drift
from spineflow.tasks.population.estimation.exchanges import CURVE, exchanged
from spineflow.tasks.population.estimation.placing import Persons
from spineflow.tasks.population.workload import household_types, person_levels
from spineflow.tasks.population.workload.household_types import RENTED
from spineflow.tasks.population.workload.levels import are_possible
from spineflow.tasks.population.workload.places import AGES_OF_RELATIONSHIP, places_of
from spineflow.tasks.population.workload.tables import (
    families,
    household_tables,
    person_tables,
)

from tests.tasks.population.declared_levels import household_levels

from .test_population import Census, noisy_census, true_census


def without_exchanges(census: Census) -> Members:
    """The population of a census before anything is exchanged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            blocks_module, "exchanged", lambda persons, households, members, spans, cells: members
        )
        return populated(census.blocks(), Drift()).members


def spans_of(census: Census) -> Spans:
    """Blocks of which each two are a tract and a block group, as `Census.blocks` has them."""
    pairs = np.arange(len(census.person_starts) - 1) // 2
    return Spans(census.person_starts, census.household_starts, pairs, pairs)


def exchange(census: Census, members: Members, cells: Cells | None = None) -> Members:
    own = Cells() if cells is None else cells
    return exchanged(census.persons, census.households, members, spans_of(census), own)


def person_cells(persons: Persons | Members, is_alone: np.ndarray) -> np.ndarray:
    """Cells of persons in the declared schema, by its own arithmetic."""
    told, schema = person_levels.relationships(), person_levels.universe().schema
    kind = np.where(is_alone, told.alone, told.level[persons.relationship - 20])
    levels = (kind, persons.sex - 1, persons.age, persons.hispanic - 1, persons.race - 1)
    return schema.cells(dict(zip(schema.attributes, levels, strict=True)))


def household_cells(levels: np.ndarray, tenure: np.ndarray) -> np.ndarray:
    schema = household_types.universe().schema
    every = (*levels[:5], tenure, levels[5])
    return schema.cells(dict(zip(schema.attributes, every, strict=True)))


def released_cells(census: Census) -> tuple[np.ndarray, np.ndarray]:
    own: Households = census.households
    levels = np.stack([own.sex, own.age, own.origin, own.race, own.elderly, own.kind])
    return (
        person_cells(census.persons, census.persons.is_alone),
        household_cells(levels, own.tenure),
    )


def made_cells(census: Census, members: Members) -> tuple[np.ndarray, np.ndarray]:
    is_alone = (members.relationship == 20) & (np.bincount(members.unit)[members.unit] == 1)
    levels = household_levels(members, len(census.households.kind))
    return person_cells(members, is_alone), household_cells(levels, census.households.tenure)


def rows_of_cells(universe: int) -> list[np.ndarray]:
    """The row of each cell in each table, as the declared queries tell it."""
    schema = (person_levels, household_types)[universe].universe().schema
    tables = (person_tables(), household_tables())[universe]
    return [marginal_query(schema, name).row_of_cell for name in tables.names]


def areas_by_level(census: Census) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The number of the area of each block's persons and households: one state, one county, tracts
    and block groups of two blocks each, blocks."""
    block = np.arange(len(census.person_starts) - 1)
    for area in (0 * block, 0 * block, block // 2, block // 2, block):
        yield (
            np.repeat(area, np.diff(census.person_starts)),
            np.repeat(area, np.diff(census.household_starts)),
        )


def objective(
    census: Census,
    members: Members,
    large: float = CURVE[1] / CURVE[0],
    weights: tuple[np.ndarray, np.ndarray] | None = None,
) -> float:
    """The weighted sum of what differences of all tables count, which are counted one by one."""
    own_weights = weights or (person_tables().weight, household_tables().weight)
    total = 0.0
    pairs = zip(released_cells(census), made_cells(census, members), strict=True)
    for universe, (before, after) in enumerate(pairs):
        weight = own_weights[universe]
        for level, areas in enumerate(areas_by_level(census)):
            for table, row_of_cell in enumerate(rows_of_cells(universe)):
                counts: Counter[tuple[int, int]] = Counter()
                for cells, sign in ((after, 1), (before, -1)):
                    for area, row in zip(areas[universe], row_of_cell[cells], strict=True):
                        counts[int(area), int(row)] += sign
                of_each = (abs(more) + large * more**2 for more in counts.values())
                total += weight[table, level] * sum(of_each)
    return total


def kept(census: Census, members: Members) -> list[Counter[tuple[int, ...]]]:
    """All that exchanges keep of every block, as counts."""
    n = len(census.households.kind)
    block = np.repeat(np.arange(len(census.person_starts) - 1), np.diff(census.person_starts))
    home = np.repeat(np.arange(len(census.person_starts) - 1), np.diff(census.household_starts))
    sex, _, _, _, elderly, kind = household_levels(members, n)
    is_rented = census.households.tenure == RENTED
    is_alone = (members.relationship == 20) & (np.bincount(members.unit)[members.unit] == 1)
    persons = [
        (places_of(members.relationship, members.age, is_alone),),
        (members.age >= 18, members.hispanic, members.race),
    ]
    homes = [(kind, elderly, sex), (sex, families()[kind], is_rented)]
    return [
        Counter(zip(*(own.tolist() for own in (area, *columns)), strict=True))
        for area, every in ((block, persons), (home, homes))
        for columns in every
    ]


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_exchanges_keep_what_is_told_and_bring_the_tables_nearer(seed: int, is_true: bool) -> None:
    rng = np.random.default_rng(seed)
    census = true_census(rng, 4) if is_true else noisy_census(rng, 4, 8)
    before = without_exchanges(census)
    after = exchange(census, before)
    assert kept(census, after) == kept(census, before)
    assert np.array_equal(after.race, census.persons.race)
    assert np.array_equal(after.hispanic, census.persons.hispanic)
    levels = household_levels(after, len(census.households.kind))
    assert are_possible(levels).all()
    ages = [AGES_OF_RELATIONSHIP[int(code)] for code in after.relationship]
    first, last = np.array(ages).reshape(-1, 2).T
    assert ((after.age >= first) & (after.age <= last)).all()
    less = objective(census, before) - objective(census, after)
    is_same = all(
        np.array_equal(getattr(after, name), getattr(before, name))
        for name in ("unit", "relationship", "age", "sex")
    )
    assert less > 1e-9 or is_same


def test_ages_that_blocks_have_exchanged_are_exchanged_back() -> None:
    """Of a census that fits together, two men who are no householders have each other's ages."""
    census = true_census(np.random.default_rng(4), 6)
    made = without_exchanges(census)
    persons = census.persons
    block = np.repeat(np.arange(6), np.diff(census.person_starts))
    is_free = (persons.relationship >= 25) & (persons.age >= 18) & (persons.age < 60)
    pairs = [
        (p, q)
        for p in np.flatnonzero(is_free)
        for q in np.flatnonzero(is_free)
        if block[p] == block[q]
        and persons.sex[p] == persons.sex[q]
        and persons.relationship[p] < persons.relationship[q]
        and persons.age[p] // 5 != persons.age[q] // 5
    ]
    p, q = pairs[0]
    age = made.age.copy()
    age[[p, q]] = age[[q, p]]
    mixed = replace(made, age=age)
    assert objective(census, mixed) > objective(census, made)
    assert objective(census, exchange(census, mixed)) == objective(census, made)


@pytest.mark.parametrize(
    ("relationship", "named", "told"),
    [(25, "age", 11), (25, "sex", None), (25, "relationship", 27)],
)
def test_who_alone_was_told_otherwise_is_told_as_before(
    relationship: int, named: str, told: int | None
) -> None:
    """Of a census that fits together, a child from 6 to 8 has another age, sex or relationship."""
    census = true_census(np.random.default_rng(4), 6)
    made = without_exchanges(census)
    is_child = (made.relationship == 25) & (made.age >= 6) & (made.age < 9)
    child = np.flatnonzero(is_child)[0]
    own = getattr(made, named).copy()
    own[child] = 3 - own[child] if told is None else told
    mixed = replace(made, **{named: own})
    assert objective(census, mixed) > objective(census, made)
    assert objective(census, exchange(census, mixed)) == objective(census, made)


def test_what_is_carried_on_is_what_was_changed_in_state_and_county() -> None:
    census = noisy_census(np.random.default_rng(2), 6, 8)
    cells = Cells()
    cells.enter(("44", "44001"))
    after = exchange(census, without_exchanges(census), cells)
    pairs = zip(released_cells(census), made_cells(census, after), strict=True)
    for universe, (before, now) in enumerate(pairs):
        counts = (cells.persons, cells.households)[universe]
        n_rows = (person_tables(), household_tables())[universe].n_rows
        rows, start = rows_of_cells(universe), 0
        more = np.zeros(n_rows, dtype=int)
        for row_of_cell in rows:
            for own, sign in ((now, 1), (before, -1)):
                np.add.at(more, start + row_of_cell[own], sign)
            start += 1 + row_of_cell.max()
        assert start == n_rows
        assert np.array_equal(counts, np.stack([more, more], axis=1))


def test_what_is_carried_on_is_told_to_the_last_record() -> None:
    drift = Drift()
    drift.cells.enter(("44", "44001"))
    drift.cells.persons[[3, 70], [0, 1]] = -40_000, 2
    drift.cells.households[5, 1] = 7
    told = Drift.from_json(json.dumps(json.loads(drift.to_json()))).cells
    assert np.array_equal(told.persons, drift.cells.persons)
    assert np.array_equal(told.households, drift.cells.households)
    told.enter(("44", "44003"))
    assert told.persons[3, 0] == -40_000
    assert not told.persons[:, 1].any()
    assert not told.households[:, 1].any()
    told.enter(("45", "45003"))
    assert not told.persons.any()

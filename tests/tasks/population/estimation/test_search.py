"""A local search over moves of one and two members and of two households: what it keeps, what it
makes smaller, and what a whole state makes up for at last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.census.households import Members
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.population.estimation import search as searched_module
from spineflow.tasks.population.estimation.blocks import (
    COUNTY_TURNS,
    STATE_TURNS,
    close_states,
    populate_county,
)
from spineflow.tasks.population.estimation.counts import State, Surplus, members_of, state_of
from spineflow.tasks.population.estimation.search import EXCHANGES, search
from spineflow.tasks.population.estimation.start import Persons
from spineflow.tasks.population.workload import household_types, person_levels
from spineflow.tasks.population.workload.household_types import (
    DERIVED,
    OPEN_SIZE,
    TENURE,
    are_possible,
)
from spineflow.tasks.population.workload.tables import household_tables, person_tables, weights_of

from tests.tasks.population.declared_levels import household_levels

from .test_population import Census, assert_one_population, noisy_census, true_census

Turn = tuple[int, int, int, int, int]
LAST = STATE_TURNS[-1]


def state(census: Census, members: Members, others: Surplus = 0) -> State:
    return state_of(census.persons, census.households, members, others)


def after_search(census: Census, members: Members, turn: Turn = LAST) -> Members:
    own = state(census, members)
    search(own, census.blocks().spans(), [turn])
    return members_of(own, members)


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
    own = census.households
    return (
        person_cells(census.persons, census.persons.is_alone),
        household_cells(own[list(DERIVED)], own[TENURE]),
    )


def made_cells(census: Census, members: Members) -> tuple[np.ndarray, np.ndarray]:
    is_alone = (members.relationship == 20) & (np.bincount(members.unit)[members.unit] == 1)
    levels = household_levels(members, census.households.shape[1])
    return person_cells(members, is_alone), household_cells(levels, census.households[TENURE])


def objective(census: Census, members: Members, turn: Turn = LAST) -> float:
    """The weighted sum of differences of all tables, which are counted one by one: of one state and
    county, tracts and block groups of two blocks each, and blocks."""
    total, block = 0.0, np.arange(len(census.person_starts) - 1)
    pairs = zip(released_cells(census), made_cells(census, members), strict=True)
    for universe, (before, after) in enumerate(pairs):
        schema = (person_levels, household_types)[universe].universe().schema
        tables = (person_tables(), household_tables())[universe]
        starts = (census.person_starts, census.household_starts)[universe]
        for level, area in enumerate((0 * block, 0 * block, block // 2, block // 2, block)):
            own = np.repeat(area, np.diff(starts))
            for table, name in enumerate(tables.names):
                row_of_cell = marginal_query(schema, name).row_of_cell
                counts: Counter[tuple[int, int]] = Counter()
                for cells, sign in ((after, 1), (before, -1)):
                    for pair in zip(own.tolist(), row_of_cell[cells].tolist(), strict=True):
                        counts[pair] += sign
                weight = weights_of(turn)[universe][table, level]
                total += weight * sum(map(abs, counts.values()))
    return total


def have_larger(census: Census, members: Members) -> list[bool]:
    """Whether somebody of each block lives beyond the seventh member of a household."""
    size = np.bincount(members.unit, minlength=census.households.shape[1])
    starts = census.household_starts
    return [bool((size[a:b] > OPEN_SIZE).any()) for a, b in zip(starts, starts[1:], strict=False)]


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_search_leaves_one_population_that_is_nearer_to_the_releases(seed: int) -> None:
    census = noisy_census(np.random.default_rng(seed), 4, 6)
    now = populate_county(census.blocks())
    larger = have_larger(census, now)
    for turn in (*COUNTY_TURNS, *STATE_TURNS):
        after = after_search(census, now, turn)
        assert_one_population(census, after)
        is_same = all(map(np.array_equal, vars(now).values(), vars(after).values()))
        less = objective(census, now, turn) - objective(census, after, turn)
        assert less > 0 or (less == 0 and is_same)
        now = after
    assert have_larger(census, now) == larger


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, len(EXCHANGES)))
def test_counts_that_a_search_keeps_are_those_of_its_members(seed: int, kind: int) -> None:
    """Of all kinds of moves of one member, and of each exchange."""
    census = noisy_census(np.random.default_rng(seed), 4, 6)
    made = populate_county(census.blocks())
    # What other counties have changed.
    n_rows = person_tables().n_rows, household_tables().n_rows
    others = np.zeros(sum(n_rows), dtype=np.int32)
    others[: n_rows[0] : 5], others[n_rows[0] :: 7] = 2, -1
    own = state(census, made, others)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searched_module, "EXCHANGES", EXCHANGES[kind : kind + 1])
        search(own, census.blocks().spans(), [LAST])
    anew = state(census, members_of(own, made), others)
    search(anew, census.blocks().spans(), [])
    for name in ("persons", "households"):
        kept, counted = getattr(own, name), getattr(anew, name)
        assert np.array_equal(kept.more, counted.more)
        if name == "persons":
            assert np.array_equal(kept.rows[np.argsort(own.people.who)], counted.rows)
        for table, weight in enumerate(kept.weight):
            rows = slice(*kept.first_rows[table : table + 2])
            out, into = (np.where(sign * kept.more[rows] > 0, -1, 1) @ weight for sign in (1, -1))
            assert np.array_equal(kept.step[rows], np.stack([out, into], axis=1))


@pytest.mark.parametrize(
    ("relationship", "named", "told"),
    [(25, "relationship", 33), (25, "relationship", 36), (33, "relationship", 34),
     (25, "age", 11), (25, "sex", None), (25, "relationship", 27)],
)  # fmt: skip
def test_who_was_made_something_else_is_made_the_same_again(
    relationship: int, named: str, told: int | None
) -> None:
    """Of a census that fits together, a young child, or another relative, is something else."""
    census, made = fitting_census()
    is_one = (made.relationship == relationship) & ((made.age >= 6) == (relationship == 25))
    one = np.flatnonzero(is_one & ((made.age < 9) | (relationship != 25)))
    one = one if len(one) else np.flatnonzero(made.relationship == relationship)
    own = getattr(made, named).copy()
    own[one[0]] = 3 - own[one[0]] if told is None else told
    mixed = replace(made, **{named: own})
    assert objective(census, mixed) > 0
    assert objective(census, after_search(census, mixed)) == 0


def fitting_census() -> tuple[Census, Members]:
    """Six blocks that fit together, and who lives where."""
    census = true_census(np.random.default_rng(4), 6)
    assert census.members is not None
    assert objective(census, census.members) == 0
    return census, census.members


def of_couples(census: Census, made: Members) -> Iterator[Members]:
    """Each householder with a spouse of the other sex is the spouse, and the other way round."""
    for spouse in np.flatnonzero(made.relationship == 21):
        head = np.flatnonzero((made.unit == made.unit[spouse]) & (made.relationship == 20))[0]
        yield _mixed(made, "relationship", spouse, head)


def of_householders(census: Census, made: Members) -> Iterator[Members]:
    """Householders of one sex of each two households of a block live in the other one."""
    yield from _in_other_homes(census, made, np.flatnonzero(made.relationship == 20))


def of_others(census: Census, made: Members) -> Iterator[Members]:
    """Each two members of one sex who are neither householders nor partners do."""
    yield from _in_other_homes(census, made, np.flatnonzero(made.relationship > 24))


def of_ages(census: Census, made: Members) -> Iterator[Members]:
    """Each two adults of one sex of a block, householders or not, have each other's age."""
    every = np.flatnonzero((made.age >= 18) & (made.relationship > 24))
    block = np.searchsorted(census.person_starts, np.arange(len(made.age)), side="right")
    for one in every:
        for two in every[(every > one) & (block[every] == block[one])]:
            if made.relationship[one] != made.relationship[two] and made.age[one] != made.age[two]:
                yield _mixed(made, "age", one, two)


def _in_other_homes(census: Census, made: Members, every: np.ndarray) -> Iterator[Members]:
    block = np.searchsorted(census.person_starts, np.arange(len(made.age)), side="right")
    for one in every:
        for two in every[(every > one) & (block[every] == block[one])]:
            if made.unit[one] != made.unit[two] and made.sex[one] == made.sex[two]:
                yield _mixed(made, "unit", one, two)


def _mixed(made: Members, name: str, one: int, two: int) -> Members:
    """Members of whom two have each other's unit or relationship."""
    values = getattr(made, name).copy()
    values[[one, two]] = values[[two, one]]
    return replace(made, **{name: values})


@pytest.mark.parametrize("mixed_up", [of_couples, of_householders, of_others, of_ages])
def test_what_was_mixed_up_is_put_right(
    mixed_up: Callable[[Census, Members], Iterator[Members]],
) -> None:
    """In a census that fits together; where another move is found first, something may be left."""
    census, made = fitting_census()
    n, left = census.households.shape[1], []
    for mixed in mixed_up(census, made):
        if len(left) == 8:
            break
        before = objective(census, mixed)
        if before > 0 and are_possible(household_levels(mixed, n)).all():
            left.append(objective(census, after_search(census, mixed)) / before)
    assert len(left) > 3
    assert max(left) <= 1
    assert np.mean(np.array(left) == 0) >= 0.6


@pytest.mark.slow
def test_of_every_state_what_is_left_over_is_made_up_for() -> None:
    """Of two states with two counties each, in whose blocks persons and households do not fit."""
    census = noisy_census(np.random.default_rng(8), 12, 8)
    codes = [f"{35 + k // 6}{k // 3:03d}{k:06d}1{k:04d}" for k in range(12)]
    blocks = replace(census.blocks(), codes=np.array(codes))
    counties = blocks.counties()
    assert len(counties) == 4
    begun = [populate_county(blocks.part(*one)) for one in counties]
    made = replace(
        begun[0],
        **{
            name: np.concatenate([
                getattr(own, name) + (name == "unit") * blocks.household_starts[first]
                for own, (first, _) in zip(begun, counties, strict=True)
            ])
            for name in vars(begun[0])
        },
    )  # fmt: skip
    after = close_states(blocks, made)
    assert_one_population(census, after)
    of_state = np.repeat(np.arange(12) // 6, np.diff(blocks.person_starts))
    for number in range(2):
        sums = []
        for members in (made, after):
            cells = [one[0] for one in (released_cells(census), made_cells(census, members))]
            schema = person_levels.universe().schema
            row = marginal_query(schema, "relgq * sex").row_of_cell
            before, now = (
                np.bincount(row[own[of_state == number]], minlength=100) for own in cells
            )
            sums.append(abs(now - before).sum())
        assert sums[1] <= sums[0]

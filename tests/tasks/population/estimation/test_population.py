"""One population in small random censuses: whatever is released, households fit their members."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.census.households import Members
from spineflow.tasks.population.estimation.blocks import Blocks, close_states, populate_county
from spineflow.tasks.population.estimation.start import Persons, first_members, lacking_larger
from spineflow.tasks.population.workload.household_types import (
    AGES_OF_RELATIONSHIP,
    TYPE,
    are_possible,
    derived_levels,
    head_races,
    parts_of_types,
    types,
    universe,
)
from spineflow.tasks.topdown.ingest.generate_households import Persons as Adults
from spineflow.tasks.topdown.ingest.generate_households import draw_households

from tests.tasks.population.declared_levels import household_levels


@dataclass(frozen=True)
class Census:
    """Released persons and households of some blocks, and where each block begins; where they fit
    together, who lives where."""

    persons: Persons
    households: np.ndarray
    person_starts: np.ndarray
    household_starts: np.ndarray
    members: Members | None = None

    def blocks(self) -> Blocks:
        return Blocks(
            self.persons,
            self.households,
            self.person_starts,
            self.household_starts,
            codes_of(len(self.person_starts) - 1),
        )

    def populated(self) -> Members:
        blocks = self.blocks()
        return close_states(blocks, populate_county(blocks))


def codes_of(n_blocks: int) -> np.ndarray:
    """Codes of blocks of a county; each tract, and its block group, has two."""
    return np.array([f"35001{block // 2:06d}1{block:04d}" for block in range(n_blocks)], dtype=str)


def noisy_census(rng: np.random.Generator, n_blocks: int, most_units: int) -> Census:
    """Persons and households drawn apart, without regard to each other; only numbers fit."""
    n_units = rng.integers(0, most_units + 1, n_blocks)
    more = rng.poisson(rng.choice([0.0, 0.5, 1.5, 9.0], n_blocks) * n_units)
    n_persons = n_units + np.where(n_units > 0, more, 0)
    n = int(n_persons.sum())
    codes = np.array(sorted(AGES_OF_RELATIONSHIP))
    relationship = rng.choice(codes, n)
    ages = [AGES_OF_RELATIONSHIP[int(code)] for code in relationship]
    first, last = np.array(ages, dtype=np.int64).reshape(-1, 2).T
    age = first + (rng.random(n) * (last - first + 1)).astype(int)
    race = rng.integers(1, 64, n)
    persons = Persons(
        relationship,
        rng.integers(1, 3, n),
        age,
        rng.integers(1, 3, n),
        race,
        head_races()[race],
        (relationship == 20) & (rng.random(n) < 0.5),
    )
    cells = np.argwhere(types().possible)
    sex, head, elderly, kind = cells[rng.integers(0, len(cells), int(n_units.sum()))].T
    h = len(sex)
    origin, race, tenure = (rng.integers(0, n, h) for n in (2, 7, 3))
    households = np.stack([sex, head, origin, race, elderly, tenure, kind])
    starts = [np.append(0, np.cumsum(number)) for number in (n_persons, n_units)]
    return Census(persons, households, starts[0], starts[1])


def true_census(rng: np.random.Generator, n_blocks: int) -> Census:
    """Persons in households that fit together, and these households."""
    n_units = rng.integers(1, 12, n_blocks)
    n_persons = n_units + rng.poisson(1.4 * n_units)
    block = np.repeat(np.arange(n_blocks), n_persons)
    n = len(block)
    race = np.where(rng.random(n) < 0.8, 1, rng.integers(1, 64, n))
    people = Adults(block, rng.random(n) < 0.8, rng.integers(1, 3, n), race)
    members = draw_households(rng, people, np.repeat(np.arange(n_blocks), n_units))
    sex, age, origin, race_of_head, elderly, kind = household_levels(members, int(n_units.sum()))
    starts = [np.append(0, np.cumsum(number)) for number in (n_persons, n_units)]
    return Census(
        Persons(
            members.relationship,
            members.sex,
            members.age,
            members.hispanic,
            members.race,
            head_races()[members.race],
            np.bincount(members.unit)[members.unit] == 1,
        ),
        np.stack([sex, age, origin, race_of_head, elderly, rng.integers(0, 3, len(kind)), kind]),
        starts[0],
        starts[1],
        members,
    )


def assert_one_population(census: Census, members: Members) -> None:
    persons = census.persons
    n = census.households.shape[1]
    block_of_unit = np.searchsorted(census.household_starts, np.arange(n), side="right") - 1
    block = np.searchsorted(census.person_starts, np.arange(len(persons.age)), side="right") - 1
    assert np.array_equal(block_of_unit[members.unit], block)
    heads = members.unit[members.relationship == 20]
    assert np.array_equal(np.sort(heads), np.arange(n))
    assert np.array_equal(members.age >= 18, persons.age >= 18)
    assert np.array_equal(members.race, persons.race)
    assert np.array_equal(members.hispanic, persons.hispanic)
    first, last = (
        np.array([AGES_OF_RELATIONSHIP[int(code)] for code in members.relationship])
        .reshape(-1, 2)
        .T
    )
    assert ((members.age >= first) & (members.age <= last)).all()
    told = household_levels(members, n)
    assert np.array_equal(told, derived_levels(members, n))
    assert are_possible(told).all()
    partners = (members.relationship >= 21) & (members.relationship <= 24)
    of_head = np.zeros(n, dtype=int)
    of_head[heads] = members.sex[members.relationship == 20]
    assert (np.bincount(members.unit[partners], minlength=n) <= 1).all()
    same = members.sex[partners] == of_head[members.unit[partners]]
    assert np.array_equal(same, members.relationship[partners] >= 23)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_whatever_is_released_becomes_one_population(seed: int) -> None:
    census = noisy_census(np.random.default_rng(seed), 3, 5)
    assert_one_population(census, census.populated())


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_a_search_begins_with_one_population(seed: int, is_true: bool) -> None:
    rng = np.random.default_rng(seed)
    census = true_census(rng, 1) if is_true else noisy_census(rng, 1, 8)
    if len(census.persons.age) == 0:
        return
    begun = first_members(census.persons, census.households, are_few=False)
    assert_one_population(census, begun)


def test_what_is_one_population_nearly_stays_so() -> None:
    census = true_census(np.random.default_rng(5), 12)
    made = census.populated()
    assert_one_population(census, made)
    for name, most in (("relationship", 0.02), ("age", 0.02), ("sex", 0.02)):
        changed = getattr(made, name) != getattr(census.persons, name)
        assert changed.mean() <= most, (name, changed.mean())
    own = census.households
    derived = derived_levels(made, own.shape[1])
    kinds = [np.bincount(one, minlength=522) for one in (derived[5], own[TYPE])]
    assert abs(kinds[0] - kinds[1]).sum() <= 0.1 * own.shape[1]


def test_blocks_have_larger_households_as_often_as_thought() -> None:
    """Of three persons in homes of three and of seven or more, and one beyond: in which home the
    one lives depends on how many blocks have a larger one."""
    lacking = lacking_larger(0.0, np.array([7, 2]))
    assert lacking == pytest.approx(0.45)
    lacking = lacking_larger(lacking, np.array([8, 7, 2]))
    assert lacking == pytest.approx(0.45 + 1 - 0.55**2 - 1)
    lacking = lacking_larger(lacking, np.array([2]))
    assert lacking == pytest.approx(0.45 + 1 - 0.55**2 - 1)
    rng = np.random.default_rng(2)
    census = true_census(rng, 30)
    at = np.flatnonzero(parts_of_types()["size"][census.households[TYPE]] == 7)[0]
    block = int(np.searchsorted(census.household_starts, at, side="right")) - 1
    own = census.blocks().part(block, block + 1)
    assert own.households.shape[1] > 1
    persons = Persons(*(np.append(one, one[-1]) for one in vars(own.persons).values()))
    sizes = []
    for are_few in (False, True):
        made = first_members(persons, own.households, are_few=are_few)
        sizes.append(np.bincount(made.unit).max())
    assert sizes == [7, 8]


def test_what_is_impossible_is_refused() -> None:
    census = true_census(np.random.default_rng(5), 1)
    none = np.array([0, 0])
    with pytest.raises(ValueError, match="cannot live in"):
        populate_county(
            Blocks(census.persons, census.households, none, census.household_starts, codes_of(1))
        )


def test_schema_is_the_one_that_levels_are_told_by() -> None:
    assert universe().schema.shape == (2, 9, 2, 7, 4, 3, 522)

"""Members who become something else, or move to another household of their block: what they keep,
what they make smaller, and what a whole state makes up for at last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.census.households import Members
from spineflow.tasks.population.estimation.blocks import spans_of
from spineflow.tasks.population.estimation.cells import Cells
from spineflow.tasks.population.estimation.closing import closed
from spineflow.tasks.population.estimation.counts import changed
from spineflow.tasks.population.estimation.moves import TURNS, moved, weights_of
from spineflow.tasks.population.workload.household_types import OPEN_SIZE

from .test_exchanges import objective
from .test_population import Census, assert_one_population, noisy_census, true_census


def move(
    census: Census,
    members: Members,
    cells: Cells | None = None,
    turns: Sequence[Sequence[int]] = TURNS,
) -> Members:
    own = Cells() if cells is None else cells
    spans = spans_of(census.blocks())
    return moved(census.persons, census.households, members, spans, own, turns)


def have_larger(census: Census, members: Members) -> list[bool]:
    """Whether somebody of each block lives beyond the seventh member of a household."""
    size = np.bincount(members.unit, minlength=len(census.households.kind))
    starts = census.household_starts
    return [bool((size[a:b] > OPEN_SIZE).any()) for a, b in zip(starts, starts[1:], strict=False)]


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_moves_leave_one_population_that_is_nearer_to_the_releases(seed: int) -> None:
    census = noisy_census(np.random.default_rng(seed), 4, 6)
    made = census.populated()
    cells = Cells()
    # What other counties have changed.
    cells.persons[::5], cells.households[::7] = 2, -1
    after = move(census, made.members, cells)
    assert_one_population(census, replace(made, members=after))
    now = made.members
    for turn in TURNS:
        weights = weights_of(turn)
        before = objective(census, now, 0.0, weights)
        now = move(census, now, turns=[turn])
        assert objective(census, now, 0.0, weights) <= before
    assert have_larger(census, after) == have_larger(census, made.members)
    assert np.array_equal(after.age >= 18, made.members.age >= 18)
    own = changed(census.persons, census.households, after, spans_of(census.blocks()))
    own.persons[::5] += 2
    own.households[::7] -= 1
    assert np.array_equal(cells.persons, own.persons)
    assert np.array_equal(cells.households, own.households)


@pytest.mark.parametrize(("relationship", "now"), [(25, 33), (25, 36), (33, 34)])
def test_a_relationship_that_was_changed_is_changed_back(relationship: int, now: int) -> None:
    """Of a census that fits together, who is a child, or another relative, is something else."""
    census = true_census(np.random.default_rng(4), 6)
    made = census.populated()
    own = made.members.relationship.copy()
    own[np.flatnonzero(own == relationship)[0]] = now
    mixed = replace(made.members, relationship=own)
    assert_nearer(census, mixed, made.members)


def test_who_lives_in_another_household_of_the_block_moves_back() -> None:
    census = true_census(np.random.default_rng(4), 6)
    made = census.populated().members
    size = np.bincount(made.unit)
    block = np.searchsorted(census.household_starts, np.arange(len(size)), side="right") - 1
    one = next(k for k in np.flatnonzero(made.relationship == 25) if size[made.unit[k]] > 2)
    homes = np.flatnonzero((block == block[made.unit[one]]) & (size == 1))
    unit = made.unit.copy()
    unit[one] = homes[0]
    assert_nearer(census, replace(made, unit=unit), made)


def assert_nearer(census: Census, mixed: Members, made: Members) -> None:
    """Moves bring what was mixed up at least as near as it was made."""
    before = objective(census, mixed, 0.0)
    assert before > objective(census, made, 0.0)
    assert objective(census, move(census, mixed), 0.0) <= objective(census, made, 0.0)


@pytest.mark.soak(2)
def test_of_every_state_what_is_left_over_is_made_up_for() -> None:
    """Of two states with a county each, in whose blocks persons and households do not fit."""
    census = noisy_census(np.random.default_rng(8), 12, 8)
    blocks = replace(
        census.blocks(),
        areas=[(f"s{k // 6}", f"s{k // 6}c", f"t{k // 2}", f"g{k // 2}") for k in range(12)],
    )
    made = census.populated()
    after = closed(blocks, made)
    assert_one_population(census, after)
    assert after.way == made.way
    for first, end in blocks.counties():
        own = blocks.part(first, end)
        start, stop = blocks.person_starts[[first, end]]
        sums = []
        for members in (made.members, after.members):
            names = ("relationship", "age", "sex", "hispanic", "race")
            unit = members.unit[start:stop] - blocks.household_starts[first]
            of_county = Members(unit, *(getattr(members, name)[start:stop] for name in names))
            more = changed(own.persons, own.households, of_county, spans_of(own))
            sums.append(abs(more.persons[:, 0]).sum() + abs(more.households[:, 0]).sum())
        assert sums[1] < sums[0]

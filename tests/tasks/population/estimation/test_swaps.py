"""Members who take each other's place or household: what they keep, and what they make smaller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.census.households import Members
from spineflow.tasks.population.estimation.blocks import spans_of
from spineflow.tasks.population.estimation.cells import Cells
from spineflow.tasks.population.estimation.counts import (
    changed,
    enter,
    leave,
    members_of,
    state_of,
    weigh,
)
from spineflow.tasks.population.estimation.moves import TURNS, weights_of
from spineflow.tasks.population.estimation.swaps import swap_members, swaps_of
from spineflow.tasks.population.workload.levels import are_possible

from tests.tasks.population.declared_levels import household_levels

from .test_exchanges import objective
from .test_population import Census, assert_one_population, noisy_census, true_census


def swapped(census: Census, members: Members, cells: Cells | None = None) -> Members:
    """Members after one time through all blocks, by the weights of the last turn."""
    spans, cells = spans_of(census.blocks()), Cells() if cells is None else cells
    state = state_of(census.persons, census.households, members, spans, cells)
    for counts, weights in zip(
        (state.persons, state.households), weights_of(TURNS[-1]), strict=True
    ):
        counts.weight[:] = weights
        weigh(counts)
    swaps = swaps_of(state)
    for block in range(len(spans.tract)):
        enter(state, spans, block)
        swap_members(state, swaps, spans, block)
        leave(state, spans, block)
    return members_of(state, members, cells)


def sum_of(census: Census, members: Members) -> float:
    """What swaps make smaller."""
    return objective(census, members, 0.0, weights_of(TURNS[-1]))


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_swaps_keep_persons_and_sizes_and_make_the_sum_smaller(seed: int) -> None:
    census = noisy_census(np.random.default_rng(seed), 4, 6)
    made = census.populated()
    before, cells = made.members, Cells()
    after = swapped(census, before, cells)
    assert_one_population(census, replace(made, members=after))
    n = len(census.households.kind)
    for name in ("age", "sex", "hispanic", "race"):
        assert np.array_equal(getattr(after, name), getattr(before, name))
    assert np.array_equal(
        np.bincount(after.unit, minlength=n), np.bincount(before.unit, minlength=n)
    )
    for first, end in zip(census.person_starts, census.person_starts[1:], strict=False):
        kinds = [np.sort(own.relationship[first:end]) for own in (before, after)]
        assert np.array_equal(*kinds)
    is_other = not np.array_equal(after.unit, before.unit)
    is_other = is_other or not np.array_equal(after.relationship, before.relationship)
    assert sum_of(census, after) < sum_of(census, before) or not is_other
    own = changed(census.persons, census.households, after, spans_of(census.blocks()))
    assert np.array_equal(cells.persons, own.persons)
    assert np.array_equal(cells.households, own.households)


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


@pytest.mark.parametrize("mixed_up", [of_couples, of_householders, of_others])
def test_what_was_mixed_up_is_swapped_back(
    mixed_up: Callable[[Census, Members], Iterator[Members]],
) -> None:
    """In a census that fits together; where another swap is found first, something may be left."""
    census = true_census(np.random.default_rng(4), 6)
    made, n = census.populated().members, len(census.households.kind)
    assert sum_of(census, made) == 0
    left = []
    for mixed in mixed_up(census, made):
        if len(left) == 12:
            break
        before = sum_of(census, mixed)
        if before > 0 and are_possible(household_levels(mixed, n)).all():
            left.append(sum_of(census, swapped(census, mixed)) / before)
    assert len(left) == 12
    assert max(left) < 1
    assert min(left) == 0

"""Attacks on single people: who was swapped, and whether somebody is in the data at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...census.people import People
from ..methods.accuracy import ALL
from ..methods.publish import generator_of, publish, swapped_by
from ..settings import DifferentialPrivacy, Swapping
from ..workload.population import Population
from ..workload.tables import AskedTable, Places, Tables
from .membership import GaussianTradeoff, clopper_pearson, measured_test, optimal_statistic
from .release import Release, Row
from .swap_detection import Linked, graded, linked

SWAPS, MEMBERSHIP = "swap_detection", "membership"
DRAWS = 200
"""Releases with and without a person, by which a membership test is measured."""
FEW = 2_000
"""People of the areas on which it is measured: enough for areas of every size."""
FALSE_POSITIVE_RATE = 0.01


def detect_swaps(release: Release) -> Iterator[Row]:
    """Figures of who was swapped, found by people who are one of their kind in all areas.

    The attacker knows where such people live, and sees the area in which a table counts one. A
    method that swaps nobody has no such figures.
    """
    if not isinstance(release.method, Swapping):
        return
    population, draw = release.population, release.draw
    people = population.people
    generator = generator_of(
        release.comparison.seed, draw.method, str(draw.strength), str(draw.number)
    )
    moved = swapped_by(population, release.method, draw.strength, generator).area != people.area
    record = np.full(len(people), -1, dtype=np.int64)
    is_moved = np.zeros(len(people), dtype=bool)
    for table in release.tables:
        found = _linked_by(table, release.published, people)
        new = found.is_linked & (record < 0)
        record[new], is_moved[new] = found.record[new], found.is_moved[new]
    grades = graded(Linked(record, is_moved), moved)
    level = release.smallest.level
    for measure, rate in (
        ("people who are linked", grades.linked),
        ("precision of who was swapped", grades.precision),
        ("share of the swapped that is found", grades.recall),
    ):
        yield level, f"{SWAPS}: {measure}", ALL, rate.value, rate.low, rate.high
    # Who has seen nothing says of everybody that he was swapped.
    share = clopper_pearson(int(moved.sum()), len(people))
    measure = f"baseline of {SWAPS}: precision of who was swapped"
    yield level, measure, ALL, share.value, share.low, share.high


def _linked_by(table: AskedTable, published: Tables, people: People) -> Linked:
    """The people of whose kind, by an answer of a table, there is one in all, there and here."""
    value = np.nan_to_num(published[table.key].value)
    entity, answer = np.nonzero(value > 0)
    times = value[entity, answer].astype(np.int64)
    places = table.places.entity[people.area]
    counted = table.counted[people.cell] & (places >= 0)
    # Whoever the table does not count has a key of his own that nothing is linked by.
    key = np.where(counted, table.query.row_of_cell[people.cell], -1 - np.arange(len(people)))
    return linked(key, places, np.repeat(answer, times), np.repeat(entity, times))


def tell_members(release: Release) -> Iterator[Row]:
    """Figures of the test whether a person is among the people of some areas.

    The attacker knows everybody else, and how the method draws; the person is a rare one. Measured
    on many releases of these areas, half of them without the person, by the sum of what the person
    would change; for differential privacy the bound that its guarantee implies.
    """
    level, method = ALL, release.method
    measure = f"{MEMBERSHIP}: true positives at 1 % false ones"
    baseline = f"baseline of {measure}"
    yield level, baseline, ALL, FALSE_POSITIVE_RATE
    if isinstance(method, DifferentialPrivacy):
        if method.rho:
            tradeoff = GaussianTradeoff.of_rho(float(method.rho[release.draw.strength]))
            bound = tradeoff.true_positive_rate(FALSE_POSITIVE_RATE)
            yield level, f"{measure}, bound of the guarantee", ALL, bound
        return
    population, person = _few(release.population)
    target = population.people.area[[person]], population.people.cell[[person]]
    rest = _of(population, np.delete(np.arange(len(population.people)), person))
    if not method.is_random:
        inside, outside = (_answers(release, own, target, 1) for own in (population, rest))
        yield level, measure, ALL, FALSE_POSITIVE_RATE if (inside == outside).all() else 1.0
        return
    inside, outside = (
        optimal_statistic(answers, np.ones(answers.shape[1]), np.ones(answers.shape[1]))
        for answers in (_answers(release, own, target, DRAWS) for own in (population, rest))
    )
    found = measured_test(inside, outside, FALSE_POSITIVE_RATE).true_positive
    yield level, measure, ALL, found.value, found.low, found.high


def _few(population: Population) -> tuple[Population, int]:
    """The people of the first areas that have some thousands together, and a rare one of them."""
    area = population.people.area
    last = int(area[np.argsort(area, kind="stable")[min(FEW, len(area)) - 1]])
    inside = np.arange(len(population.tables[0].places.entity)) <= last
    kept: dict[str, Places] = {}
    for places in (*(table.places for table in population.tables), *population.regions):
        kept.setdefault(places.level, _some(places, inside))
    few = _of(
        replace(
            population,
            tables=[replace(own, places=kept[own.places.level]) for own in population.tables],
            regions=[kept[own.level] for own in population.regions],
        ),
        np.flatnonzero(area <= last),
    )
    _, kind, counts = np.unique(few.risk, return_inverse=True, return_counts=True)
    return few, int(np.argmin(counts[kind]))


def _some(places: Places, inside: np.ndarray) -> Places:
    """The entities that have some of the areas, all of whose other areas are forgotten."""
    entity = places.entity[inside]
    kept = np.unique(entity[entity >= 0])
    number = np.full(len(places) + 1, -1, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    _, parent = np.unique(places.parent[kept], return_inverse=True)
    codes = tuple(places.codes[own] for own in kept)
    return Places(places.level, number[entity], codes, places.parent_level, parent)


def _of(population: Population, chosen: np.ndarray) -> Population:
    """The population of some of the people alone, who are given by position."""
    people = population.people
    household = people.household[chosen]
    number = np.full(len(chosen), -1, dtype=np.int64)
    number[household >= 0] = np.unique(household[household >= 0], return_inverse=True)[1]
    own = People(people.area[chosen], people.cell[chosen], number)
    return replace(
        population,
        people=own,
        risk=population.risk[chosen],
        agree=population.agree[chosen],
        persons={table.places.level: table.places.sums(own.area) for table in population.tables},
    )


def _answers(
    release: Release, population: Population, target: tuple[np.ndarray, np.ndarray], n_draws: int
) -> np.ndarray:
    """Published values `(n_draws, n)` of the counts that a person would be in, 0 where withheld."""
    places = [(table.key, int(table.positions(*target)[0])) for table in population.tables]
    asked = [(key, at) for key, at in places if at >= 0]
    answers = np.empty((n_draws, len(asked)))
    names = MEMBERSHIP, release.draw.name, str(len(population.people))
    for draw in range(n_draws):
        generator = generator_of(release.comparison.seed, *names, str(draw))
        tables, _ = publish(population, release.method, release.draw.strength, generator)
        answers[draw] = [np.nan_to_num(tables[key].value.flat[at]) for key, at in asked]
    return answers

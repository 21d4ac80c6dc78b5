"""Who was swapped: people who are one of their kind, published in another area than their own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...census.people import People
from ..methods.accuracy import ALL
from ..methods.publish import generator_of, swapped_by
from ..settings import Swapping
from ..workload.tables import AskedTable, Tables
from .membership import clopper_pearson
from .release import Release, Row
from .swap_detection import Linked, graded, linked

SWAPS = "swap_detection"


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

"""Who was swapped: people who are one of their kind, published in another area than their own.

Swapped households are found by attributes that swapping leaves as they are: it exchanges the places
of whole households, and nothing else. Of a household that is alone of its kind in a wide area, both
in what an attacker knows and in the release, the released place can be compared with the known one:
where they differ, it was swapped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...census.partitions import People
from ..methods.accuracy import ALL
from ..methods.publish import generator_of, swapped_by
from ..settings import Swapping
from ..workload.tables import AskedTable, Tables
from .membership import Rate, clopper_pearson
from .release import Release, Row

SWAPS = "swap_detection"
PRECISION, RECALL = "precision of who was swapped", "share of the swapped that is found"


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
    level = release.smallest.level
    for measure, rate in graded(Linked(record, is_moved), moved).items():
        yield level, f"{SWAPS}: {measure}", ALL, rate.value, rate.low, rate.high
    # Who has seen nothing says of everybody that he was swapped.
    share = clopper_pearson(int(moved.sum()), len(people))
    measure = f"baseline of {SWAPS}: {PRECISION}"
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


@dataclass(frozen=True)
class Linked:
    """Households known to the attacker: `record` of the release that is theirs, -1 if none is sure.

    `is_moved` marks those that are released in another place than they are known to live.
    """

    record: np.ndarray
    is_moved: np.ndarray

    @property
    def is_linked(self) -> np.ndarray:
        return self.record >= 0


def linked(
    known_key: np.ndarray,
    known_place: np.ndarray,
    released_key: np.ndarray,
    released_place: np.ndarray,
) -> Linked:
    """Links households that are alone with their key among the known and among the released.

    Keys are of what swapping does not change: the composition of the household, and the wide area
    (state) within which it swaps. An attacker who knows a part of the households alone links some
    wrongly, which `graded` shows.
    """
    if not len(released_key):
        return Linked(np.full(len(known_key), -1), np.zeros(len(known_key), dtype=bool))
    keys, first, counts = np.unique(released_key, return_index=True, return_counts=True)
    place = np.minimum(np.searchsorted(keys, known_key), len(keys) - 1)
    among_known = np.unique(known_key, return_inverse=True, return_counts=True)
    is_single = among_known[2][among_known[1]] == 1
    is_sure = is_single & (keys[place] == known_key) & (counts[place] == 1)
    record = np.where(is_sure, first[place], -1)
    return Linked(record, is_sure & (released_place[record] != known_place))


def graded(found: Linked, truth: np.ndarray) -> dict[str, Rate]:
    """Grades links by which known households were swapped, with Clopper-Pearson intervals: shares
    that are linked, that were swapped among those said to be moved, and that are said to be moved
    among the swapped.
    """
    right = int((found.is_moved & truth).sum())
    return {
        "people who are linked": clopper_pearson(int(found.is_linked.sum()), len(truth)),
        PRECISION: clopper_pearson(right, int(found.is_moved.sum())),
        RECALL: clopper_pearson(right, int(truth.sum())),
    }

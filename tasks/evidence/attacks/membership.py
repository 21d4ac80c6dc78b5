"""Attacks on single persons: the best test of membership, and detection of swapped households.

A guarantee bounds every test of one person's record, by an attacker who knows all others.
`GaussianTradeoff` is exact for Gaussian noise [GaussianDP2022]. Methods without a guarantee have
measured rates alone, with Clopper-Pearson intervals.

Swapped households are found by invariants of swapping: it exchanges the places of whole households,
and nothing else. For a household that is alone of its kind in a wide area, both in the attacker's
knowledge and in the release, the released place can be compared with the known one: where they
differ, it was swapped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta, mannwhitneyu, norm

from ...census.counting import People
from ..methods.accuracy import ALL
from ..methods.publish import generator_of, swap_people
from ..settings import Swapping
from ..tables import RequestedTable, Tables
from .release import Release, Row


@dataclass(frozen=True)
class GaussianTradeoff:
    """mu-GDP: no test does better than distinguishing N(0, 1) from N(mu, 1)."""

    mu: float

    @classmethod
    def of_rho(cls, rho: float) -> GaussianTradeoff:
        """rho-zCDP by Gaussian noise is mu-GDP with mu = sqrt(2 rho)."""
        return cls(math.sqrt(2 * rho))

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Phi(mu - z), z the upper quantile of the false positive rate."""
        return float(norm.cdf(self.mu - norm.isf(false_positive_rate)))

    @property
    def accuracy(self) -> float:
        """Phi(mu / 2), at even odds."""
        return float(norm.cdf(self.mu / 2))

    @property
    def area_under_curve(self) -> float:
        """Phi(mu / sqrt 2)."""
        return float(norm.cdf(self.mu / math.sqrt(2)))


def optimal_statistic(
    answers: np.ndarray, difference: np.ndarray, variance: np.ndarray
) -> np.ndarray:
    """The sum over queries of <difference, noisy answer> / variance, one number a draw.

    `answers` has shape `(draws, answers)`; `difference` is the change of each answer by the
    person's record. For Gaussian noise no test beats a threshold on it (Neyman and Pearson); its
    standard deviation is mu = sqrt(sum difference^2 / variance), and the person's shift is equal to
    it.
    """
    return np.asarray(answers) @ (np.asarray(difference) / np.asarray(variance))


@dataclass(frozen=True)
class Rate:
    """A measured share with its Clopper-Pearson interval."""

    value: float
    low: float
    high: float


def clopper_pearson(successes: int, trials: int, alpha: float = 0.05) -> Rate:
    """The share of successes, and bounds that each fail with chance alpha / 2 at most.

    Without trials the share is NaN and the interval everything.
    """
    if trials == 0:
        return Rate(float("nan"), 0.0, 1.0)
    low = beta.ppf(alpha / 2, successes, trials - successes + 1) if successes else 0.0
    failures = trials - successes
    high = beta.isf(alpha / 2, successes + 1, failures) if failures else 1.0
    return Rate(successes / trials, float(low), float(high))


@dataclass(frozen=True)
class MeasuredTest:
    """Accuracy of a statistic in separating draws with the person from draws without."""

    true_positive: Rate
    false_positive: Rate
    accuracy: Rate
    area_under_curve: float


def measured_test(
    inside: np.ndarray, outside: np.ndarray, false_positive_rate: float, *, alpha: float = 0.05
) -> MeasuredTest:
    """Rates of the test "above a threshold", from statistics of draws with and without the person.

    Thresholds are set on every other draw and rates measured on the rest, so that the intervals
    hold: one for the true positive rate at the false positive rate asked, one for the best
    accuracy at even odds. The area under the curve (Mann and Whitney) is of all draws.
    """
    learned = np.asarray(inside)[::2], np.asarray(outside)[::2]
    tested = np.asarray(inside)[1::2], np.asarray(outside)[1::2]
    threshold = np.quantile(learned[1], 1 - false_positive_rate)
    even = _best_threshold(*learned)
    right = int((tested[0] > even).sum() + (tested[1] <= even).sum())
    pairs = mannwhitneyu(inside, outside, method="asymptotic").statistic
    return MeasuredTest(
        clopper_pearson(int((tested[0] > threshold).sum()), len(tested[0]), alpha),
        clopper_pearson(int((tested[1] > threshold).sum()), len(tested[1]), alpha),
        clopper_pearson(right, len(tested[0]) + len(tested[1]), alpha),
        float(pairs / (len(inside) * len(outside))),
    )


def _best_threshold(inside: np.ndarray, outside: np.ndarray) -> float:
    """Where the share above, inside, less the share above, outside, is greatest."""
    values = np.unique(np.concatenate([inside, outside]))
    above = [
        1 - np.searchsorted(np.sort(part), values, side="right") / len(part)
        for part in (inside, outside)
    ]
    return float(values[np.argmax(above[0] - above[1])])


SWAPS = "swap_detection"
PRECISION, RECALL = "precision of who was swapped", "share of the swapped that is found"


def detect_swaps(release: Release) -> Iterator[Row]:
    """Figures of who was swapped, found by people who are one of their kind in all areas.

    The attacker knows where such people live, and sees the area in which a table counts one. A
    method without swapping has no such figures.
    """
    if not isinstance(release.method, Swapping):
        return
    population, draw = release.population, release.draw
    people = population.people
    generator = generator_of(
        release.comparison.seed, draw.method, str(draw.strength), str(draw.number)
    )
    moved = swap_people(population, release.method, draw.strength, generator).area != people.area
    record = np.full(len(people), -1, dtype=np.int64)
    is_moved = np.zeros(len(people), dtype=bool)
    for table in release.tables:
        found = _link_by_answer(table, release.published, people)
        new = found.is_linked & (record < 0)
        record[new], is_moved[new] = found.record[new], found.is_moved[new]
    level = release.smallest.level
    for measure, rate in grade_links(HouseholdLinks(record, is_moved), moved).items():
        yield level, f"{SWAPS}: {measure}", ALL, rate.value, rate.low, rate.high
    # A guesser without the release takes every household for swapped.
    share = clopper_pearson(int(moved.sum()), len(people))
    measure = f"baseline of {SWAPS}: {PRECISION}"
    yield level, measure, ALL, share.value, share.low, share.high


def _link_by_answer(table: RequestedTable, published: Tables, people: People) -> HouseholdLinks:
    """The people of whose kind, by an answer of a table, there is one in all, there and here."""
    value = np.nan_to_num(published[table.key].value)
    entity, answer = np.nonzero(value > 0)
    times = value[entity, answer].astype(np.int64)
    places = table.places.entity[people.area]
    counted = table.counted[people.cell] & (places >= 0)
    # Whoever the table does not count has a key of his own that nothing is linked by.
    key = np.where(counted, table.query.row_of_cell[people.cell], -1 - np.arange(len(people)))
    return link_households(key, places, np.repeat(answer, times), np.repeat(entity, times))


@dataclass(frozen=True)
class HouseholdLinks:
    """Households known to the attacker: `record` of the release that is theirs, -1 if none is sure.

    `is_moved` marks those that are released in another place than the known one.
    """

    record: np.ndarray
    is_moved: np.ndarray

    @property
    def is_linked(self) -> np.ndarray:
        return self.record >= 0


def link_households(
    known_key: np.ndarray,
    known_place: np.ndarray,
    released_key: np.ndarray,
    released_place: np.ndarray,
) -> HouseholdLinks:
    """Links households that are alone with their key among the known and among the released.

    Keys are invariant under swapping: the composition of the household, and the wide area (state)
    within which it swaps. An attacker who knows a part of the households alone links some wrongly,
    which `grade_links` shows.
    """
    if not len(released_key):
        return HouseholdLinks(np.full(len(known_key), -1), np.zeros(len(known_key), dtype=bool))
    keys, first, counts = np.unique(released_key, return_index=True, return_counts=True)
    place = np.minimum(np.searchsorted(keys, known_key), len(keys) - 1)
    among_known = np.unique(known_key, return_inverse=True, return_counts=True)
    is_single = among_known[2][among_known[1]] == 1
    is_sure = is_single & (keys[place] == known_key) & (counts[place] == 1)
    record = np.where(is_sure, first[place], -1)
    return HouseholdLinks(record, is_sure & (released_place[record] != known_place))


def grade_links(found: HouseholdLinks, truth: np.ndarray) -> dict[str, Rate]:
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

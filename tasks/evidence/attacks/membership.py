"""Attacks on single persons: the best test of membership, and detection of swapped households.

A guarantee bounds every test of one person's record, by an attacker who knows all others.
`GaussianTradeoff` is exact for Gaussian noise [GaussianDP2022]. Methods without a guarantee have
measured rates alone, with Clopper-Pearson intervals.

Swapped households are found by invariants of swapping: it exchanges the places of whole households,
and nothing else. For a household that is alone of its kind in a wide area, both in the attacker's
knowledge and in the release, the released place can be compared with the known one: where they
differ, it was swapped.

In one release, for some people, at most one per area, a coin decides whether the data have their
own record or another person's; then a method publishes these data. The attacker knows all other
records of the area, and guesses for each such person which of the two records is in the data, and
the unknown attribute from the known ones. Since one record is changed, a guarantee for one changed
record bounds the share of right guesses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.stats import mannwhitneyu, norm

from ...census.counting import People
from ..ingest import RequestedTable
from ..methods.publish import ALL, generator_of, swap_people
from ..settings import DifferentialPrivacy, Swapping
from .rebuilding import chance_of, composition, guess_from_blocks
from .release import Rate, Release, Row, clopper_pearson, figures


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


class MeasuredTest(NamedTuple):
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
    """Figures of who was swapped, found by people who are one of their kind in all areas: shares
    of people who are linked, who were swapped among those said to be moved, and who are said to be
    moved among the swapped.

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
    is_linked, is_moved = np.zeros((2, len(people)), dtype=bool)
    for table in release.tables:
        released = np.nan_to_num(release.published[table.key].value)
        row, place = table.query.row_of_cell[people.cell], table.places.entity[people.area]
        counted = table.counted[people.cell] & (row >= 0)
        linked, found = link_singles(row, np.where(counted, place, -1), released)
        is_moved |= linked & ~is_linked & found
        is_linked |= linked
    level, right = release.smallest.level, int((is_moved & moved).sum())
    # A guesser without the release takes every household for swapped.
    baseline = clopper_pearson(int(moved.sum()), len(people))
    for measure, n, among, guess in (
        ("people who are linked", int(is_linked.sum()), len(people), None),
        (PRECISION, right, int(is_moved.sum()), baseline),
        (RECALL, right, int(moved.sum()), None),
    ):
        rate = clopper_pearson(n, among)
        yield from figures(level, f"{SWAPS}: {measure}", ALL, rate, guess)


def link_singles(
    row: np.ndarray, place: np.ndarray, released: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Masks `(n,)` of the records that are alone with their row in all places, both among these and
    in a release, and of those among them that are released in another place.

    row, place : (n,) of every record, the place -1 for none. released : (places, rows) counts.
    """
    n_known = np.bincount(row[place >= 0], minlength=released.shape[1])
    is_single = (n_known == 1) & (np.maximum(released, 0).astype(np.int64).sum(axis=0) == 1)
    is_linked = is_single[row] & (place >= 0)
    return is_linked, is_linked & (released.argmax(axis=0)[row] != place)


NAME = "membership"
TRUE_POSITIVES, RIGHT = "true positives at 1 % false ones", "which of two records, right"
AREA = "area under the curve"
FALSE_POSITIVE_RATE = 0.01
IMPOSSIBLE = 1e-12
"""Least chance: an impossible event counts as evidence without being taken for a proof."""
_TRIES = 20


ALL_BUT_ONE = "attribute of a person, all others known, right"


class Canaries:
    """People whose records a coin decides.

    person : (m,) positions among the people.
    own, other : (m,) cells of the record that is theirs, and of the one in its place.
    is_own : (m,) the coins.
    area, cell : (m,) their areas, and the cells of the records that they have.
    population : everybody, with the records that the coins have decided.
    """

    def __init__(self, release: Release) -> None:
        """Draw one person of every attacked area at random, and two records that tables
        distinguish.

        The other record is that of a person drawn among all who live in households alike; persons
        without a different record are left out. All releases of a draw's number have the same.
        """
        population, draw = release.population, release.draw
        people = population.people
        generator = generator_of(release.comparison.seed, NAME, str(draw.number))
        shuffled = generator.permutation(len(people))
        wanted = np.zeros(len(release.smallest), dtype=bool)
        wanted[release.entities] = True
        entity = release.smallest.entity[people.area[shuffled]]
        shuffled = shuffled[(entity >= 0) & wanted[entity]]
        _, first = np.unique(release.smallest.entity[people.area[shuffled]], return_index=True)
        person = shuffled[first]
        kind, lives = release.kind_of_cell[people.cell], people.household >= 0
        other = person.copy()
        for _ in range(_TRIES):
            same = np.flatnonzero(kind[other] == kind[person])
            found = generator.integers(0, len(people), len(same))
            fits = lives[found] == lives[person[same]]
            other[same[fits]] = found[fits]
        differs = kind[other] != kind[person]
        self.person = person[differs]
        self.own = people.cell[self.person]
        self.other = people.cell[other[differs]]
        self.is_own = generator.random(len(self.person)) < 0.5
        taken = np.arange(len(people))
        taken[self.person] = np.where(self.is_own, self.person, other[differs])
        mixed = People(people.area, people.cell[taken], people.household)
        self.area, self.cell = mixed.area[self.person], mixed.cell[self.person]
        self.population = replace(population, people=mixed)


def membership_inference(release: Release) -> Iterator[Row]:
    """Yield figures of the tests, with the guarantee's upper bounds and the baselines of blind
    guesses.

    Intervals are Clopper and Pearson's and assume independence of the persons, which holds only
    approximately within one release.
    """
    canaries = Canaries(release)
    if min(canaries.is_own.sum(), (~canaries.is_own).sum()) < 4:
        return
    evidence = Evidence(release, canaries)
    statistic = evidence.between()
    inside, outside = statistic[canaries.is_own], statistic[~canaries.is_own]
    found = measured_test(inside, outside, FALSE_POSITIVE_RATE)
    level, method, few = release.smallest.level, release.method, FALSE_POSITIVE_RATE
    for what, rate, guess in (
        (TRUE_POSITIVES, found.true_positive, few),
        ("false positives then", found.false_positive, few),
        (RIGHT, found.accuracy, 0.5),
        (AREA, found.area_under_curve, 0.5),
    ):
        yield from figures(level, f"{NAME}: {what}", ALL, rate, guess)
    if isinstance(method, DifferentialPrivacy) and method.rho:
        bound = GaussianTradeoff.of_rho(float(method.rho[release.draw.strength]))
        for what, most in (
            (TRUE_POSITIVES, bound.true_positive_rate(few)),
            (RIGHT, bound.accuracy),
            (AREA, bound.area_under_curve),
        ):
            yield level, f"{NAME}: {what}, bound of the guarantee", ALL, most
    yield from _attributes(release, evidence)


class Evidence:
    """Evidence about each canary from the tables of a release of the canaries' data."""

    def __init__(self, release: Release, canaries: Canaries) -> None:
        self.release, self.canaries = release, canaries
        self._published = release.of_others(canaries.population)
        self._chance = chance_of(release.method, release.draw.strength)
        people = canaries.population.people
        self._counts = {
            table.key: table.answer(people.area, people.cell).ravel() for table in release.tables
        }

    def between(self) -> np.ndarray:
        """(m,) above 0 where a person's own record fits the tables better than the other one.

        By the log likelihood ratio where the chances of published counts are public, else by the
        statistic that is the best for noise of one variance in each table.
        """
        own, other = (
            np.stack([self._of(table, cell)[0] for table in self.release.tables], axis=1)
            for cell in (self.canaries.own, self.canaries.other)
        )
        answers = np.concatenate([own, other], axis=1)
        difference = np.repeat([1.0, -1.0], own.shape[1])
        variance = np.array([self._variance(table) for table in self.release.tables])
        return optimal_statistic(answers, difference, np.tile(variance, 2))

    def of_records(self, cells: np.ndarray) -> np.ndarray:
        """(m, k) log likelihood of each of k records `(m, k)` that people may have, up to a common
        constant.
        """
        fits = np.zeros(cells.shape)
        for record in range(cells.shape[1]):
            for table in self.release.tables:
                answer, is_counted = self._of(table, cells[:, record])
                # A likelihood ratio has taken the person's own count into account already.
                half = 0 if self._is_weighed else is_counted / 2
                fits[:, record] += (answer - half) / self._variance(table)
        return fits

    def _variance(self, table: RequestedTable) -> float:
        """Mean squared distance of a table's counts from the records, the weight of further
        evidence for an attacker with these records; 1 where chances are public.

        The mean is over counts that are not zero throughout and do not depend on a coin.
        """
        if self._is_weighed:
            return 1.0
        value, counts = self._published[table.key].value.ravel(), self._counts[table.key]
        used = ~np.isnan(value) & ((value > 0) | (counts > 0))
        for cell in (self.canaries.own, self.canaries.other):
            at = table.positions(self.canaries.area, cell)
            used[at[at >= 0]] = False
        error = (value - counts)[used]
        return float((error**2).mean()) or 1.0 if len(error) else 1.0

    @property
    def _is_weighed(self) -> bool:
        return not isinstance(self.release.method, DifferentialPrivacy | Swapping)

    def _of(self, table: RequestedTable, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(m,) evidence of a table for records in some cells, and whether it is about them.

        Where chances or bounds are public, how much likelier the published count is with the record
        than without, as a logarithm; else by how much it is above all other records.
        """
        at = table.positions(self.canaries.area, cell)
        present = table.positions(self.canaries.area, self.canaries.cell)
        own = self._published[table.key]
        value, low, high = (side.ravel()[at] for side in (own.value, own.low, own.high))
        rest = self._counts[table.key][at] - (at == present)
        if not self._is_weighed:
            is_published = (at >= 0) & ~np.isnan(value)
            return np.where(is_published, np.nan_to_num(value) - rest, 0.0), is_published
        with_it, without = (self._log_chance(rest + more, value, low, high) for more in (1, 0))
        return np.where(at >= 0, with_it - without, 0.0), at >= 0

    def _log_chance(
        self, counts: np.ndarray, value: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> np.ndarray:
        """Logarithms of the chances of published figures; of bounds alone, whether they hold."""
        holds = ~((counts < low - 1e-6) | (counts > high + 1e-6))
        chances = holds.astype(float)
        if self._chance is not None:
            chance, _ = self._chance
            for figure in np.unique(value[~np.isnan(value)]):
                rows = value == figure
                chances[rows] = chance(counts[rows].astype(np.int64), round(figure))
        return np.log(np.maximum(chances, IMPOSSIBLE))


def _attributes(release: Release, evidence: Evidence) -> Iterator[Row]:
    """Yield figures of the likeliest attribute of people whose other attributes are known, with all
    other records; the prior is the frequency of the attributes among these.
    """
    canaries = evidence.canaries
    known, learned = release.population.known, release.population.learned
    if known is None or learned is None:
        return
    n_known, n_learned = int(known.max()) + 1, int(learned.max()) + 1
    # Any record with the known and learned values represents all that differ in nothing else.
    record = np.full((n_known, n_learned), -1, dtype=np.int64)
    record[known[::-1], learned[::-1]] = np.arange(len(known))[::-1]
    truth = learned[canaries.cell]
    possible = record[known[canaries.cell]]
    prior, mode = _attribute_frequencies(release, canaries, learned)
    fits = evidence.of_records(np.maximum(possible, 0)) + np.log(prior)
    fits = np.where(possible >= 0, fits, -np.inf)
    # Ties are broken at random.
    best = fits >= fits.max(axis=1, keepdims=True) - 1e-9
    generator = generator_of(release.comparison.seed, NAME, "lots")
    guess = np.argmax(best * (1 + generator.random(best.shape)), axis=1)
    level = release.smallest.level
    measure = f"{NAME}: {ALL_BUT_ONE}"
    for group, inside in (
        (ALL, np.ones(len(truth), dtype=bool)),
        ("not the most common of the others", mode < 1),
    ):
        if not inside.any():
            continue
        rate = clopper_pearson(int((guess == truth)[inside].sum()), int(inside.sum()))
        yield from figures(level, measure, group, rate, float(mode[inside].mean()))


def _attribute_frequencies(
    release: Release, canaries: Canaries, learned: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(m, features) how common each attribute is among the others of the area, and as if there were
    one person more of the whole's composition; (m,) chances that the most common attribute of the
    others is the person's.
    """
    people, places = canaries.population.people, release.smallest
    feature, n_learned = learned[people.cell], int(learned.max()) + 1
    entity = places.entity[people.area]
    inside = entity >= 0
    of_area = composition(entity[inside], feature[inside], (len(places), n_learned))
    whole = np.bincount(feature, minlength=n_learned)[None, :]
    area, own = places.entity[canaries.area], learned[canaries.cell]
    others = of_area[area].astype(float)
    others[np.arange(len(others)), own] -= 1
    others += (whole + 1.0) / (whole.sum() + whole.size)
    areas = np.arange(len(places)), np.zeros(len(places), dtype=np.int64)
    mode, _ = guess_from_blocks(area, own, (of_area, whole), areas)
    return others / others.sum(axis=1, keepdims=True), mode.right

"""Tests of single records in one release, by an attacker who knows all others.

For some people, at most one per area, a coin decides whether the data have their own record or
another person's; then a method publishes these data. The attacker knows all other records of the
area, and guesses for each such person which of the two records is in the data, and the unknown
attribute from the known ones. Since one record is changed, a guarantee for one changed record
bounds the share of right guesses, and the coins make one release an audit [OneRunAudit2023].

`one_run_epsilon_bound` is a lower bound of the privacy loss: m records were included or not, or
replaced, by coin, and r of them guessed [OneRunAudit2023].
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom

from ...census.counting import People
from ...ledger.accounting import epsilon_tight
from ..methods.accuracy import ALL
from ..methods.publish import generator_of
from ..settings import DifferentialPrivacy, Swapping
from ..tables import RequestedTable
from .likelihood import chance_of
from .membership import GaussianTradeoff, Rate, clopper_pearson, measured_test, optimal_statistic
from .rebuilding import composition, guess_from_blocks
from .release import Release, Row

NAME = "membership"
FALSE_POSITIVE_RATE = 0.01
DELTA = Fraction(1, 10**10)
"""Delta of the (epsilon, delta) of an audit."""
GUESSED = 3
"""An audit guesses the surest of so many persons, and abstains of the others."""
IMPOSSIBLE = 1e-12
"""Least chance: an impossible event counts as evidence without being taken for a proof."""
_TRIES = 20


ALL_BUT_ONE = "attribute of a person, all others known, right"


class Canaries:
    """People whose records a coin decides.

    person : (m,) positions among the people.
    own, other : (m,) cells of the record that is theirs, and of the one in its place.
    is_own : (m,) the coins.
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
        self.population = replace(
            population,
            people=People(people.area, people.cell[taken], people.household),
            risk=population.risk[taken],
            agree=population.agree[taken],
        )

    @property
    def area(self) -> np.ndarray:
        """(m,) their areas."""
        return self.population.people.area[self.person]

    @property
    def cell(self) -> np.ndarray:
        """(m,) cells of the records that they have."""
        return self.population.people.cell[self.person]


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
    bound, level = _bound_of(release), release.smallest.level
    area, few = Rate(found.area_under_curve, np.nan, np.nan), FALSE_POSITIVE_RATE
    most: dict[str, float] = {}
    if bound is not None:
        most = {
            "true positives at 1 % false ones": bound.true_positive_rate(few),
            "which of two records, right": bound.accuracy,
            "area under the curve": bound.area_under_curve,
        }
    for what, rate, guess in (
        ("true positives at 1 % false ones", found.true_positive, few),
        ("false positives then", found.false_positive, few),
        ("which of two records, right", found.accuracy, 0.5),
        ("area under the curve", area, 0.5),
    ):
        measure = f"{NAME}: {what}"
        yield level, measure, ALL, rate.value, rate.low, rate.high
        yield level, f"baseline of {measure}", ALL, guess
        if what in most:
            yield level, f"{measure}, bound of the guarantee", ALL, most[what]
    if bound is not None:
        measure = f"{NAME}: epsilon shown at least"
        yield level, measure, ALL, _refuted_epsilon(statistic, canaries.is_own)
        epsilon = epsilon_tight(bound.mu**2 / 2, DELTA)
        yield level, f"{measure}, bound of the guarantee", ALL, epsilon
    yield from _attributes(release, evidence)


def _bound_of(release: Release) -> GaussianTradeoff | None:
    """The bound on every test by the guarantee of a release with a stated rho."""
    if not isinstance(release.method, DifferentialPrivacy) or not release.method.rho:
        return None
    return GaussianTradeoff.of_rho(float(release.method.rho[release.draw.strength]))


def _refuted_epsilon(statistic: np.ndarray, is_own: np.ndarray) -> float:
    """The epsilon that the right ones among the surest guesses refute, by 95 %."""
    surest = np.argsort(-np.abs(statistic), kind="stable")[: max(len(statistic) // GUESSED, 1)]
    right = int(((statistic[surest] > 0) == is_own[surest]).sum())
    return one_run_epsilon_bound(right, len(surest), delta=float(DELTA), canaries=len(statistic))


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
    if release.known is None or release.learned is None:
        return
    canaries, known, learned = evidence.canaries, release.known, release.learned
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
        yield level, measure, group, rate.value, rate.low, rate.high
        yield level, f"baseline of {measure}", group, float(mode[inside].mean())


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


def one_run_p_value(
    right: int, guesses: int, epsilon: float, *, delta: float = 0.0, canaries: int = 0
) -> float:
    """Chance, at most, of so many right guesses in one run of an (epsilon, delta) mechanism.

    P[B >= v] + 2 m delta max over i of P[v > B >= v - i] / i, where B is binomial with r guesses
    and chance e^epsilon / (1 + e^epsilon), m the canaries [OneRunAudit2023].
    """
    chance = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, chance))
    if delta == 0 or right == 0:
        return tail
    lacking = np.arange(1, right + 1)
    between = np.cumsum(binom.pmf(right - lacking, guesses, chance))
    return min(1.0, tail + 2 * canaries * delta * float((between / lacking).max()))


def one_run_epsilon_bound(
    right: int, guesses: int, *, delta: float = 0.0, canaries: int = 0, alpha: float = 0.05
) -> float:
    """The greatest epsilon that the right guesses refute with confidence 1 - alpha; 0 if none."""

    def excess(epsilon: float) -> float:
        return one_run_p_value(right, guesses, epsilon, delta=delta, canaries=canaries) - alpha

    if excess(0.0) >= 0:
        return 0.0
    top = 1.0
    while excess(top) < 0:
        top *= 2
    return float(brentq(excess, 0.0, top, xtol=1e-9))

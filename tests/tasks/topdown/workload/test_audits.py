"""Audits of measured censuses: the best test of two neighbours never beats the exact bound.

Two small censuses differ in one record. Both are measured by the code that measures runs, with the
budget's own shares, many times over, from a repeatable source. The test is the most powerful one:
it looks whether the logarithm of the likelihood ratio of all noisy answers is above an epsilon. If
the shares of draws in which it is, with exact confidence bounds, are further apart than e^epsilon
and delta allow, the bound is refuted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import beta
from spineflow.tasks.answers.noisy import DPQUERY_SUFFIX
from spineflow.tasks.census.queries import Schema, marginal_query
from spineflow.tasks.ledger.charging import UnchargedNoise
from spineflow.tasks.noise.distributions import (
    DISCRETE_GAUSSIAN,
    DISCRETE_LAPLACE,
    Noise,
    SeededRandom,
    distribution_of,
)
from spineflow.tasks.topdown.measurement.measure import (
    ConfidentialShard,
    noisy_answers,
    true_answers,
)
from spineflow.tasks.topdown.workload.budget import Budget
from spineflow.tasks.topdown.workload.exact_loss import Path, exact_curve

SCHEMA = Schema("persons", ("sex", "age"), (("female", "male"), ("child", "adult", "old")))
GEOLEVELS = ("US", "State", "Block")
N_STATES, BLOCKS_OF_STATE = 2, 2
DRAWS = 20_000
EPSILONS = (0.0, 1.5)
UNLIKELY = 1e-10
"""Probability with which one confidence bound fails: all of a soak fail with less than 1e-5."""

MECHANISMS = (DISCRETE_GAUSSIAN, DISCRETE_LAPLACE)

Record = tuple[int, int]
"""Block and cell."""


@dataclass(frozen=True)
class NarrowNoise:
    """Noise as it is asked for, but a tenth too small."""

    noise: UnchargedNoise

    def draw(self, part: str, noise: Noise, size: int) -> np.ndarray:
        is_gaussian = noise.mechanism == DISCRETE_GAUSSIAN
        smaller = noise.parameter * Fraction(9, 10) ** (2 if is_gaussian else 1)
        return self.noise.draw(part, Noise(noise.mechanism, smaller), size)


@dataclass(frozen=True)
class Neighbours:
    """Two censuses, `(n_blocks, n_cells)`, that differ in one record, and their measurement.

    bypassed : the states that have a share of 0, which their blocks have in their place.
    """

    budget: Budget
    rest: np.ndarray
    records: tuple[Record, Record]
    bypassed: tuple[bool, ...]

    def census(self, number: int) -> np.ndarray:
        found = self.rest.copy()
        found[self.records[number]] += 1
        return found

    def path(self, state: int) -> Path:
        """Shares along the path to a block of a state."""
        shares = dict(self.budget.geolevel_shares)
        if self.bypassed[state]:
            shares["Block"] += shares["State"]
            shares["State"] = Fraction(0)
        return shares

    def shares(self, geolevel: str) -> list[Fraction]:
        """Of the geounits of a geolevel."""
        if geolevel == "US":
            return [self.budget.geolevel_shares["US"]]
        times = 1 if geolevel == "State" else BLOCKS_OF_STATE
        states = np.repeat(np.arange(N_STATES), times)
        return [self.path(int(state))[geolevel] for state in states]

    def losses(self, number: int, budget: Budget, draws) -> np.ndarray:
        """The logarithm of the likelihood ratio in every draw from one census, `(DRAWS,)`."""
        total = np.zeros(DRAWS)
        for geolevel in GEOLEVELS:
            whole = [at_geolevel(self.census(i), geolevel) for i in (0, 1)]
            # The answers of all other geounits have the same distribution in both censuses.
            differ = np.flatnonzero((whole[0] != whole[1]).any(axis=1))
            first, second = (census[differ] for census in whole)
            shares = [self.shares(geolevel)[geounit] for geounit in differ]
            shard = ConfidentialShard(
                geolevel,
                sparse.csr_array(np.repeat((first, second)[number], DRAWS, axis=0)),
                np.arange(len(shares) * DRAWS),
                shares,
                np.repeat(np.arange(len(shares)), DRAWS),
            )
            for answers in noisy_answers(shard, budget, SCHEMA, draws):
                for answer in answers:
                    name = answer.query_name.removesuffix(DPQUERY_SUFFIX)
                    geounit, draw = np.divmod(np.asarray(answer.geocode), DRAWS)
                    query = marginal_query(SCHEMA, name)
                    exact = [true_answers(sparse.csr_array(x), query) for x in (first, second)]
                    noises = self.noises(shares, geolevel, name)
                    np.add.at(total, draw, ratio(answer.values, *exact, geounit, noises))
        return total

    def noises(self, shares: Sequence[Fraction], geolevel: str, query: str) -> list[Noise | None]:
        """The noise that is promised in every geounit's answers to a query."""
        own = self.budget.query_shares[geolevel][query]
        return [
            Noise(self.budget.mechanism, self.budget.noise(share, own).parameter) if share else None
            for share in shares
        ]

    def excess(
        self, seed: int, *, is_narrow: bool = False, measured: Budget | None = None
    ) -> float:
        """By how much more the test shows, at the least, than delta at some epsilon; below 0 where
        it shows no more. `measured` is the budget that is spent, by default the one that is told.
        """
        ratios = []
        for census in (0, 1):
            noise = UnchargedNoise(SeededRandom(seed, "audit", str(census)))
            draws = NarrowNoise(noise) if is_narrow else noise
            ratios.append(self.losses(census, measured or self.budget, draws))
        curve = exact_curve(self.budget, [self.path(state) for state in range(N_STATES)])
        found = []
        for epsilon in EPSILONS:
            first, second = ((ratio > epsilon).sum() for ratio in ratios)
            least = beta.ppf(UNLIKELY, first, DRAWS - first + 1) if first else 0.0
            rest = DRAWS - second
            most = beta.ppf(1 - UNLIKELY, second + 1, rest) if rest else 1.0
            found.append(least - math.exp(epsilon) * most - curve.delta_upper(epsilon))
        return max(found)


def at_geolevel(blocks: np.ndarray, geolevel: str) -> np.ndarray:
    """Histograms of the geounits of a geolevel, `(n, n_cells)`."""
    if geolevel == "US":
        return blocks.sum(axis=0, keepdims=True)
    if geolevel == "State":
        return blocks.reshape(N_STATES, BLOCKS_OF_STATE, -1).sum(axis=1)
    return blocks


def ratio(
    values: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    geounit: np.ndarray,
    noises: Sequence[Noise | None],
) -> np.ndarray:
    """log P(values | first) / P(values | second) of measured geounits, `(n,)`."""
    found = np.zeros(len(values))
    for number, noise in enumerate(noises):
        rows = np.flatnonzero(geounit == number)
        columns = np.flatnonzero(first[number] != second[number])
        if noise is None or not rows.size or not columns.size:
            continue
        law, own = distribution_of(noise), values[np.ix_(rows, columns)]
        near, far = (abs(own - exact[number, columns]) for exact in (first, second))
        found[rows] = float(law.c) * (far**law.power - near**law.power).sum(axis=1)
    return found


def budget_of(mechanism: str, total: Fraction, asked: Mapping[str, list[str]]) -> Budget:
    return Budget(
        "persons",
        mechanism,
        total,
        Fraction(1, 10**10),
        dict.fromkeys(GEOLEVELS, Fraction(1, 3)),
        {level: dict.fromkeys(names, Fraction(1, len(names))) for level, names in asked.items()},
    )


def random_neighbours(seed: int, mechanism: str) -> Neighbours:
    """Any two neighbours under any budget, with states that are bypassed or not."""
    rng = np.random.default_rng(seed)
    queries = ["total", "sex", "age", "detailed"]
    asked = {
        level: list(rng.choice(queries, rng.integers(1, 4), replace=False)) for level in GEOLEVELS
    }
    records = tuple(
        (int(rng.integers(N_STATES * BLOCKS_OF_STATE)), int(rng.integers(SCHEMA.n_cells)))
        for _ in range(2)
    )
    return Neighbours(
        budget_of(mechanism, Fraction(int(rng.integers(1, 9)), 2), asked),
        rng.integers(0, 4, (N_STATES * BLOCKS_OF_STATE, SCHEMA.n_cells)),
        records,
        tuple((rng.random(N_STATES) < 0.4).tolist()),
    )


def told_apart(seed: int, mechanism: str) -> Neighbours:
    """Neighbours whose records all queries but one tell apart, with nearly all of the loss."""
    rng = np.random.default_rng(seed)
    asked = {"US": ["sex", "detailed"], "State": ["total"], "Block": ["total", "age"]}
    halves = int(rng.integers(3, 7))
    total = Fraction(halves, 2) if mechanism == DISCRETE_GAUSSIAN else Fraction(halves + 2)
    return Neighbours(
        budget_of(mechanism, total, asked),
        rng.integers(0, 4, (N_STATES * BLOCKS_OF_STATE, SCHEMA.n_cells)),
        ((0, 0), (N_STATES * BLOCKS_OF_STATE - 1, SCHEMA.n_cells - 1)),
        (False,) * N_STATES,
    )


def audits(seeds: range) -> Iterator[tuple[int, str]]:
    """Seeds with the mechanisms, in turn."""
    return ((seed, MECHANISMS[seed % len(MECHANISMS)]) for seed in seeds)


def audit(seeds: range) -> None:
    found = [
        seed for seed, noise in audits(seeds) if random_neighbours(seed, noise).excess(seed) > 0
    ]
    assert found == []


@pytest.mark.slow
def test_audits_never_show_more_than_the_bound() -> None:
    """Threat model: an exact epsilon below the true one."""
    audit(range(8))


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("seed", range(2))
def test_audits_show_noise_that_is_a_tenth_too_small(mechanism: str, seed: int) -> None:
    neighbours = told_apart(seed, mechanism)
    assert neighbours.excess(seed, is_narrow=True) > 0 > neighbours.excess(seed)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_audit_of_a_budget_that_is_larger_than_told_fails(mechanism: str) -> None:
    """What is audited is the statement, too: noise for twice the loss does not keep to it."""
    told = told_apart(1, mechanism)
    measured = replace(told.budget, total=2 * told.budget.total)
    assert told.excess(1, measured=measured) > 0


@pytest.mark.soak(30)
@pytest.mark.parametrize("batch", range(20))
def test_a_thousand_audits(batch: int) -> None:
    audit(range(50 * batch, 50 * (batch + 1)))
    for seed, noise in audits(range(4 * batch, 4 * (batch + 1))):
        assert told_apart(seed, noise).excess(seed, is_narrow=True) > 0

"""Audits of drawn answers: the best test of two neighbouring censuses never beats the exact bound.

Two censuses differ in one record. Answers are drawn with the sampler's noise from a repeatable
source, many times for each census, and the test is the most powerful one: it looks whether the
logarithm of the likelihood ratio is above an epsilon. If the shares of draws in which it is, with
exact confidence bounds, are further apart than e^epsilon and delta allow, the bound is refuted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import beta
from spineflow.tasks.census.cef_2020 import CENSUS
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.noise.mechanisms import DISCRETE_GAUSSIAN
from spineflow.tasks.noise.randomness import SeededRandom
from spineflow.tasks.noise.sampler import draw_noise
from spineflow.tasks.topdown.workload.budget import Budget
from spineflow.tasks.topdown.workload.exact_loss import Path, exact_curve

SCHEMA = CENSUS.universes["persons"].full_schema
GEOLEVELS = ("US", "State", "Block")
DRAWS = 20_000
EPSILONS = (0.0, 1.5)
UNLIKELY = 1e-10
"""Probability with which one confidence bound fails: all of a soak fail with less than 1e-5."""

SMALLER = Fraction(9, 10) ** 2
"""Variance of noise that is a tenth too small."""


@dataclass(frozen=True)
class Neighbours:
    """One record of a census, and what it is in the neighbouring one.

    cells, areas : cell, and geounit by geolevel, of the record before and after.
    paths : shares along the path to its block, before and after.
    """

    budget: Budget
    cells: tuple[int, int]
    areas: tuple[Mapping[str, int], Mapping[str, int]]
    paths: tuple[Path, Path]

    def moved(self) -> Iterator[tuple[int, Fraction]]:
        """By how much every answer differs that does, and its sigma^2."""
        for geolevel in GEOLEVELS:
            for name, share in self.budget.query_shares[geolevel].items():
                rows = marginal_query(SCHEMA, name).row_of_cell[list(self.cells)]
                places = [(self.areas[i][geolevel], int(rows[i])) for i in (0, 1)]
                if places[0] == places[1]:
                    continue
                for path, by in zip(self.paths, (-1, 1), strict=True):
                    if path[geolevel]:
                        yield by, self.budget.noise_parameter(path[geolevel], share)

    def excess(self, seed: int, scale: Fraction = Fraction(1)) -> float:
        """By how much more the test shows, at the least, than delta at some epsilon; below 0 where
        it shows no more. The noise that is drawn has `scale` times the variances.
        """
        moved = list(self.moved())
        ratios = []
        for census in (0, 1):
            source, total = SeededRandom(seed, "audit", str(census)), np.zeros(DRAWS)
            for by, variance in moved:
                noise = draw_noise(DISCRETE_GAUSSIAN, scale * variance, DRAWS, source)
                total += (1 - 2 * by * (noise + census * by)) / (2 * float(variance))
            ratios.append(total)
        curve = exact_curve(self.budget, list(self.paths))
        found = []
        for epsilon in EPSILONS:
            first, second = ((ratio > epsilon).sum() for ratio in ratios)
            least = beta.ppf(UNLIKELY, first, DRAWS - first + 1) if first else 0.0
            rest = DRAWS - second
            most = beta.ppf(1 - UNLIKELY, second + 1, rest) if rest else 1.0
            found.append(least - math.exp(epsilon) * most - curve.delta_upper(epsilon))
        return max(found)


def budget_of(rho: Fraction, asked: Mapping[str, list[str]]) -> Budget:
    return Budget(
        "persons",
        DISCRETE_GAUSSIAN,
        rho,
        Fraction(1, 10**10),
        dict.fromkeys(GEOLEVELS, Fraction(1, 3)),
        {level: dict.fromkeys(names, Fraction(1, len(names))) for level, names in asked.items()},
    )


def random_neighbours(seed: int) -> Neighbours:
    """Any two neighbours under any budget, with states that are bypassed or not."""
    rng = np.random.default_rng(seed)
    queries = ["total", "hispanic", "votingage * hispanic", "cenrace", "detailed"]
    asked = {
        level: list(rng.choice(queries, rng.integers(1, 4), replace=False)) for level in GEOLEVELS
    }
    states, blocks = rng.integers(0, 2, 2), rng.integers(0, 3, 2)
    bypassed = rng.random(2) < 0.4
    third = Fraction(1, 3)
    areas, paths = [], []
    for state, block in zip(states.tolist(), blocks.tolist(), strict=True):
        of_state = Fraction(0) if bypassed[state] else third
        areas.append({"US": 0, "State": state, "Block": 3 * state + block})
        paths.append({"US": third, "State": of_state, "Block": 1 - third - of_state})
    return Neighbours(
        budget_of(Fraction(int(rng.integers(1, 9)), 2), asked),
        tuple(rng.integers(0, SCHEMA.n_cells, 2).tolist()),
        tuple(areas),
        tuple(paths),
    )


def told_apart(seed: int) -> Neighbours:
    """Neighbours whose records every query tells apart, so that the whole loss is theirs."""
    rng = np.random.default_rng(seed)
    cells = (0, SCHEMA.n_cells - 1)
    asked = {"US": ["hispanic", "detailed"], "State": ["total"], "Block": ["total", "cenrace"]}
    path = dict.fromkeys(GEOLEVELS, Fraction(1, 3))
    found = Neighbours(
        budget_of(Fraction(int(rng.integers(3, 7)), 2), asked),
        cells,
        ({"US": 0, "State": 0, "Block": 0}, {"US": 0, "State": 1, "Block": 3}),
        (path, path),
    )
    assert len(list(found.moved())) == 10
    return found


def audit(seeds: range) -> None:
    assert [seed for seed in seeds if random_neighbours(seed).excess(seed) > 0] == []


@pytest.mark.slow
def test_audits_never_show_more_than_the_bound() -> None:
    audit(range(12))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_audits_show_noise_that_is_a_tenth_too_small(seed: int) -> None:
    neighbours = told_apart(seed)
    assert neighbours.excess(seed, SMALLER) > 0 > neighbours.excess(seed)


def test_an_audit_of_a_budget_that_is_larger_than_told_fails() -> None:
    """What is audited is the statement, too: half the rho is not what such noise promises."""
    drawn = told_apart(1)
    half = replace(drawn, budget=replace(drawn.budget, total=drawn.budget.total / 2))
    assert half.excess(1, Fraction(1, 2)) > 0


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(50))
def test_five_thousand_audits(batch: int) -> None:
    audit(range(100 * batch, 100 * (batch + 1)))
    for seed in range(10 * batch, 10 * (batch + 1)):
        assert told_apart(seed).excess(seed, SMALLER) > 0

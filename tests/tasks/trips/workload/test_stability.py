"""The stability histogram is (epsilon, delta)-private, by exact enumeration of small tables."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from spineflow.tasks.ledger.charging import UnchargedNoise
from spineflow.tasks.ledger.plan import Measure
from spineflow.tasks.noise.distributions import DISCRETE_LAPLACE, Noise, SeededRandom
from spineflow.tasks.trips.measurement import listed_leaves
from spineflow.tasks.trips.plan import Plan, StabilityHistogram, listing_bound, stability_histogram
from spineflow.tasks.trips.settings import STABILITY_HISTOGRAM, TripsPrivacy
from spineflow.tasks.trips.tree import NodeCounts, column_tree, hierarchy_of_links

from tests.tasks.trips.privacy import privacy_of

N_CELLS = 3
TAIL = 40


def distribution(count: int, histogram: StabilityHistogram) -> dict[int | None, float]:
    """Chance of each published count of a cell, None for not published, the far tail as one."""
    if count == 0:
        return {None: 1.0}
    q = math.exp(-1 / float(histogram.scale))
    published = {
        y: (1 - q) / (1 + q) * q ** abs(y - count)
        for y in range(histogram.threshold, histogram.threshold + TAIL)
    }
    reached = q ** (histogram.threshold - count) / (1 + q)
    far = reached - math.fsum(published.values())
    return {None: 1 - reached, **published, histogram.threshold + TAIL: far}


def delta_at(one: list[int], other: list[int], histogram: StabilityHistogram, epsilon: float):
    """The hockey-stick divergence of what is published of two tables, cells independent."""
    pairs = []
    for a, b in zip(one, other, strict=True):
        p, r = distribution(a, histogram), distribution(b, histogram)
        pairs.append([(p.get(y, 0.0), r.get(y, 0.0)) for y in {*p, *r}] if a != b else [(1.0, 1.0)])
    total = 0.0
    for chosen in itertools.product(*pairs):
        p, r = math.prod(x for x, _ in chosen), math.prod(x for _, x in chosen)
        total += max(0.0, p - math.exp(epsilon) * r)
    return total


def neighbours(privacy: TripsPrivacy) -> list[tuple[list[int], list[int]]]:
    """Pairs of tables that differ in one person, on a background of others' trips."""
    m = privacy.trips_per_person
    choose = (
        itertools.combinations
        if privacy.distinct_trips
        else itertools.combinations_with_replacement
    )
    persons = [np.bincount(np.array(t), minlength=N_CELLS) for t in choose(range(N_CELLS), m)]
    others = persons if privacy.is_bounded else [np.zeros(N_CELLS, dtype=int)]
    backgrounds = [np.array(b) for b in itertools.product([0, 2], repeat=N_CELLS)]
    pairs = []
    for base, a, b in itertools.product(backgrounds, persons, others):
        pairs += [((base + a).tolist(), (base + b).tolist())]
        pairs += [((base + b).tolist(), (base + a).tolist())]
    return pairs


@pytest.mark.parametrize(("epsilon", "delta"), [("1/2", "1/1000"), ("3", "1/50")])
@pytest.mark.parametrize(
    "privacy",
    [
        privacy_of(),
        privacy_of(is_bounded=False),
        privacy_of(is_bounded=False, trips=2),
        privacy_of(is_bounded=False, trips=2, are_distinct=True),
        privacy_of(trips=2, are_distinct=True),
    ],
)
def test_loss_is_within_epsilon_and_delta(epsilon: str, delta: str, privacy) -> None:
    histogram = stability_histogram(privacy, Fraction(epsilon), Fraction(delta))
    worst = max(
        delta_at(one, other, histogram, float(Fraction(epsilon)))
        for one, other in neighbours(privacy)
    )
    assert worst <= float(Fraction(delta)) * (1 + 1e-9) + 1e-12
    if privacy.is_bounded and privacy.trips_per_person > 1:
        return  # The worst neighbours need more cells than are enumerated.
    lower = StabilityHistogram(histogram.scale, histogram.threshold - 2)
    worst_below = max(
        delta_at(one, other, lower, float(Fraction(epsilon))) for one, other in neighbours(privacy)
    )
    assert worst_below > float(Fraction(delta))


def test_threshold_is_the_least_that_the_bound_allows() -> None:
    for privacy in (privacy_of(), privacy_of(False, 4), privacy_of(False, 4, True)):
        epsilon, delta = Fraction(1, 3), Fraction(1, 10**9)
        found = stability_histogram(privacy, epsilon, delta)
        assert listing_bound(found.threshold, found.scale, privacy) <= delta
        assert listing_bound(found.threshold - 1, found.scale, privacy) > delta


def test_only_what_occurs_is_published_and_only_above_the_threshold() -> None:
    leaves = NodeCounts(np.arange(0, 4000, 2), np.full(2000, 30))
    histogram = stability_histogram(privacy_of(), Fraction(1), Fraction(1, 10**6))
    tree = column_tree([hierarchy_of_links("a", [("a", np.arange(4000).astype(str), None)])])

    def published_by(noise: Noise | None, threshold: int) -> NodeCounts:
        plan = Plan(STABILITY_HISTOGRAM, None, {1: Measure("", noise)}, threshold, True, tree)
        return listed_leaves(plan, leaves, UnchargedNoise(SeededRandom(4)))

    published = published_by(Noise(DISCRETE_LAPLACE, histogram.scale), histogram.threshold)
    assert set(published.keys) < set(leaves.keys)
    assert published.counts.min() == histogram.threshold
    assert np.array_equal(published_by(None, 1).counts, leaves.counts)

"""Slivers of small zonings against all differences of unions, and the handbook's two tables."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from spineflow.tasks.evidence.attacks.differencing import (
    EXACT,
    PINNED,
    SHOWN_SMALL,
    WITHIN_ONE,
    Differences,
    Zonings,
    differences,
    grade_differencing,
    zonings,
)

INNER = np.array([[50, 54], [128, 140], [39, 49]])
OUTER = np.array([[52, 55], [130, 140], [39, 49]])


def test_tables_of_two_nested_zones_give_the_table_of_the_sliver() -> None:
    """Unit 0 is the inner zone; with unit 1, apart in the other zoning, it is the outer."""
    zoning = zonings(np.array([0, 0]), np.array([0, 1]))
    found = differences(zoning)
    inner = INNER.ravel()
    tables = found.figures(OUTER.reshape(1, -1), np.stack([inner, 0 * inner]))
    sliver = np.flatnonzero((found.atoms.toarray() == [0, 1]).all(axis=1))
    assert tables[sliver].tolist() == [[2, 1, 2, 0, 0, 0]]


def unions(overlap: np.ndarray) -> set[tuple[int, ...]]:
    """Atoms of every sliver between a zone, or two together, and its cover or part."""
    slivers = set()
    for side in (overlap, overlap.T):
        for size in (1, 2):
            for group in combinations(range(len(side)), size):
                if not is_connected(side, group):
                    continue
                own = set(side[list(group)].ravel()) - {0}
                touched = np.flatnonzero(side[list(group)].any(axis=0))
                cover = set(side[:, touched].ravel()) - {0}
                inside = [z for z in touched if set(side[:, z]) - {0} <= own]
                part = set(side[:, inside].ravel()) - {0}
                slivers.add(tuple(sorted(cover - own)))
                if inside:
                    slivers.add(tuple(sorted(own - part)))
    return slivers - {()}


def is_connected(side: np.ndarray, group: tuple[int, ...]) -> bool:
    reached = {group[0]}
    for _ in group:
        zones = side[sorted(reached)].any(axis=0)
        reached |= {zone for zone in group if (side[zone].astype(bool) & zones).any()}
    return len(reached) == len(group)


def random_zonings(seed: int) -> Zonings:
    draws = np.random.default_rng(seed)
    place = np.arange(24)
    first = np.repeat(np.arange(6), draws.multinomial(24, np.full(6, 1 / 6)))
    second = (place + draws.integers(0, 4)) // 5
    return zonings(first - first.min(), second - second.min())


def test_slivers_are_those_of_all_zones_and_connected_pairs() -> None:
    for seed in range(20):
        zoning = random_zonings(seed)
        found = differences(zoning)
        atoms = {tuple(np.flatnonzero(row) + 1) for row in found.atoms.toarray()}
        assert atoms == unions(zoning.overlap.toarray())
        assert len(atoms) == found.atoms.shape[0]


def totals(zoning: Zonings, persons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Persons of every zone of both zonings."""
    table = np.zeros(zoning.overlap.shape, dtype=np.int64)
    entries = zoning.overlap.tocoo()
    table[entries.coords] = np.bincount(zoning.atom, persons)[entries.data - 1]
    return table.sum(axis=1), table.sum(axis=0)


def slivers_of(seed: int) -> tuple[Zonings, Differences, np.ndarray]:
    zoning = random_zonings(seed)
    persons = np.random.default_rng(seed).integers(0, 4, 24)
    return zoning, differences(zoning), persons


def test_exact_figures_give_exact_slivers_and_bounds_hold() -> None:
    draws = np.random.default_rng(3)
    seen = 0
    for seed in range(20):
        zoning, slivers, persons = slivers_of(seed)
        zones = totals(zoning, persons)
        counts = slivers.atoms @ np.bincount(zoning.atom, persons)
        found = slivers.figures(*zones)
        assert (found == counts).all()
        exactly = (counts, counts)
        graded = grade_differencing(slivers, zoning, found, exactly, persons, 4)
        small = (counts > 0) & (counts < 4)
        assert graded["slivers"] == small.sum()
        if graded["slivers"]:
            seen += 1
            assert (graded[EXACT], graded[WITHIN_ONE]) == (1, 1)
            atoms = slivers.atoms.toarray()[small].any(axis=0)
            assert graded["persons in slivers"] == persons[atoms[zoning.atom]].sum()
        rounded = [(part // 3 * 3, part // 3 * 3 + 2) for part in zones]
        lower, upper = slivers.bounds(*rounded)
        assert ((lower <= counts) & (counts <= upper)).all()
        loose = grade_differencing(slivers, zoning, found, (lower, upper), persons, 4)
        if graded["slivers"]:
            assert (graded[PINNED], graded[SHOWN_SMALL]) == (1, 1)
            assert loose[PINNED] == ((lower == upper) & small).sum() / small.sum()
            assert loose[SHOWN_SMALL] == ((upper < 4) & small).sum() / small.sum()
        wrong = grade_differencing(slivers, zoning, found, (counts + 1, counts + 1), persons, 4)
        assert not graded["slivers"] or wrong[PINNED] == 0
        noisy = [part + draws.integers(-4, 5, len(part)) for part in zones]
        weak = grade_differencing(slivers, zoning, slivers.figures(*noisy), exactly, persons, 4)
        assert not weak["slivers"] or weak[EXACT] < 1
    assert seen > 10

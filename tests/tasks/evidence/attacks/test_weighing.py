"""Chances of published counts against what the methods publish, and people that are likelier."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from spineflow.tasks.evidence.attacks.differencing import least_squares
from spineflow.tasks.evidence.attacks.membership import link_singles
from spineflow.tasks.evidence.attacks.rebuilding import agreement, chance_of, most_likely
from spineflow.tasks.evidence.attacks.reconstruction import (
    UNBOUNDED,
    Effort,
    TableSystem,
    reconstruct,
    system_of_tables,
)
from spineflow.tasks.evidence.ingest import PublishedTable
from spineflow.tasks.evidence.methods import rounding
from spineflow.tasks.evidence.methods.rounding import perturb_counts
from spineflow.tasks.evidence.settings import CellKeys, Rounding

from tests.tasks.evidence.attacks.blocks import histograms, totals_of

ROUNDING = Rounding(kind="rounding", how="random", bases=(3, 5))
CELL_KEYS = CellKeys(kind="cell_keys", largest=2, variances=("1.05",), threshold=1)


def published(method: Rounding | CellKeys, counts: np.ndarray, seed: int) -> PublishedTable:
    uniform = np.random.default_rng(seed).random(counts.shape)
    if isinstance(method, Rounding):
        return rounding.random(counts, 5, uniform)
    return perturb_counts(counts, uniform, method.perturbation(0).table())


@pytest.mark.parametrize(("method", "strength"), [(ROUNDING, 1), (CELL_KEYS, 0)])
def test_chances_are_those_with_which_counts_are_published(
    method: Rounding | CellKeys, strength: int
) -> None:
    chance, reach = chance_of(method, strength)
    for count in range(9):
        counts = np.full((1, 40_000), float(count))
        values, often = np.unique(published(method, counts, count).value, return_counts=True)
        assert abs(values - count).max() <= reach
        for told in range(count + 8):
            share = often[values == told].sum() / 40_000
            assert chance(np.array([count]), told)[0] == pytest.approx(share, abs=0.012)


@pytest.mark.parametrize(("method", "strength"), [(ROUNDING, 1), (CELL_KEYS, 0)])
def test_the_likeliest_people_agree_better_than_any_possible_ones(
    method: Rounding | CellKeys, strength: int
) -> None:
    draws = np.random.default_rng(6)
    a, b, c = (axis.ravel() for axis in np.indices((2, 5, 3)))
    system = system_of_tables([0 * a, a * 5 + b, b * 3 + c, a * 3 + c, (a * 5 + b) * 3 + c])
    people = draws.poisson(draws.choice([0, 0, 1, 4], 30), (25, 30))
    table = published(method, totals_of(system, people).astype(float), 1)
    lower, upper = (side.astype(np.int64) for side in (table.low, table.high))
    # A table that is withheld bounds nothing, and the rest is weighed as before.
    withheld = table.value.copy()
    withheld[:, 1], lower[:, 1], upper[:, 1] = np.nan, 0, UNBOUNDED
    release = SimpleNamespace(
        method=method,
        draw=SimpleNamespace(strength=strength),
        bounded_system=system,
        values=lambda: withheld,
    )
    found = reconstruct(system, lower, upper, effort=Effort(solver_nodes=20))
    likely = most_likely(release, lower, upper, found, Effort(solver_nodes=20))
    truth = np.repeat(np.arange(people.size), people.ravel())
    agreed = [
        agreement(truth, np.repeat(part.block * 30 + part.cell, part.count))
        for part in (found, likely)
    ]
    assert agreed[1] > agreed[0] + 0.05
    assert (likely.status == found.status).all()
    totals = totals_of(system, histograms(likely, 30))
    assert ((lower <= totals) & (totals <= upper)).all()
    assert likely.persons.tolist() == histograms(likely, 30).sum(axis=1).tolist()
    exact = totals_of(system, people)
    same = reconstruct(system, exact, exact)
    assert most_likely(release, exact, exact, same, Effort()) is same


def splitting(splits: int) -> TableSystem:
    """Parts p_k and a - p_k of a total a, over the cells a, p_1, ..., p_splits."""
    parts = np.hstack([np.zeros((splits, 1)), np.eye(splits)])
    rest = np.hstack([np.ones((splits, 1)), -np.eye(splits)])
    return TableSystem(sparse.csr_array(np.vstack([parts, rest]).astype(np.int64)))


def test_so_many_splits_recover_a_total_in_95_of_100() -> None:
    draws = np.random.default_rng(8)
    for splits, expected in ((31, 0.95), (8, 0.683)):
        system = splitting(splits)
        people = np.hstack([np.full((8000, 1), 30), draws.integers(0, 30, (8000, splits))])
        noisy = totals_of(system, people) + draws.normal(0, 1, (8000, 2 * splits))
        found = least_squares(system, noisy)
        total = found[:, :1] + found[:, splits : splits + 1]
        assert found[:, :splits] + found[:, splits:] == pytest.approx(np.repeat(total, splits, 1))
        assert total.var() == pytest.approx(2 / splits, rel=0.05)
        assert (np.rint(total) == 30).mean() == pytest.approx(expected, abs=0.012)


def test_least_squares_are_those_of_the_normal_equations() -> None:
    draws = np.random.default_rng(2)
    a, b, c = (axis.ravel() for axis in np.indices((3, 2, 2)))
    system = system_of_tables([a * 2 + b, b * 2 + c, a, 0 * a, a * 4 + b * 2 + c])
    published = draws.normal(10, 3, (4, system.n_rows))
    dense = system.matrix.toarray()
    expected = (dense @ np.linalg.inv(dense.T @ dense) @ dense.T @ published.T).T
    assert least_squares(system, published) == pytest.approx(expected)


def swapped(kinds: int, seed: int) -> tuple[np.ndarray, ...]:
    """Kind, place, place after swapping and partner (else -1) of 3,000 households."""
    draws = np.random.default_rng(seed)
    kind, place = draws.integers(0, kinds, 3_000), draws.integers(0, 100, 3_000)
    partner = np.full(3_000, -1)
    order = draws.permutation(3_000)
    for one, other in order[:300].reshape(-1, 2):
        if place[one] != place[other]:
            partner[[one, other]] = other, one
    after = np.where(partner >= 0, place[partner], place)
    return kind, place, after, partner


def test_households_alone_of_their_kind_show_that_they_were_swapped() -> None:
    kind, place, after, partner = swapped(20_000, 1)
    released = np.zeros((100, 20_000))
    np.add.at(released, (after, kind), 1)
    is_linked, is_moved = link_singles(kind, place, released)
    alone = np.bincount(kind, minlength=20_000)[kind] == 1
    assert (is_linked == alone).all() and 0 < alone.sum() < 3_000
    assert (is_moved == (alone & (partner >= 0))).all() and is_moved.any()
    # A household of which nobody knows the place is no other's double.
    unknown = np.where(alone, -1, place)
    assert not link_singles(kind, unknown, released)[0].any()

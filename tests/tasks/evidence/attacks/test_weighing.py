"""Chances of published counts against what the methods publish, and people that are likelier."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from spineflow.tasks.evidence.attacks.reconstruction import Effort, reconstruct
from spineflow.tasks.evidence.attacks.reidentification import agreement
from spineflow.tasks.evidence.attacks.systems import UNBOUNDED, system_of_tables
from spineflow.tasks.evidence.attacks.weighing import chance_of, most_likely
from spineflow.tasks.evidence.methods import rounding
from spineflow.tasks.evidence.methods.cell_keys import perturbed
from spineflow.tasks.evidence.settings import CellKeys, Nothing, Rounding
from spineflow.tasks.evidence.workload.tables import PublishedTable

from tests.tasks.evidence.attacks.blocks import histograms, totals_of

ROUNDING = Rounding(kind="rounding", how="random", bases=(3, 5))
CELL_KEYS = CellKeys(kind="cell_keys", largest=2, variances=("1.05",), threshold=1)


def published(method: Rounding | CellKeys, counts: np.ndarray, seed: int) -> PublishedTable:
    uniform = np.random.default_rng(seed).random(counts.shape)
    if isinstance(method, Rounding):
        return rounding.random(counts, 5, uniform)
    return perturbed(counts, uniform, method.perturbation(0).table())


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


def test_methods_that_draw_no_counts_have_no_chances() -> None:
    assert chance_of(Nothing(kind="nothing"), 0) is None
    assert chance_of(Rounding(kind="rounding", how="nearest"), 0) is None


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

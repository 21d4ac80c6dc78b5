"""Least squares on the tree against a dense solution of the same problem."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.trips.estimation.tree_least_squares import MeasuredLevel, tree_least_squares

NONE = np.zeros(0, dtype=np.int64)


def random_tree(random: np.random.Generator, *, root_variance: float) -> list[MeasuredLevel]:
    """Three levels below a root; about half of the nodes above the leaves were not refined."""
    levels = [MeasuredLevel(np.array([100]), root_variance, NONE, np.zeros(1, dtype=np.int64))]
    for variance in (3.0, 1.5, 7.0):
        n_above = levels[-1].values.size
        kept = np.flatnonzero(random.random(n_above) < 0.6) if n_above > 1 else np.array([0])
        kept = kept if kept.size else np.array([n_above - 1])
        offsets = np.concatenate([[0], np.cumsum(random.integers(1, 5, size=kept.size))])
        values = random.integers(-5, 40, size=offsets[-1])
        levels.append(MeasuredLevel(values, variance, kept, offsets))
    return levels


def dense(levels: list[MeasuredLevel]) -> list[np.ndarray]:
    """Weighted least squares with the finest measured nodes as unknowns."""
    starts = np.cumsum([0, *(level.values.size for level in levels)])
    n = starts[-1]
    children: dict[int, list[int]] = {}
    for number, level in enumerate(levels[1:], start=1):
        for family, parent in enumerate(level.parent):
            own = np.arange(level.offsets[family], level.offsets[family + 1])
            children[starts[number - 1] + parent] = (starts[number] + own).tolist()
    unknown = [node for node in range(n) if node not in children]
    design = np.zeros((n, len(unknown)))
    for node in reversed(range(n)):
        if node in children:
            design[node] = design[children[node]].sum(axis=0)
        else:
            design[node, unknown.index(node)] = 1
    values = np.concatenate([level.values for level in levels]).astype(float)
    variance = np.repeat(
        [level.variance or 1e-10 for level in levels], [level.values.size for level in levels]
    )
    weight = 1 / np.sqrt(variance)
    solution = np.linalg.lstsq(design * weight[:, None], values * weight, rcond=None)[0]
    return np.split(design @ solution, starts[1:-1])


@pytest.mark.parametrize("root_variance", [0.0, 2.0, 1e9])
@pytest.mark.parametrize("seed", range(8))
def test_two_passes_solve_the_weighted_problem(root_variance: float, seed: int) -> None:
    levels = random_tree(np.random.default_rng(seed), root_variance=root_variance)
    found = tree_least_squares(levels)
    for ours, theirs in zip(found, dense(levels), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4)
    for above, below, level in zip(found, found[1:], levels[1:], strict=False):
        sums = np.add.reduceat(below, level.offsets[:-1])
        assert sums == pytest.approx(above[level.parent])


def test_exact_measurements_stay() -> None:
    levels = random_tree(np.random.default_rng(3), root_variance=1.0)
    for position in range(len(levels) - 2, -1, -1):
        below, level = levels[position + 1], levels[position]
        values = level.values.copy()
        values[below.parent] = np.add.reduceat(below.values, below.offsets[:-1])
        levels[position] = MeasuredLevel(values, level.variance, level.parent, level.offsets)
    for level, estimates in zip(levels, tree_least_squares(levels), strict=True):
        assert estimates == pytest.approx(level.values)

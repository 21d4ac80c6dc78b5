"""Reference solvers of the group-size programs, as slow and literal as they come."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from scipy import sparse
from spineflow.geography.hierarchy import AreaLevel
from spineflow.tasks.group_sizes.ingest.regions import RegionHierarchy
from spineflow.tasks.group_sizes.measurement import true_vector
from spineflow.tasks.group_sizes.plan import CHAINED_CUMULATIVE_GROUP_SIZES, GROUP_SIZES
from spineflow.tasks.solvers.highs import SolveStatus, solve


def hierarchy_of(*fanouts: Sequence[int]) -> RegionHierarchy:
    """A hierarchy in which region i of level l has fanouts[l][i] children."""
    levels = [AreaLevel("level 0", np.array(["0"], dtype=object), np.array([-1]))]
    for depth, fanout in enumerate(fanouts, 1):
        parent = np.repeat(np.arange(len(levels[-1])), fanout)
        regions = np.array([f"{depth}.{i}" for i in range(len(parent))], dtype=object)
        levels.append(AreaLevel(f"level {depth}", regions, parent))
    return RegionHierarchy(tuple(levels))


def random_hierarchy(
    rng: np.random.Generator, *, most_levels: int, most_children: int
) -> RegionHierarchy:
    fanouts, n = [], 1
    for _ in range(rng.integers(0, most_levels)):
        fanouts.append(rng.integers(1, most_children + 1, n))
        n = int(fanouts[-1].sum())
    return hierarchy_of(*fanouts)


class Instance(NamedTuple):
    """A hierarchy, of each level a noisy vector, the number of groups, the levels' weights, and
    their true counts.
    """

    hierarchy: RegionHierarchy
    noisy: list[np.ndarray]
    total: int
    weights: list[int]
    counts: list[np.ndarray]


def random_instance(
    rng: np.random.Generator,
    vector: str = GROUP_SIZES,
    *,
    levels: int,
    children: int,
    sizes: int,
    total: int,
    noise: int,
) -> Instance:
    """A random hierarchy with counts, noisy values of a vector that noise changes by at most
    `noise`, and weights, which are all 1 half of the time.
    """
    hierarchy = random_hierarchy(rng, most_levels=levels, most_children=children)
    n_sizes, n_groups = int(rng.integers(1, sizes + 1)), int(rng.integers(0, total + 1))
    n_counts = hierarchy.n_leaves * n_sizes
    truth = rng.multinomial(n_groups, np.full(n_counts, 1 / n_counts))
    counts = list(hierarchy.sum_up(truth.reshape(hierarchy.n_leaves, n_sizes)))
    noisy = [
        true_vector(vector, level) + rng.integers(-noise, noise + 1, level.shape)
        for level in counts
    ]
    weights = [1] * len(noisy) if rng.random() < 0.5 else rng.integers(1, 9, len(noisy)).tolist()
    return Instance(hierarchy, noisy, n_groups, weights, counts)


def distance(values, noisy, weights) -> int:
    """Weighted squared distance over all levels, in Python integers."""
    return sum(
        int(weight) * int(((value - level).astype(object) ** 2).sum())
        for weight, value, level in zip(weights, values, noisy, strict=True)
    )


def hierarchical_cost(counts, noisy, hierarchy, weights) -> int:
    return distance(hierarchy.sum_up(counts), noisy, weights)


def chain_cost(counts, noisy, hierarchy, weights) -> int:
    """The last entry of every level is the total, whatever was measured there."""
    chains = [
        true_vector(CHAINED_CUMULATIVE_GROUP_SIZES, level) for level in hierarchy.sum_up(counts)
    ]
    return distance(chains, noisy, weights)


def all_counts(n_leaves: int, n_sizes: int, total: int) -> Iterator[np.ndarray]:
    """Every table of non-negative integers with that sum."""
    for bars in itertools.combinations(
        range(total + n_leaves * n_sizes - 1), n_leaves * n_sizes - 1
    ):
        edges = np.array([-1, *bars, total + n_leaves * n_sizes - 1])
        yield (np.diff(edges) - 1).reshape(n_leaves, n_sizes)


def cost_table_of_children(tables: list[dict[int, int]], domain: range) -> dict[int, int]:
    """Algorithm 1 of the paper: from the children's minima, slopes merged in ascending order."""
    start = [min(table, key=lambda v: (table[v], v)) for table in tables]
    found = {}
    for sign in (1, -1):
        slopes = sorted(
            (table[v + sign] - table[v], abs(v - low), child)
            for child, (table, low) in enumerate(zip(tables, start, strict=True))
            for v in table
            if sign * (v - low) >= 0 and v + sign in table
        )
        value = sum(start)
        cost = sum(table[low] for table, low in zip(tables, start, strict=True))
        found[value] = cost
        for slope, _, _ in slopes:
            value, cost = value + sign, cost + slope
            found[value] = cost
    return {value: found[value] for value in domain if value in found}


def hierarchical_by_tables(noisy, hierarchy: RegionHierarchy, total: int, weights) -> int:
    """Least cost by the paper's bottom-up cost tables, (4a) to (4d), with Algorithm 1."""
    domain = range(total + 1)

    def table(depth: int, region: int, size: int) -> dict[int, int]:
        own = {v: int(weights[depth] * (v - noisy[depth][region, size]) ** 2) for v in domain}
        if depth == len(noisy) - 1:
            return own
        offsets = hierarchy.children(depth)
        below = cost_table_of_children(
            [table(depth + 1, c, size) for c in range(offsets[region], offsets[region + 1])], domain
        )
        return {v: own[v] + below[v] for v in domain if v in below}

    sizes = [table(0, 0, size) for size in range(noisy[0].shape[1])]
    return cost_table_of_children(sizes, domain)[total]


def chain_by_tables(noisy, hierarchy: RegionHierarchy, total: int, weights) -> int:
    """Least cost by the paper's recurrence (8a), (8b) along the post-ordered chain.

    A region follows its last child with the same value; every other node may be larger than the
    one before it.
    """
    chain: list[tuple[int, int, int, bool]] = []

    def visit(depth: int, region: int, size: int) -> None:
        if depth < len(noisy) - 1:
            offsets = hierarchy.children(depth)
            for child in range(offsets[region], offsets[region + 1]):
                visit(depth + 1, child, size)
        chain.append((depth, region, size, depth < len(noisy) - 1))

    for size in range(noisy[0].shape[1]):
        visit(0, 0, size)
    table = None
    for depth, region, size, is_equal in chain:
        own = [
            int(weights[depth] * (v - noisy[depth][region, size]) ** 2) for v in range(total + 1)
        ]
        if table is None:
            below = [0] * (total + 1)
        elif is_equal:
            below = table
        else:
            below = list(itertools.accumulate(table, min))
        table = [a + b for a, b in zip(own, below, strict=True)]
    return table[total]


def by_integer_program(
    noisy, hierarchy: RegionHierarchy, total: int, weights, *, is_chain: bool, rows=None
) -> int:
    """Least cost by HiGHS: a 0/1 column for each unit of each count, at its marginal cost.

    `rows` are regions whose numbers of groups are given.
    """
    n_sizes, n_leaves = noisy[0].shape[1], hierarchy.n_leaves
    costs, counts = [], []
    constant = 0
    for depth, level in enumerate(noisy):
        for (region, size), value in np.ndenumerate(level):
            constant += int(weights[depth]) * int(value) ** 2
            counts.append((depth, region, size))
            costs.append([weights[depth] * (2 * (k - value) + 1) for k in range(total)])
    n_units = len(counts) * total
    n_columns = n_leaves * n_sizes + n_units
    kept = [] if rows is None else list(rows.totals)
    a = sparse.lil_array((len(counts) + 1 + len(kept), n_columns))
    upper = np.zeros(len(counts) + 1 + len(kept))
    for row, (depth, region, size) in enumerate(counts):
        first, stop = hierarchy.leaves[depth][region : region + 2]
        for leaf in range(n_leaves):
            for s in range(n_sizes):
                if is_chain:
                    counted = s < size or (s == size and leaf < stop)
                else:
                    counted = s == size and first <= leaf < stop
                if counted:
                    a[row, leaf * n_sizes + s] = 1
        start = n_leaves * n_sizes + row * total
        a[row, start : start + total] = -1
    a[len(counts), : n_leaves * n_sizes] = 1
    upper[len(counts)] = total
    for region, groups in enumerate(kept):
        first, stop = hierarchy.leaves[rows.depth][region : region + 2]
        a[len(counts) + 1 + region, first * n_sizes : stop * n_sizes] = 1
        upper[len(counts) + 1 + region] = groups
    result = solve(
        np.concatenate([np.zeros(n_leaves * n_sizes), np.array(costs, float).reshape(-1)]),
        sparse.csr_array(a),
        upper,
        upper,
        np.zeros(n_columns),
        np.concatenate([np.full(n_leaves * n_sizes, float(total)), np.ones(n_units)]),
        integral=np.ones(n_columns, dtype=bool),
    )
    assert result.status is SolveStatus.OPTIMAL
    return constant + round(result.objective)


@pytest.fixture(scope="session")
def reference() -> SimpleNamespace:
    """The reference solvers and the makers of instances."""
    return SimpleNamespace(
        hierarchy_of=hierarchy_of,
        random_instance=random_instance,
        hierarchical_cost=hierarchical_cost,
        chain_cost=chain_cost,
        all_counts=all_counts,
        hierarchical_by_tables=hierarchical_by_tables,
        chain_by_tables=chain_by_tables,
        by_integer_program=by_integer_program,
    )

"""The exact hierarchical program with public numbers of groups by region, as a flow of groups.

As `marginal_costs`, but the regions of one level, the rows, have public numbers of groups G:

    minimise  sum w_level (x[v, s] - a[v, s])^2
    such that x[v, s] = sum of x[c, s] over v's children c, x >= 0 integers,
              sum over sizes of x[v, s] = G[v] for every row v.

Rows and sizes cross, so that marginal costs cannot be merged up one tree. But groups flow: from a
row, over an arc for each finest region below it and each size, to the node of that region's parent
and the size, from there to the node of the next region above and the same size, and so on to the
root's node, and over a last arc into a sink. An arc carries the count of a region and size, at the
convex cost of its level. Flows of least convex cost are integral where supplies are.

They are found by cost scaling with relabelling (Goldberg and Tarjan 1990; for convex costs
Bertsekas 1998, chapter 9). Nodes have prices; at a tolerance e, every unit that could be moved
saves at most e. The tolerance is divided until, in costs multiplied by one more than the number of
nodes, it is 1: then no cycle of moves saves a whole unit, and the flow is optimal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import njit
from spineflow.tasks.group_sizes.workload.regions import RegionHierarchy

LARGEST_COST = 1 << 60
"""Costs times nodes stay below this."""

FACTOR = 4
"""By which the tolerance is divided from pass to pass."""


class _Network(NamedTuple):
    """Arcs from `tail` to `head` with the cost weight (x - target)^2; supplies add to 0.

    Node i touches the arcs touching[first[i] : first[i + 1]].
    """

    tail: np.ndarray
    head: np.ndarray
    weight: np.ndarray
    target: np.ndarray
    supply: np.ndarray
    first: np.ndarray
    touching: np.ndarray


def hierarchical_optimum_of_rows(
    noisy: Sequence[np.ndarray],
    hierarchy: RegionHierarchy,
    depth: int,
    totals: np.ndarray,
    weights: Sequence[int],
) -> np.ndarray:
    """Group sizes of the finest regions, (n_leaves, n_sizes), that solve the program exactly.

    Args:
        noisy: for each level, root first, the noisy counts (n, n_sizes).
        depth: position of the level of the rows.
        totals: the public number of groups of every row.
        weights: integer weight of each level's squared distances; the finest one's is positive.

    Raises OverflowError if costs could leave 64 bits.
    """
    network = _network(noisy, hierarchy, depth, totals, weights)
    n_nodes = len(network.supply)
    reach = max(float(np.abs(level).max()) for level in noisy) + float(totals.sum())
    if 8 * reach * max(weights) * len(noisy) * (n_nodes + 1) >= LARGEST_COST:
        raise OverflowError("the weighted noisy counts do not fit 64 bits")
    flow = np.zeros(len(network.tail), dtype=np.int64)
    _scale_costs(network, flow, n_nodes + 1, int(2 * reach * max(weights) * (n_nodes + 1)))
    n_sizes = noisy[0].shape[1]
    return flow[: hierarchy.n_leaves * n_sizes].reshape(hierarchy.n_leaves, n_sizes)


def _network(
    noisy: Sequence[np.ndarray],
    hierarchy: RegionHierarchy,
    depth: int,
    totals: np.ndarray,
    weights: Sequence[int],
) -> _Network:
    """Rows come first among the nodes, then regions and sizes level by level, the sink last.

    Levels of weight 0 have no nodes: an arc would be free, and would tell nothing.
    """
    n_sizes, n_rows = noisy[0].shape[1], len(totals)
    size = np.arange(n_sizes)
    depths = [level for level, weight in enumerate(weights) if weight]
    n_nodes = [hierarchy.n_regions[level] * n_sizes for level in depths[:-1]]
    node_start = n_rows + np.cumsum([0, *n_nodes])
    sink = int(node_start[-1])
    tails, heads, targets, heft = [], [], [], []
    for place in range(len(depths) - 1, -1, -1):
        level = depths[place]
        n = hierarchy.n_regions[level]
        if place == len(depths) - 1:
            tail = np.repeat(_ancestors(hierarchy, level, depth), n_sizes)
        else:
            tail = np.arange(node_start[place], node_start[place] + n * n_sizes)
        if place:
            parent = _ancestors(hierarchy, level, depths[place - 1])
            head = (node_start[place - 1] + parent[:, None] * n_sizes + size).reshape(-1)
        else:
            head = np.full(n * n_sizes, sink)
        tails.append(tail)
        heads.append(head)
        targets.append(noisy[level].reshape(-1))
        heft.append(np.full(n * n_sizes, weights[level]))
    tail, head, target, weight = (
        np.concatenate(parts).astype(np.int64) for parts in (tails, heads, targets, heft)
    )
    supply = np.zeros(sink + 1, dtype=np.int64)
    supply[:n_rows] = totals
    supply[sink] = -int(totals.sum())
    ends = np.concatenate([tail, head])
    order = np.argsort(ends, kind="stable")
    first = np.searchsorted(ends[order], np.arange(sink + 2)).astype(np.int64)
    return _Network(tail, head, weight, target, supply, first, order % len(tail))


def _ancestors(hierarchy: RegionHierarchy, depth: int, above: int) -> np.ndarray:
    """Position at level `above` of what every region of level `depth` lies in."""
    position = np.arange(hierarchy.n_regions[depth])
    for level in hierarchy.levels[depth:above:-1]:
        position = level.parent[position]
    return position


@njit(cache=True, nogil=True)
def _scale_costs(network: _Network, flow: np.ndarray, factor: int, largest: int) -> None:
    """Send the supplies along arcs at least cost; `flow` is the result.

    Costs are multiplied by `factor`, above the number of nodes; none is above `largest`.
    """
    n = network.supply.size
    price = np.zeros(n, np.int64)
    excess = np.zeros(n, np.int64)
    queue = np.empty(n + 1, np.int64)
    waits = np.zeros(n, np.bool_)
    tolerance = np.int64(1)
    while tolerance < largest:
        tolerance *= FACTOR
    while tolerance > 1:
        tolerance //= FACTOR
        for i in range(n):
            excess[i] = network.supply[i]
        for arc in range(flow.size):
            i, j = network.tail[arc], network.head[arc]
            flow[arc] = _wanted(network, arc, price[i] - price[j], factor)
            excess[i] -= flow[arc]
            excess[j] += flow[arc]
        _discharge(network, flow, price, excess, queue, waits, factor, tolerance)


@njit(cache=True, nogil=True)
def _wanted(network: _Network, arc: int, gain: int, factor: int) -> int:
    """The least-cost flow of an arc whose units gain the difference of its ends' prices."""
    weight, target = network.weight[arc], network.target[arc]
    # The largest x whose last unit costs no more than it gains: w (2 (x - a) - 1) factor <= gain.
    return max(np.int64(0), target + (gain // factor + weight) // (2 * weight))


@njit(cache=True, nogil=True)
def _discharge(
    network: _Network,
    flow: np.ndarray,
    price: np.ndarray,
    excess: np.ndarray,
    queue: np.ndarray,
    waits: np.ndarray,
    factor: int,
    tolerance: np.integer,
) -> None:
    """Push every excess along moves that save, raising prices where none does."""
    n = network.supply.size
    start, stop = 0, 0
    for i in range(n):
        waits[i] = excess[i] > 0
        if waits[i]:
            queue[stop] = i
            stop += 1
    while start != stop:
        i = queue[start]
        start = start + 1 if start < n else 0
        waits[i] = False
        while excess[i] > 0:
            least = np.int64(1) << 62
            for place in range(network.first[i], network.first[i + 1]):
                arc = network.touching[place]
                is_out = network.tail[arc] == i
                j = network.head[arc] if is_out else network.tail[arc]
                if not is_out and flow[arc] == 0:
                    continue
                gain = price[i] - price[j]
                weight, away = network.weight[arc], flow[arc] - network.target[arc]
                if is_out:
                    cost = factor * weight * (2 * away + 1)
                else:
                    cost = factor * weight * (1 - 2 * away)
                if cost - gain < 0 and excess[i] > 0:
                    units = min(excess[i], 1 + (gain - cost - 1) // (2 * weight * factor))
                    if is_out:
                        flow[arc] += units
                    else:
                        units = min(units, flow[arc])
                        flow[arc] -= units
                    excess[i] -= units
                    excess[j] += units
                    if excess[j] > 0 and not waits[j]:
                        waits[j] = True
                        queue[stop] = j
                        stop = stop + 1 if stop < n else 0
                    if not is_out and flow[arc] == 0:
                        continue
                    cost += 2 * weight * factor * units
                least = min(least, cost + price[j])
            if excess[i] > 0:
                price[i] = least + tolerance

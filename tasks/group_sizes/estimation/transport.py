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

They are found in two steps. Nodes have prices; a unit that moves from node i to node j saves the
difference of their prices, less its cost.

- Cost scaling with relabelling (Goldberg and Tarjan 1990; for convex costs Bertsekas 1998, chapter
  9): at a tolerance e, every unit that could be moved saves at most e. The tolerance is divided
  until it is 1. It begins at a scale of the final prices: the cost of the first excesses if a
  node's arcs share them. At a larger one, flows at the prices of a pass leave a thousand times as
  much to move in the next.
- Shortest paths (Ford and Fulkerson's primal-dual method): with the flow that no move improves at
  these prices, few units of most nodes are too many or too few. All excesses are sent along
  shortest paths at once, again and again. Moves never save anything, so that at the end no cycle
  of them does, and the flow is optimal.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numba import njit

from .marginal_costs import Program, Rows

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


def hierarchical_optimum_of_rows(program: Program, rows: Rows) -> np.ndarray:
    """Group sizes of the finest regions, (n_leaves, n_sizes), that solve a program exactly whose
    noisy vectors are counts.

    Raises OverflowError if costs could leave 64 bits.
    """
    network, noisy = _network(program, rows), program.noisy
    n_nodes = len(network.supply)
    reach = max(float(np.abs(level).max()) for level in noisy) + float(rows.totals.sum())
    if 8 * reach * max(program.weights) * len(noisy) * (n_nodes + 1) >= LARGEST_COST:
        raise OverflowError("the weighted noisy counts do not fit 64 bits")
    finest = noisy[-1]
    return _minimum_cost_flow(network)[: finest.size].reshape(finest.shape)


def _network(program: Program, rows: Rows) -> _Network:
    """Rows come first among the nodes, then regions and sizes level by level, the sink last.

    Levels of weight 0 have no nodes: their arcs would be free, and carry no information.
    """
    noisy, hierarchy, weights = program.noisy, program.hierarchy, program.weights
    n_sizes, n_rows = noisy[0].shape[1], len(rows.totals)
    size = np.arange(n_sizes)
    depths = [level for level, weight in enumerate(weights) if weight]
    n_nodes = [hierarchy.n_regions[level] * n_sizes for level in depths[:-1]]
    node_start = n_rows + np.cumsum([0, *n_nodes])
    sink = int(node_start[-1])
    arcs = []
    for place in range(len(depths) - 1, -1, -1):
        level = depths[place]
        n = hierarchy.n_regions[level]
        if place == len(depths) - 1:
            tail = np.repeat(hierarchy.ancestors(rows.depth, level), n_sizes)
        else:
            tail = np.arange(node_start[place], node_start[place] + n * n_sizes)
        if place:
            parent = hierarchy.ancestors(depths[place - 1], level)
            head = (node_start[place - 1] + parent[:, None] * n_sizes + size).reshape(-1)
        else:
            head = np.full(n * n_sizes, sink)
        weight = np.full(n * n_sizes, weights[level])
        arcs.append(np.array([tail, head, noisy[level].reshape(-1), weight], dtype=np.int64))
    tail, head, target, weight = map(np.ascontiguousarray, np.concatenate(arcs, axis=1))
    supply = np.zeros(sink + 1, dtype=np.int64)
    supply[:n_rows] = rows.totals
    supply[sink] = -int(rows.totals.sum())
    ends = np.concatenate([tail, head])
    order = np.argsort(ends, kind="stable")
    first = np.searchsorted(ends[order], np.arange(sink + 2)).astype(np.int64)
    return _Network(tail, head, weight, target, supply, first, order % len(tail))


def _minimum_cost_flow(network: _Network) -> np.ndarray:
    """Send the supplies along arcs at least cost: the flow of every arc."""
    price = np.zeros_like(network.supply)
    flow = np.maximum(network.target, 0)
    excess = _excess(network, flow)
    # At most, a node's arcs share its excess.
    shared = 2 * network.weight.max() * np.abs(excess) // np.diff(network.first)
    tolerance = 1
    while tolerance < shared.max():
        tolerance *= FACTOR
    while True:
        _discharge(network, flow, price, excess, tolerance)
        flow = _improve_to_optimum(network, flow, price)
        excess = _excess(network, flow)
        if tolerance == 1:
            break
        tolerance //= FACTOR
    _send_along_shortest_paths(network, flow, price, excess)
    return flow


def _excess(network: _Network, flow: np.ndarray) -> np.ndarray:
    """Inflow less outflow of each node."""
    excess = network.supply.copy()
    np.subtract.at(excess, network.tail, flow)
    np.add.at(excess, network.head, flow)
    return excess


def _improve_to_optimum(network: _Network, flow: np.ndarray, price: np.ndarray) -> np.ndarray:
    """Flows changed, as little as that takes, to some that no single move improves."""
    gain, weight = price[network.tail] - price[network.head], network.weight
    # The largest x whose last unit costs no more than it gains, w (2 (x - a) - 1) <= gain, and
    # the largest whose last unit costs less.
    most = network.target + (gain + weight) // (2 * weight)
    least = network.target + (gain + weight - 1) // (2 * weight)
    return np.maximum(np.minimum(np.maximum(flow, least), most), 0)


@njit(cache=True, nogil=True)
def _send_along_shortest_paths(
    network: _Network, flow: np.ndarray, price: np.ndarray, excess: np.ndarray
) -> None:
    """Send all excesses to where flow lacks, along paths that cost least and have fewest arcs.

    The flow is such that no single move improves it at the prices, and stays so.
    """
    n = price.size
    cost_of_one = n + 1
    onward = np.empty(n, np.int64)
    path = np.empty(n, np.int64)
    while True:
        # Distances are costs times n + 1, plus the number of arcs.
        distance = _distances(network, flow, price, excess, cost_of_one)
        if distance.size == 0:
            return
        for i in range(n):
            price[i] -= distance[i] // cost_of_one
            distance[i] %= cost_of_one
        # A blocking flow: depth first along moves that cost nothing and go one arc further.
        onward[:] = network.first[:-1]
        for source in range(n):
            while excess[source] > 0:
                i, length = source, 0
                while excess[i] >= 0:
                    if onward[i] == network.first[i + 1]:
                        if length == 0:
                            break
                        length -= 1
                        i = _other_end(network, path[length], i)
                        onward[i] += 1
                        continue
                    arc = network.touching[onward[i]]
                    j = _other_end(network, arc, i)
                    is_next = distance[j] == distance[i] + 1
                    if is_next and _reduced_cost(network, flow, price, arc, i) == 0:
                        path[length] = arc
                        length += 1
                        i = j
                    else:
                        onward[i] += 1
                if excess[i] >= 0:
                    break
                excess[i] += 1
                excess[source] -= 1
                for step in range(length - 1, -1, -1):
                    j = i
                    i = _other_end(network, path[step], j)
                    flow[path[step]] += 1 if network.tail[path[step]] == i else -1


@njit(cache=True, nogil=True)
def _distances(
    network: _Network, flow: np.ndarray, price: np.ndarray, excess: np.ndarray, cost_of_one: int
) -> np.ndarray:
    """Distance of every node from the nearest with an excess; empty if no node has one.

    The cost of a move counts `cost_of_one` times, and every arc once.
    """
    n = price.size
    distance = np.full(n, np.int64(1) << 62)
    # Empty, but of a type that the compiler sees.
    heap = [(0, 0) for _ in range(0)]
    for source in range(n):
        if excess[source] > 0:
            distance[source] = 0
            heap.append((0, source))
    if len(heap) == 0:
        return np.empty(0, np.int64)
    farthest = 0
    while len(heap) > 0:
        so_far, i = heappop(heap)
        if so_far > distance[i]:
            continue
        farthest = so_far
        for place in range(network.first[i], network.first[i + 1]):
            arc = network.touching[place]
            cost = _reduced_cost(network, flow, price, arc, i)
            if cost < 0:
                continue
            j = _other_end(network, arc, i)
            reached = so_far + cost * cost_of_one + 1
            if reached < distance[j]:
                distance[j] = reached
                heappush(heap, (reached, j))
    # Where nothing gets to, such as rows without groups, prices change with the farthest.
    return np.minimum(distance, farthest)


@njit(cache=True, nogil=True)
def _other_end(network: _Network, arc: int, i: int) -> int:
    """The node that an arc joins to node i."""
    return network.head[arc] if network.tail[arc] == i else network.tail[arc]


@njit(cache=True, nogil=True)
def _reduced_cost(network: _Network, flow: np.ndarray, price: np.ndarray, arc: int, i: int) -> int:
    """Cost less savings of moving a unit from node i over an arc; -1 if it cannot move."""
    gain = price[network.tail[arc]] - price[network.head[arc]]
    weight, away = network.weight[arc], flow[arc] - network.target[arc]
    if network.tail[arc] == i:
        return weight * (2 * away + 1) - gain
    return gain - weight * (2 * away - 1) if flow[arc] > 0 else -1


@njit(cache=True, nogil=True)
def _discharge(
    network: _Network, flow: np.ndarray, price: np.ndarray, excess: np.ndarray, tolerance: int
) -> None:
    """Push every excess along moves that save, raising prices where none does."""
    n = network.supply.size
    queue, waits = np.empty(n + 1, np.int64), np.zeros(n, np.bool_)
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
                is_out, j = network.tail[arc] == i, _other_end(network, arc, i)
                if not is_out and flow[arc] == 0:
                    continue
                gain = price[i] - price[j]
                weight, away = network.weight[arc], flow[arc] - network.target[arc]
                cost = weight * (2 * away + 1) if is_out else weight * (1 - 2 * away)
                if cost - gain < 0 and excess[i] > 0:
                    units = min(excess[i], 1 + (gain - cost - 1) // (2 * weight))
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
                    cost += 2 * weight * units
                least = min(least, cost + price[j])
            if excess[i] > 0:
                price[i] = least + tolerance

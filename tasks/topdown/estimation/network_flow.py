"""Exact minimum-cost flow for the rounder, compiled, in integers.

The network has two layers. Each child has a tree: its root is the child's total, inner nodes are
the rows of nested queries, leaves its cells with a fractional part; a node that holds n ones costs
a convex function of n. Each cell's leaves of all children meet in one vertex, which must receive
exactly the parent's remainder; the totals of children in a common group leave from another.

Only those outer vertices can be out of balance. Every child starts at its own optimum for given
prices of the cells, found from the sorted marginal costs of its leaves, merged up the tree
(`flow_trees`): prices of 0, or `first_prices` where there are many leaves. Then the
primal-dual algorithm ([NetworkFlows1993], chapter 9) works on prices of the outer vertices: the
least cost of moving a one from a vertex with too many to each other vertex gives the new prices,
and ones are moved along every path that costs exactly the difference of the prices at its ends,
for as long as that holds. The cost of a move within one child is read off its tree: up from the
leaf that loses a one and down to the leaf that gets it.

Costs are integers in units of 1 / UNIT, so the optimum is exact and does not depend on the machine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from .flow_trees import (
    FORBIDDEN,
    MANY_LEAVES,
    Network,
    State,
    Trees,
    choose,
    first_prices,
    first_state,
    grow,
    price_node,
    sums_of_nodes,
)
from .flow_trees import UNIT as UNIT

HOPS = 1 << 12
"""Above the number of moves of any way, so that a length and a number of moves make one key."""
NO_PATH = 1 << 60
LONGEST = FORBIDDEN // 2 * HOPS
"""Above the length of any way that breaks no bound, times HOPS."""

OPTIMAL, INFEASIBLE = 0, 1


class _Ways(NamedTuple):
    """Shortest ways to the outer vertices: the cells, then the groups.

    length : (n_vertices,) length times HOPS, plus the number of moves.
    origin, via : (n_vertices,) vertex before and child of the last move; -1 where the way begins.
    here, source : scratch for the nodes of one tree: length of the way to each, and the vertex by
        which it enters the tree.
    """

    length: np.ndarray
    origin: np.ndarray
    via: np.ndarray
    here: np.ndarray
    source: np.ndarray


@njit(cache=True, nogil=True)
def _relax(network: Network, trees: Trees, state: State, ways: _Ways, i: int) -> bool:
    """Shorten the ways to vertices by moves within child i; return whether any is shorter.

    Ways climb from leaves with a one and descend to leaves without.
    """
    here, source, length = ways.here, ways.source, ways.length
    first, last = trees.first_node[i], trees.first_node[i + 1]
    first_leaf, last_leaf = trees.first_leaf[i], trees.first_leaf[i + 1]
    if first == last:
        return False
    is_shorter = False
    for v in range(last - first):
        here[v] = NO_PATH
    for a in range(first_leaf, last_leaf):
        if state.chosen[a]:
            way = length[trees.cell[a]] - trees.leaf_cost[a] * HOPS
            v = trees.leaf_parent[a] - first
            if way < here[v]:
                here[v] = way
                source[v] = trees.cell[a]
    for v in range(last - first - 1, 0, -1):
        way = here[v] + state.fewer[first + v] * HOPS
        above = trees.parent[first + v] - first
        if way < here[above]:
            here[above] = way
            source[above] = source[v]
    if network.group_of_child[i] >= 0:
        g = network.residual.size + network.group_of_child[i]
        way = here[0] + state.fewer[first] * HOPS + 1
        if way < length[g] and way < LONGEST:
            length[g] = way
            ways.origin[g] = source[0]
            ways.via[g] = i
            is_shorter = True
        way = length[g] + state.more[first] * HOPS
        if way < here[0]:
            here[0] = way
            source[0] = g
    for v in range(1, last - first):
        above = trees.parent[first + v] - first
        way = here[above] + state.more[first + v] * HOPS
        if way < here[v]:
            here[v] = way
            source[v] = source[above]
    for a in range(first_leaf, last_leaf):
        if not state.chosen[a]:
            v = trees.leaf_parent[a] - first
            way = here[v] + trees.leaf_cost[a] * HOPS + 1
            w = trees.cell[a]
            if way < length[w] and way < LONGEST:
                length[w] = way
                ways.origin[w] = source[v]
                ways.via[w] = i
                is_shorter = True
    return is_shorter


@njit(cache=True, nogil=True)
def _move(network: Network, trees: Trees, state: State, a: int, b: int) -> int:
    """Take the one out of leaf a and put it into leaf b of one tree, -1 denoting the outside above
    the root, and return the cost.
    """
    cost = 0
    v, w = -1, -1
    if a >= 0:
        state.chosen[a] = False
        cost -= trees.leaf_cost[a]
        v = trees.leaf_parent[a]
    if b >= 0:
        state.chosen[b] = True
        cost += trees.leaf_cost[b]
        w = trees.leaf_parent[b]
    while v != w:
        # Every node comes after its parent: the later one is not above the other.
        if v > w:
            cost += state.fewer[v]
            state.ones[v] -= 1
            price_node(network, trees, state, v)
            v = trees.parent[v]
        else:
            cost += state.more[w]
            state.ones[w] += 1
            price_node(network, trees, state, w)
            w = trees.parent[w]
    return cost


@njit(cache=True, nogil=True)
def _last_move(network: Network, trees: Trees, ways: _Ways, w: int) -> tuple[int, int, int]:
    """Vertex before w on the way to it, and the leaves that lose and get a one."""
    v, i, n_cells = ways.origin[w], ways.via[w], network.residual.size
    return v, trees.leaf_of[i, v] if v < n_cells else -1, trees.leaf_of[i, w] if w < n_cells else -1


@njit(cache=True, nogil=True)
def _send(
    network: Network,
    trees: Trees,
    state: State,
    ways: _Ways,
    goal: int,
    excess: np.ndarray,
    path: np.ndarray,
) -> bool:
    """Move a one along the way to `goal` if every move's cost is unchanged; return whether it was
    moved.

    excess (n_vertices,) ones too many in each vertex; path is scratch.
    """
    n = 0
    source = goal
    while ways.origin[source] >= 0:
        path[n] = source
        n += 1
        source = ways.origin[source]
    if excess[source] <= 0:
        return False
    # From the source on, so that moves in the same tree see earlier ones.
    for m in range(n - 1, -1, -1):
        v, a, b = _last_move(network, trees, ways, path[m])
        is_open = (a < 0 or state.chosen[a]) and (b < 0 or not state.chosen[b])
        cost = ways.length[path[m]] // HOPS - ways.length[v] // HOPS
        if not is_open or _move(network, trees, state, a, b) != cost:
            for undone in range(m if is_open else m + 1, n):
                _, a, b = _last_move(network, trees, ways, path[undone])
                _move(network, trees, state, b, a)
            return False
    excess[source] -= 1
    excess[goal] += 1
    return True


@njit(cache=True, nogil=True)
def _balance(
    network: Network, trees: Trees, state: State, excess: np.ndarray, price: np.ndarray
) -> int:
    """Move ones until no vertex has too many or too few; return the number moved, -1 if impossible.

    Prices stay such that no move within a child lowers its cost by more than they differ, so that
    the state is optimal for the vertices' balances at every step. `price` (n_vertices,) belongs to
    the state and is updated.
    """
    n_vertices, c = excess.size, network.fraction.shape[0]
    path = np.empty(n_vertices, dtype=np.int64)
    widest = 0
    for i in range(c):
        widest = max(widest, trees.first_node[i + 1] - trees.first_node[i])
    length, origin = np.empty(n_vertices, dtype=np.int64), np.empty(n_vertices, dtype=np.int64)
    via = np.empty(n_vertices, dtype=np.int64)
    here, source = np.empty(widest, dtype=np.int64), np.empty(widest, dtype=np.int64)
    ways = _Ways(length, origin, via, here, source)
    n_moved = 0
    while excess.any():
        for v in range(n_vertices):
            origin[v] = -1
            length[v] = price[v] * HOPS if excess[v] > 0 else NO_PATH
        is_shorter = True
        while is_shorter:
            is_shorter = False
            for i in range(c):
                if _relax(network, trees, state, ways, i):
                    is_shorter = True
        farthest = 0
        for v in range(n_vertices):
            if excess[v] < 0:
                if length[v] == NO_PATH:
                    return -1
                farthest = max(farthest, length[v] // HOPS - price[v])
        for v in range(n_vertices):
            while excess[v] < 0 and _send(network, trees, state, ways, v, excess, path):
                n_moved += 1
        for v in range(n_vertices):
            price[v] += min(length[v] // HOPS - price[v], farthest)
    return n_moved


@njit(cache=True, nogil=True)
def _objective(network: Network, trees: Trees, held: np.ndarray) -> int:
    """Cost of `held` ones in every node of the network, less the cost without ones."""
    whole = trees.wanted // UNIT
    over = np.maximum(held - whole, 0)
    cost = UNIT * (over - np.minimum(held, whole))
    cost -= np.where(over > 0, 2 * (trees.wanted - whole * UNIT), 0)
    return np.where(network.counted[trees.level], cost, 0).sum()


@njit(cache=True, nogil=True)
def _values(network: Network, trees: Trees, chosen: np.ndarray) -> np.ndarray:
    """Ones (c, k) of the chosen leaves."""
    y = np.zeros(network.fraction.shape, dtype=np.int64)
    for i in range(network.fraction.shape[0]):
        first, last = trees.first_leaf[i], trees.first_leaf[i + 1]
        y[i][trees.cell[first:last]] = chosen[first:last]
    return y


@njit(cache=True, nogil=True)
def solve(network: Network) -> tuple[int, np.ndarray, int, int]:
    """Choose a 0/1 value for every cell with a fractional part, at the least cost.

    Returns (status, ones of shape (c, k), objective in units of 1 / UNIT, ones moved).
    """
    trees = grow(network)
    n_cells = network.residual.size
    price = np.zeros(network.fraction.shape[1] + network.group_residual.size, dtype=np.int64)
    if n_cells > 0 and trees.cell.size >= MANY_LEAVES:
        price[:n_cells] = first_prices(network, trees)
    state = first_state(network, trees, choose(network, trees, price))
    y = _values(network, trees, state.chosen)
    held = sums_of_nodes(network, y)
    if (held < network.low).any() or (held > network.high).any():
        return INFEASIBLE, y, 0, 0

    excess = np.concatenate((-network.residual, network.group_residual))
    if n_cells > 0:
        excess[:n_cells] += y.sum(axis=0)
    for i in range(y.shape[0]):
        if network.group_of_child[i] >= 0:
            excess[n_cells + network.group_of_child[i]] -= y[i].sum()
    if excess.sum() != 0:
        return INFEASIBLE, y, 0, 0
    n_moved = 0
    if excess.any():
        n_moved = _balance(network, trees, state, excess, price)
        if n_moved < 0:
            return INFEASIBLE, y, 0, 0
        y = _values(network, trees, state.chosen)
        held = sums_of_nodes(network, y)
    return OPTIMAL, y, _objective(network, trees, held), n_moved

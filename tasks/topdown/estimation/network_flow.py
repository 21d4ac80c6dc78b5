"""Exact minimum-cost flow for the rounder, compiled, in integers.

The network has two layers. Each child has a tree: its root is the child's total, inner nodes are
the rows of nested queries, leaves its cells with a fractional part; a node that holds n ones costs
a convex function of n. Each cell's leaves of all children meet in one vertex, which must receive
exactly the parent's remainder; the totals of children in a common group leave from another.

Only those outer vertices can be out of balance. Every child starts at its own optimum for given
prices of the cells, found from the sorted marginal costs of its leaves, merged up the tree: prices
of 0, or `first_prices` where there are many leaves. Then the primal-dual algorithm
([NetworkFlows1993], chapter 9) works on prices of the outer vertices: the least cost of moving a
one from a vertex with too many to each other vertex gives the new prices, and ones are moved along
every path that costs exactly the difference of the prices at its ends, for as long as that holds.
The cost of a move within one child is read off its tree: up from the leaf that loses a one and down
to the leaf that gets it.

Costs are integers in units of 1 / UNIT, so the optimum is exact and does not depend on the machine.

*First prices* of a large pass. Without a parent each node above cells would take its cheapest ones.
With one, a cell takes as many as it must from the nodes that ask least for it: its leaf's cost plus
a charge of the node. Charges under which every node gets about as many ones as its fractional parts
sum to are found by Newton steps on each charge alone, damped; the price of a cell is the sum at
which it has its required number. From there only the remainder is moved exactly: the optimum is
unchanged where it is unique.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

UNIT = 1 << 24
"""Resolution of fractional parts and of costs."""
FORBIDDEN = 1 << 42
"""Cost of leaving a node's bounds: above any sum of real costs."""


class Network(NamedTuple):
    """A rounding pass as a network.

    fraction : (c, k) fractional parts in units of 1 / UNIT; a cell with 0 stays 0.
    labels : (n_levels, k) nested labellings, coarsest first: the node of each cell.
    level_starts : (n_levels + 1,) number of a level's first node; node of child i and label r at
        level l is level_starts[l] + i * (size of the level) + r.
    counted : (n_levels,) whether the level belongs to the objective.
    low, high : bounds on the number of ones in every node.
    order : (k,) the cells ordered so that the cells of one node are neighbours at every level.
    residual : (k,) number of ones in each cell over all children; empty without a parent.
    group_of_child, group_residual : (c,) group of each child or -1, number of ones in each group.
    """

    fraction: np.ndarray
    labels: np.ndarray
    level_starts: np.ndarray
    counted: np.ndarray
    low: np.ndarray
    high: np.ndarray
    order: np.ndarray
    residual: np.ndarray
    group_of_child: np.ndarray
    group_residual: np.ndarray


class Trees(NamedTuple):
    """The children's trees, without nodes that hold the same leaves as the node above.

    first_leaf, first_node : (c + 1,) offsets of each child's leaves and nodes. The first node is
        the root, and every node comes after its parent.
    cell, leaf_parent, leaf_cost : (n_leaves,) cell, node above, and cost of a one in the leaf over
        all levels at which it is alone.
    parent, start, stop : (n_nodes,) node above, -1 for a root, and the leaves below.
    first_part, part : nodes of the network that a node represents: part[first_part[v]] up to
        part[first_part[v + 1]].
    leaf_of : (c, k) leaf of each cell, -1 for none.
    wanted, level : sum of the fractional parts, and level, of each node of the network.
    """

    first_leaf: np.ndarray
    first_node: np.ndarray
    cell: np.ndarray
    leaf_parent: np.ndarray
    leaf_cost: np.ndarray
    parent: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    first_part: np.ndarray
    part: np.ndarray
    leaf_of: np.ndarray
    wanted: np.ndarray
    level: np.ndarray


class State(NamedTuple):
    """Chosen leaves; ones in every node, and the costs of one more and of one less there."""

    chosen: np.ndarray
    ones: np.ndarray
    more: np.ndarray
    fewer: np.ndarray


@njit(cache=True, nogil=True)
def marginal(n: int, wanted: int, counted: bool, low: int, high: int) -> int:
    """Cost of the step from n to n + 1 ones in a node.

    |wanted - n| interpolated between the integers has slopes -1 up to floor(wanted), 1 - 2 frac
    for one step, and +1 beyond.
    """
    cost = 0
    if counted:
        whole = wanted // UNIT
        if n < whole:
            cost = -UNIT
        elif n == whole:
            cost = UNIT - 2 * (wanted - whole * UNIT)
        else:
            cost = UNIT
    if n < low:
        cost -= FORBIDDEN
    if n >= high:
        cost += FORBIDDEN
    return cost


@njit(cache=True, nogil=True)
def node_of(network: Network, level: int, i: int, j: int) -> int:
    """Node of the network that holds cell j of child i at a level."""
    start, stop = network.level_starts[level], network.level_starts[level + 1]
    return start + i * ((stop - start) // network.fraction.shape[0]) + network.labels[level, j]


@njit(cache=True, nogil=True)
def sums_of_nodes(network: Network, values: np.ndarray) -> np.ndarray:
    """Sum over the cells of every node of the network of `values` (c, k)."""
    c, k = values.shape
    sums = np.zeros(network.low.size, dtype=np.int64)
    for level in range(network.labels.shape[0]):
        for i in range(c):
            first = node_of(network, level, i, 0) - network.labels[level, 0]
            for j in range(k):
                sums[first + network.labels[level, j]] += values[i, j]
    return sums


@njit(cache=True, nogil=True)
def grow(network: Network) -> Trees:
    """The trees of the network's children."""
    c, k = network.fraction.shape
    n_levels, n_leaves = network.labels.shape[0], np.count_nonzero(network.fraction)
    wanted = sums_of_nodes(network, network.fraction)
    level_of = np.repeat(np.arange(n_levels), np.diff(network.level_starts))
    first_leaf, first_node = np.zeros(c + 1, dtype=np.int64), np.zeros(c + 1, dtype=np.int64)
    cell = np.empty(n_leaves, dtype=np.int64)
    leaf_parent = np.empty(n_leaves, dtype=np.int64)
    leaf_cost = np.zeros(n_leaves, dtype=np.int64)
    leaf_of = np.full((c, k), -1, dtype=np.int64)
    # Each node but a root splits its parent's leaves, so that there are fewer than leaves.
    parent = np.empty(n_leaves + c, dtype=np.int64)
    start, stop = np.empty(n_leaves + c, dtype=np.int64), np.empty(n_leaves + c, dtype=np.int64)
    first_part = np.zeros(n_leaves + c + 1, dtype=np.int64)
    part = np.empty((n_leaves + c) * n_levels, dtype=np.int64)
    # Runs of leaves that will be nodes: first leaf, last leaf but one, level, parent.
    waiting = np.empty((k + 1, 4), dtype=np.int64)
    n, n_nodes, n_parts = 0, 0, 0
    for i in range(c):
        first = n
        for position in range(k):
            j = network.order[position]
            if network.fraction[i, j] > 0:
                cell[n] = j
                leaf_of[i, j] = n
                n += 1
        n_waiting = 0
        if n > first:
            waiting[0, 0], waiting[0, 1], waiting[0, 2], waiting[0, 3] = first, n, 0, -1
            n_waiting = 1
        while n_waiting > 0:
            n_waiting -= 1
            a, b, level = waiting[n_waiting, 0], waiting[n_waiting, 1], waiting[n_waiting, 2]
            v = n_nodes
            parent[v], start[v], stop[v] = waiting[n_waiting, 3], a, b
            # Leaves of one node are neighbours, so comparing the first and the last suffices.
            while level < n_levels:
                if network.labels[level, cell[a]] != network.labels[level, cell[b - 1]]:
                    break
                part[n_parts] = node_of(network, level, i, cell[a])
                n_parts += 1
                level += 1
            n_nodes += 1
            first_part[n_nodes] = n_parts
            while a < b:
                end = a + 1
                if level < n_levels:
                    label = network.labels[level, cell[a]]
                    while end < b and network.labels[level, cell[end]] == label:
                        end += 1
                if end == a + 1:
                    leaf_parent[a] = v
                    for deeper in range(level, n_levels):
                        node = node_of(network, deeper, i, cell[a])
                        counted = network.counted[deeper]
                        leaf_cost[a] += marginal(
                            0, wanted[node], counted, network.low[node], network.high[node]
                        )
                else:
                    waiting[n_waiting, 0], waiting[n_waiting, 1] = a, end
                    waiting[n_waiting, 2], waiting[n_waiting, 3] = level, v
                    n_waiting += 1
                a = end
        first_leaf[i + 1], first_node[i + 1] = n, n_nodes
    return Trees(
        first_leaf,
        first_node,
        cell,
        leaf_parent,
        leaf_cost,
        parent[:n_nodes],
        start[:n_nodes],
        stop[:n_nodes],
        first_part[: n_nodes + 1],
        part[:n_parts],
        leaf_of,
        wanted,
        level_of,
    )


@njit(cache=True, nogil=True)
def step(network: Network, trees: Trees, v: int, n: int) -> int:
    """Cost of the step from n to n + 1 ones in node v of the network."""
    counted = network.counted[trees.level[v]]
    return marginal(n, trees.wanted[v], counted, network.low[v], network.high[v])


@njit(cache=True, nogil=True)
def choose(network: Network, trees: Trees, price: np.ndarray) -> np.ndarray:
    """The leaves that hold a one where every child is at its own optimum for the cells' prices.

    price : gain from a one in each cell; the groups' prices follow and are not read.

    The order in which leaves below a node get ones as their number grows is its children's orders
    merged by marginal cost: costs are convex, and trees are nested.
    """
    n_leaves = trees.cell.size
    cost, share = np.empty(n_leaves, dtype=np.int64), np.empty(n_leaves, dtype=np.int64)
    leaf, chosen = np.empty(n_leaves, dtype=np.int64), np.zeros(n_leaves, dtype=np.bool_)
    for a in range(n_leaves):
        cost[a], leaf[a] = trees.leaf_cost[a] - price[trees.cell[a]], a
    for i in range(network.fraction.shape[0]):
        for a in range(trees.first_leaf[i], trees.first_leaf[i + 1]):
            share[a] = -network.fraction[i, trees.cell[a]]
        for v in range(trees.first_node[i + 1] - 1, trees.first_node[i] - 1, -1):
            # By cost, then from large to small share; both sorts are stable.
            below = leaf[trees.start[v] : trees.stop[v]]
            by_share = below[np.argsort(share[below], kind="mergesort")]
            below[:] = by_share[np.argsort(cost[by_share], kind="mergesort")]
            for p in range(trees.first_part[v], trees.first_part[v + 1]):
                for n in range(trees.stop[v] - trees.start[v]):
                    cost[leaf[trees.start[v] + n]] += step(network, trees, trees.part[p], n)
    chosen[leaf] = cost[leaf] < 0
    return chosen


@njit(cache=True, nogil=True)
def price_node(network: Network, trees: Trees, state: State, v: int) -> None:
    """Update the costs of one more and one less in node v to its ones."""
    more, fewer = 0, 0
    for p in range(trees.first_part[v], trees.first_part[v + 1]):
        more += step(network, trees, trees.part[p], state.ones[v])
        fewer -= step(network, trees, trees.part[p], state.ones[v] - 1)
    state.more[v] = more
    state.fewer[v] = fewer


@njit(cache=True, nogil=True)
def first_state(network: Network, trees: Trees, chosen: np.ndarray) -> State:
    """Ones and costs of all nodes for the chosen leaves."""
    n_nodes = trees.parent.size
    ones = np.empty(n_nodes, dtype=np.int64)
    state = State(
        chosen, ones, np.empty(n_nodes, dtype=np.int64), np.empty(n_nodes, dtype=np.int64)
    )
    for v in range(n_nodes):
        ones[v] = np.count_nonzero(chosen[trees.start[v] : trees.stop[v]])
        price_node(network, trees, state, v)
    return state


MANY_LEAVES = 1 << 13
"""Number of leaves from which a pass begins with its own prices."""
ROUNDS = 40
"""Newton steps at most."""
NEAR = UNIT / 64
"""Distance of a leaf's cost from its price that counts as zero, for the slope of a step."""
LARGEST_STEP = UNIT / 2
HIGHEST = 16 * UNIT
"""Largest price; costs of leaving bounds are larger."""


@njit(cache=True, nogil=True)
def first_prices(network: Network, trees: Trees) -> np.ndarray:
    """Prices (k,) of the cells in units of 1 / UNIT."""
    k, n_nodes = network.residual.size, trees.parent.size
    order = np.argsort(trees.cell, kind="mergesort")
    first = np.searchsorted(trees.cell[order], np.arange(k + 1))
    cost, node = trees.leaf_cost[order].astype(np.float64), trees.leaf_parent[order]
    wanted = np.zeros(n_nodes)
    for i in range(network.fraction.shape[0]):
        for a in range(trees.first_leaf[i], trees.first_leaf[i + 1]):
            wanted[trees.leaf_parent[a]] += network.fraction[i, trees.cell[a]] / UNIT

    charge, price, best = np.zeros(n_nodes), np.zeros(k), np.zeros(k)
    # A node's steps are halved after an overshoot, and grow again otherwise.
    pace, last = np.ones(n_nodes), np.zeros(n_nodes)
    fewest = np.inf
    for _ in range(ROUNDS):
        held, near = np.zeros(n_nodes), np.zeros(n_nodes)
        for j in range(k):
            start, n = first[j], first[j + 1] - first[j]
            if n == 0:
                continue
            asked = cost[start : start + n] + charge[node[start : start + n]]
            ordered = np.sort(asked)
            n_ones = network.residual[j]
            if n_ones <= 0:
                price[j] = ordered[0] - UNIT
            elif n_ones >= n:
                price[j] = ordered[n - 1] + UNIT
            else:
                price[j] = (ordered[n_ones - 1] + ordered[n_ones]) / 2
            for m in range(n):
                held[node[start + m]] += asked[m] < price[j]
                near[node[start + m]] += abs(asked[m] - price[j]) < NEAR
        amiss = np.abs(held - wanted).sum()
        if amiss < fewest:
            fewest, best = amiss, price.copy()
        if amiss < np.count_nonzero(wanted) / 2:
            break
        over = held - wanted
        pace = np.where(over * last < 0, pace / 2, np.minimum(pace * 1.2, 1.0))
        last = over
        steps = pace * over * 2 * NEAR / np.maximum(near, 1.0)
        charge += np.minimum(np.maximum(steps, -LARGEST_STEP), LARGEST_STEP)
        charge -= charge.sum() / max(np.count_nonzero(wanted), 1)
    return np.minimum(np.maximum(best, -HIGHEST), HIGHEST).astype(np.int64)


HOPS = 1 << 12
"""Above the number of moves of any way, so that a length and a number of moves make one key."""
NO_PATH = 1 << 60
LONGEST = FORBIDDEN // 2 * HOPS
"""Above the length of any way that breaks no bound, times HOPS."""


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
def _values(network: Network, trees: Trees, chosen: np.ndarray) -> np.ndarray:
    """Ones (c, k) of the chosen leaves."""
    y = np.zeros(network.fraction.shape, dtype=np.int64)
    for i in range(network.fraction.shape[0]):
        first, last = trees.first_leaf[i], trees.first_leaf[i + 1]
        y[i][trees.cell[first:last]] = chosen[first:last]
    return y


@njit(cache=True, nogil=True)
def solve(network: Network) -> tuple[bool, np.ndarray, int]:
    """Choose a 0/1 value for every cell with a fractional part, at the least cost.

    Returns whether there is such a choice, ones of shape (c, k), and the number of ones moved.
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
        return False, y, 0

    excess = np.concatenate((-network.residual, network.group_residual))
    if n_cells > 0:
        excess[:n_cells] += y.sum(axis=0)
    for i in range(y.shape[0]):
        if network.group_of_child[i] >= 0:
            excess[n_cells + network.group_of_child[i]] -= y[i].sum()
    if excess.sum() != 0:
        return False, y, 0
    n_moved = 0
    if excess.any():
        n_moved = _balance(network, trees, state, excess, price)
        if n_moved < 0:
            return False, y, 0
        y = _values(network, trees, state.chosen)
    return True, y, n_moved

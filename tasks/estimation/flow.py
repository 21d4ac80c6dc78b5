"""Exact minimum-cost flow for the rounder, compiled, in integers.

The network has two layers. Each child has a tree: its root is the child's total, inner nodes are
the rows of nested queries, leaves its cells with a fractional part; a node that holds n ones costs
a convex function of n. Each cell's leaves of all children meet in one vertex, which must receive
exactly what the parent leaves over; the totals of children in a common group leave from another.

Only those outer vertices can be out of balance, so the successive shortest path algorithm runs on
them alone (Ahuja, Magnanti and Orlin 1993, chapter 9). An arc from v to w is the cheapest way for
any one child to take a one out of v and put it into w, which is read off the path between two
leaves of its tree. Every child starts at its own optimum, found greedily, which leaves a few dozen
units to move. Among the shortest paths one with the fewest arcs is taken: such a path never visits
a node of a tree twice, so the costs of its arcs add up.

Costs are integers in units of 1 / UNIT, so the optimum is exact and does not depend on the machine.
"""

from __future__ import annotations

import numpy as np
from numba import njit

UNIT = 1 << 24
"""Resolution of fractional parts and of costs."""
FORBIDDEN = 1 << 42
"""Cost of leaving a node's bounds: above any sum of real costs."""
NO_ARC = 1 << 60
HOPS = 1 << 12
"""Above the number of arcs of any path, so that a length and a number of arcs make one key."""

OPTIMAL, INFEASIBLE = 0, 1


@njit(cache=True, nogil=True)
def _marginal(n, wanted, counted, low, high):
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
def _price(
    start,
    stop,
    nodes,
    chosen,
    known,
    ones,
    wanted,
    counted,
    low,
    high,
    up,
    entering,
    leaving,
    changed,
):
    """Costs of a one entering or leaving each leaf of a child, from every ancestor's height.

    `entering[leaf, level]` sums the costs of one more in the leaf's nodes at `level` and below,
    `leaving` those of one less. Marks the leaves for which something changed.
    """
    n_levels = nodes.shape[0]
    for leaf in range(start, stop):
        changed[leaf] = chosen[leaf] != known[leaf]
        known[leaf] = chosen[leaf]
        more, fewer = 0, 0
        for level in range(n_levels - 1, -1, -1):
            v = nodes[level, leaf]
            n = ones[v]
            up[v] = _marginal(n, wanted[v], counted[level], low[v], high[v])
            more += up[v]
            fewer -= _marginal(n - 1, wanted[v], counted[level], low[v], high[v])
            if entering[leaf, level] != more or leaving[leaf, level] != fewer:
                entering[leaf, level] = more
                leaving[leaf, level] = fewer
                changed[leaf] = True


@njit(cache=True, nogil=True)
def solve(
    fraction,
    labels,
    level_starts,
    counted,
    low,
    high,
    order,
    residual,
    has_parent,
    group_of_child,
    group_residual,
):
    """Choose a 0/1 value for every cell with a fractional part, at the least cost.

    fraction : (c, k) fractional parts in units of 1 / UNIT; a cell with 0 stays 0.
    labels : (n_levels, k) nested labellings, coarsest first: the node of each cell.
    level_starts : (n_levels + 1,) number of a level's first node; node of child i and label r at
        level l is level_starts[l] + i * (size of the level) + r.
    counted : (n_levels,) whether the level belongs to the objective.
    low, high : bounds on the number of ones in every node.
    order : (k,) the cells ordered so that those of one node are neighbours at every level.
    residual : (k,) number of ones in each cell over all children, if has_parent.
    group_of_child, group_residual : (c,) group of each child or -1, number of ones in each group.

    Returns (status, ones of shape (c, k), objective in units of 1 / UNIT, paths).
    """
    c, k = fraction.shape
    n_levels = labels.shape[0]
    n_groups = group_residual.size
    n_nodes = low.size
    n_leaves = 0
    leaf_of = np.full((c, k), -1, dtype=np.int32)
    first_leaf = np.zeros(c + 1, dtype=np.int64)
    for i in range(c):
        for j in order:
            if fraction[i, j] > 0:
                leaf_of[i, j] = n_leaves
                n_leaves += 1
        first_leaf[i + 1] = n_leaves
    cell = np.empty(n_leaves, dtype=np.int64)
    nodes = np.empty((n_levels, n_leaves), dtype=np.int64)
    wanted = np.zeros(n_nodes, dtype=np.int64)
    for i in range(c):
        for j in range(k):
            leaf = leaf_of[i, j]
            if leaf < 0:
                continue
            cell[leaf] = j
            for level in range(n_levels):
                width = (level_starts[level + 1] - level_starts[level]) // c
                v = level_starts[level] + i * width + labels[level, j]
                nodes[level, leaf] = v
                wanted[v] += fraction[i, j]

    chosen = np.zeros(n_leaves, dtype=np.bool_)
    known = np.zeros(n_leaves, dtype=np.bool_)
    ones = np.zeros(n_nodes, dtype=np.int64)
    up = np.zeros(n_nodes, dtype=np.int64)
    entering = np.zeros((n_leaves, n_levels + 1), dtype=np.int64)
    leaving = np.zeros((n_leaves, n_levels + 1), dtype=np.int64)
    changed = np.zeros(n_leaves, dtype=np.bool_)
    shared = np.zeros(n_leaves, dtype=np.int64)
    for i in range(c):
        for leaf in range(first_leaf[i], first_leaf[i + 1] - 1):
            while (
                shared[leaf] < n_levels
                and nodes[shared[leaf], leaf] == nodes[shared[leaf], leaf + 1]
            ):
                shared[leaf] += 1
    y = np.zeros((c, k), dtype=np.int64)
    for i in range(c):
        start, stop = first_leaf[i], first_leaf[i + 1]
        for leaf in range(start, stop):
            for level in range(n_levels):
                v = nodes[level, leaf]
                up[v] = _marginal(0, wanted[v], counted[level], low[v], high[v])
        # Greedy addition is optimal for every number of ones: the costs are M-natural-convex.
        while True:
            best, best_cost, best_fraction = -1, 0, 0
            for leaf in range(first_leaf[i], first_leaf[i + 1]):
                if chosen[leaf]:
                    continue
                cost = 0
                for level in range(n_levels):
                    cost += up[nodes[level, leaf]]
                share = fraction[i, cell[leaf]]
                if cost < best_cost or (cost == best_cost and best >= 0 and share > best_fraction):
                    best, best_cost, best_fraction = leaf, cost, share
            if best < 0:
                break
            chosen[best] = True
            for level in range(n_levels):
                v = nodes[level, best]
                ones[v] += 1
                up[v] = _marginal(ones[v], wanted[v], counted[level], low[v], high[v])
        _price(
            start,
            stop,
            nodes,
            chosen,
            known,
            ones,
            wanted,
            counted,
            low,
            high,
            up,
            entering,
            leaving,
            changed,
        )
    for v in range(n_nodes):
        if ones[v] < low[v] or ones[v] > high[v]:
            return INFEASIBLE, y, 0, 0

    n_cells = k if has_parent else 0
    n_vertices = n_cells + n_groups
    excess = np.zeros(n_vertices, dtype=np.int64)
    for j in range(n_cells):
        excess[j] = -residual[j]
    for g in range(n_groups):
        excess[n_cells + g] = group_residual[g]
    for i in range(c):
        for leaf in range(first_leaf[i], first_leaf[i + 1]):
            if chosen[leaf]:
                if has_parent:
                    excess[cell[leaf]] += 1
                if group_of_child[i] >= 0:
                    excess[n_cells + group_of_child[i]] -= 1
    to_move = 0
    for v in range(n_vertices):
        to_move += abs(excess[v])
    if excess.sum() != 0:
        return INFEASIBLE, y, 0, 0

    paths = 0
    if to_move > 0:
        arc = np.full((n_vertices, n_vertices), NO_ARC, dtype=np.int64)
        owner = np.full((n_vertices, n_vertices), -1, dtype=np.int32)
        for i in range(c):
            _refresh(
                i,
                c,
                n_cells,
                first_leaf,
                leaf_of,
                cell,
                shared,
                chosen,
                entering,
                leaving,
                changed,
                group_of_child,
                arc,
                owner,
                False,
            )
        potential = np.zeros(n_vertices, dtype=np.int64)
        key = np.empty(n_vertices, dtype=np.int64)
        before = np.empty(n_vertices, dtype=np.int64)
        pending = np.empty(n_vertices, dtype=np.int64)
        touched = np.zeros(c, dtype=np.bool_)
        while to_move > 0:
            # Dijkstra on keys that order by length, then by number of arcs.
            n_pending = n_vertices
            place = -1
            for v in range(n_vertices):
                key[v] = 0 if excess[v] > 0 else NO_ARC
                before[v] = -1
                pending[v] = v
                if place < 0 and excess[v] > 0:
                    place = v
            goal = -1
            while place >= 0 and key[pending[place]] < NO_ARC:
                v = pending[place]
                if excess[v] < 0:
                    goal = v
                    break
                n_pending -= 1
                pending[place] = pending[n_pending]
                place = -1
                least = NO_ARC
                base = key[v] + potential[v] * HOPS + 1
                for p in range(n_pending):
                    w = pending[p]
                    if arc[v, w] < FORBIDDEN // 2:
                        length = base + (arc[v, w] - potential[w]) * HOPS
                        if length < key[w]:
                            key[w] = length
                            before[w] = v
                    if key[w] < least:
                        least = key[w]
                        place = p
            if goal < 0:
                return INFEASIBLE, y, 0, paths
            reach = key[goal] // HOPS
            for v in range(n_vertices):
                potential[v] += min(key[v] // HOPS, reach)
            paths += 1
            to_move -= 2
            excess[goal] += 1
            w = goal
            touched[:] = False
            while before[w] >= 0:
                v = before[w]
                i = owner[v, w]
                touched[i] = True
                if v < n_cells:
                    _set(leaf_of[i, v], False, chosen, nodes, ones)
                if w < n_cells:
                    _set(leaf_of[i, w], True, chosen, nodes, ones)
                w = v
            excess[w] -= 1
            for i in range(c):
                if touched[i]:
                    _price(
                        first_leaf[i],
                        first_leaf[i + 1],
                        nodes,
                        chosen,
                        known,
                        ones,
                        wanted,
                        counted,
                        low,
                        high,
                        up,
                        entering,
                        leaving,
                        changed,
                    )
            for i in range(c):
                if touched[i]:
                    _refresh(
                        i,
                        c,
                        n_cells,
                        first_leaf,
                        leaf_of,
                        cell,
                        shared,
                        chosen,
                        entering,
                        leaving,
                        changed,
                        group_of_child,
                        arc,
                        owner,
                        True,
                    )

    objective = 0
    for level in range(n_levels):
        if counted[level]:
            for v in range(level_starts[level], level_starts[level + 1]):
                whole = wanted[v] // UNIT
                n = ones[v]
                objective -= UNIT * min(n, whole)
                if n > whole:
                    objective += UNIT - 2 * (wanted[v] - whole * UNIT) + UNIT * (n - whole - 1)
    for i in range(c):
        for leaf in range(first_leaf[i], first_leaf[i + 1]):
            y[i, cell[leaf]] = chosen[leaf]
    return OPTIMAL, y, objective, paths


@njit(cache=True, nogil=True)
def _set(leaf, value, chosen, nodes, ones):
    chosen[leaf] = value
    for level in range(nodes.shape[0]):
        ones[nodes[level, leaf]] += 1 if value else -1


@njit(cache=True, nogil=True, inline="always")
def _cheapest(v, w, level, leaf_of, chosen, entering, leaving, arc, owner):
    """Find the child that moves a one from cell v to cell w at the least cost.

    `level` is the number of levels the two cells share, in any child.
    """
    arc[v, w] = NO_ARC
    owner[v, w] = -1
    for i in range(leaf_of.shape[0]):
        a, b = leaf_of[i, v], leaf_of[i, w]
        if a >= 0 and b >= 0 and chosen[a] and not chosen[b]:
            cost = leaving[a, level] + entering[b, level]
            if cost < arc[v, w]:
                arc[v, w] = cost
                owner[v, w] = i


@njit(cache=True, nogil=True)
def _refresh(
    i,
    c,
    n_cells,
    first_leaf,
    leaf_of,
    cell,
    shared,
    chosen,
    entering,
    leaving,
    changed,
    group_of_child,
    arc,
    owner,
    rescan,
):
    """Bring the arcs up to date with the state of child i.

    The cost of a swap is read off the path between two leaves: its height is the least number of
    levels that neighbours between them share.
    """
    start, stop = first_leaf[i], first_leaf[i + 1]
    n_levels = entering.shape[1] - 1
    if n_cells > 0:
        for a in range(start, stop):
            v = cell[a]
            level = n_levels
            for b in range(a + 1, stop):
                level = min(level, shared[b - 1])
                if rescan and not (changed[a] or changed[b]):
                    continue
                w = cell[b]
                there, back = NO_ARC, NO_ARC
                if chosen[a] and not chosen[b]:
                    there = leaving[a, level] + entering[b, level]
                elif chosen[b] and not chosen[a]:
                    back = leaving[b, level] + entering[a, level]
                if there < arc[v, w]:
                    arc[v, w] = there
                    owner[v, w] = i
                elif rescan and owner[v, w] == i and there > arc[v, w]:
                    _cheapest(v, w, level, leaf_of, chosen, entering, leaving, arc, owner)
                if back < arc[w, v]:
                    arc[w, v] = back
                    owner[w, v] = i
                elif rescan and owner[w, v] == i and back > arc[w, v]:
                    _cheapest(w, v, level, leaf_of, chosen, entering, leaving, arc, owner)
    group = group_of_child[i]
    if group < 0:
        return
    g = n_cells + group
    for a in range(start, stop):
        v = cell[a]
        out = leaving[a, 0] if chosen[a] else NO_ARC
        into = NO_ARC if chosen[a] else entering[a, 0]
        if out < arc[v, g]:
            arc[v, g] = out
            owner[v, g] = i
        elif rescan and owner[v, g] == i and out > arc[v, g]:
            arc[v, g] = NO_ARC
            owner[v, g] = -1
            for other in range(c):
                leaf = leaf_of[other, v]
                if leaf >= 0 and group_of_child[other] == group and chosen[leaf]:
                    if leaving[leaf, 0] < arc[v, g]:
                        arc[v, g] = leaving[leaf, 0]
                        owner[v, g] = other
        if into < arc[g, v]:
            arc[g, v] = into
            owner[g, v] = i
        elif rescan and owner[g, v] == i and into > arc[g, v]:
            arc[g, v] = NO_ARC
            owner[g, v] = -1
            for other in range(c):
                leaf = leaf_of[other, v]
                if leaf >= 0 and group_of_child[other] == group and not chosen[leaf]:
                    if entering[leaf, 0] < arc[g, v]:
                        arc[g, v] = entering[leaf, 0]
                        owner[g, v] = other

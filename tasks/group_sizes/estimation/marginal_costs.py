"""Sharing an integer among siblings: the closest non-negative integers with a given sum.

Minimising the sum of (x_i - a_i)^2 over integers x_i >= 0 that add to X takes units at growing
marginal costs. Sibling i's units cost 1 - 2 a_i, 3 - 2 a_i, 5 - 2 a_i, ...: the same odd numbers
2 t - 1 for all siblings, shifted by integers. Hence up to a level t every sibling holds
max(0, a_i + t) units, and the merged list of marginal costs need not be written down: with the a_i
in descending order and prefix sums A_m, the m largest take part while
A_m + m t <= X, up to the breakpoint A_m - m a_{m+1} at which the next one joins.

The exact hierarchical program, by marginal costs merged up the tree of regions.

Model 1 of [GroupSizes2021]: integers x[v, s] >= 0 for every region v and size s, as close as
possible to noisy counts a[v, s],

    minimise  sum w_level (x[v, s] - a[v, s])^2
    such that x[v, s] = sum of x[c, s] over v's children c, and the root's x add to the total.

The cost of a subtree as a function of its count is convex, and adding one unit at a time to the
cheapest descendant keeps a subtree optimal (its Lemma 5; such costs are M-natural-convex, see
[DiscreteConvex2003]). Its Algorithm 1 writes down the sorted marginal costs of every
subtree. Here none is written down:

- Siblings of the finest level have marginal costs in closed form (`water_level`), which leaves one
  variable for each size and region of the level above.
- These are found in steps that start large and are halved until they are 1. At each step length,
  subtrees are made optimal from the bottom up: while a step is cheaper with one child than with
  another, it moves. Each region keeps its children in two tournaments, by the cost of the next
  step up and of the next one down, so that a move takes logarithmic time.

At length 1 no exchange between children of any region pays, nor does one between sizes, and that
is the optimality condition of the integer program. A pass over n counts takes about n log n
operations on integers, and there are as many passes as counts have binary digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from ..ingest.regions import RegionHierarchy


@dataclass(frozen=True, eq=False)
class Rows:
    """The regions of the level at `depth` have `totals` groups each, which is public."""

    depth: int
    totals: np.ndarray

    def bounds(self, hierarchy: RegionHierarchy) -> list[np.ndarray]:
        """For each level the number of groups of its regions, or below the rows that of their
        regions."""
        bounds = []
        for depth in range(len(hierarchy.levels)):
            if depth < self.depth:
                within = hierarchy.ancestors(depth, self.depth)
                bounds.append(np.bincount(within, self.totals).astype(np.int64))
            else:
                bounds.append(self.totals[hierarchy.ancestors(self.depth, depth)])
        return bounds


@dataclass(frozen=True, eq=False)
class Program:
    """Noisy vectors of a hierarchy, and what is public, of which counts are found.

    noisy : of each level, root first, the noisy vector that the mechanism measures, (n, n_sizes).
    total : the public number of groups.
    weights : integer weight of each level's squared distances (`plan.level_weights`), positive at
        the finest level; 0 for a level that was not measured.
    rows : public numbers of groups by region, for the mechanisms of `plan.KEEP_ROWS`.
    """

    noisy: Sequence[np.ndarray]
    hierarchy: RegionHierarchy
    total: int
    weights: Sequence[int]
    rows: Rows | None = None


UNBOUNDED = np.int64(1) << 61
"""Breakpoint after the last sibling: any number of units."""


@njit(cache=True, nogil=True)
def sort_segment(
    noisy: np.ndarray, start: int, stop: int, prefix: np.ndarray, breakpoint_: np.ndarray
) -> None:
    """Prepare the siblings noisy[start:stop] for `unit_level`.

    Writes the prefix sums of their values in descending order, and the breakpoints.
    """
    values = np.sort(noisy[start:stop])
    n = stop - start
    total = np.int64(0)
    for m in range(n):
        value = values[n - 1 - m]
        total += value
        prefix[start + m] = total
        if m + 1 < n:
            breakpoint_[start + m] = total - (m + 1) * values[n - 2 - m]
        else:
            breakpoint_[start + m] = UNBOUNDED


@njit(cache=True, nogil=True)
def unit_level(
    unit: int, start: int, stop: int, prefix: np.ndarray, breakpoint_: np.ndarray
) -> int:
    """The level t of the `unit`-th unit (from 1): its marginal cost is 2 t - 1."""
    low, high = start, stop - 1
    while low < high:
        middle = (low + high) // 2
        if breakpoint_[middle] >= unit:
            high = middle
        else:
            low = middle + 1
    m = low - start + 1
    return -((prefix[low] - unit) // m)


@njit(cache=True, nogil=True)
def fill(
    noisy: np.ndarray, start: int, stop: int, total: int, level: int, first: int, result: np.ndarray
) -> None:
    """Write the siblings' integers, which add to `total`, whose last unit has that level.

    Units that cost the same go to siblings by position, beginning with the `first`-th.
    """
    left = total
    for i in range(start, stop):
        result[i] = max(np.int64(0), noisy[i] + level - 1) if total > 0 else np.int64(0)
        left -= result[i]
    n = stop - start
    for j in range(n):
        if left == 0:
            break
        i = start + (first + j) % n
        if noisy[i] + level >= 1:
            result[i] += 1
            left -= 1


@njit(cache=True, nogil=True)
def _share_out(
    noisy: np.ndarray,
    offsets: np.ndarray,
    totals: np.ndarray,
    first: np.ndarray,
    result: np.ndarray,
) -> None:
    prefix = np.empty_like(noisy)
    breakpoint_ = np.empty_like(noisy)
    for family in range(offsets.size - 1):
        start, stop = offsets[family], offsets[family + 1]
        sort_segment(noisy, start, stop, prefix, breakpoint_)
        level = unit_level(totals[family], start, stop, prefix, breakpoint_)
        fill(noisy, start, stop, totals[family], level, first[family], result)


def share_out(
    noisy: np.ndarray, offsets: np.ndarray, totals: np.ndarray, first: np.ndarray | None = None
) -> np.ndarray:
    """Integers of every family that add to its total and are closest to `noisy`, shape `(n,)`.

    Family f has the siblings offsets[f] up to offsets[f + 1], at least one. Ties go to siblings by
    position from the first[f]-th on, by default from the 0th. n log n.

    >>> share_out(np.array([3, -1, 1]), np.array([0, 3]), np.array([5])).tolist()
    [4, 0, 1]
    """
    result = np.empty(len(noisy), dtype=np.int64)
    if first is None:
        first = np.zeros(len(totals), dtype=np.int64)
    noisy, offsets, totals = (np.ascontiguousarray(a, np.int64) for a in (noisy, offsets, totals))
    _share_out(noisy, offsets, totals, first, result)
    return result


NEVER = np.int64(1) << 60
"""Cost of a step that is not possible, because a count would be negative."""
LARGEST_COST = 1 << 58
"""Marginal costs, summed over levels, stay below this."""


class _Tree(NamedTuple):
    """Counts above the finest level: a node for each size and region, and the root for the total.

    Nodes are numbered level by level, within a level by size and then by region; the root comes
    last. A node's children are `n_children` nodes from `first_child` on, or for nodes of the bottom
    level as many entries of `noisy_leaf`, the noisy counts of the finest level. Ties go to children
    by position, the `favoured`-th first.
    """

    level_start: np.ndarray
    first_child: np.ndarray
    n_children: np.ndarray
    parent: np.ndarray
    favoured: np.ndarray
    weight: np.ndarray
    noisy: np.ndarray
    noisy_leaf: np.ndarray
    leaf_weight: int


class _State(NamedTuple):
    """State of the search: counts held, and each node's cost per unit of a step up and down.

    A node's tournaments are at `board`: the overall winner first, from 1 on; the children at
    `places` and after, a power of two; -1 where there is no child. `prefix` and `breakpoint_` are
    defined by `water_level`.
    """

    held: np.ndarray
    cost_up: np.ndarray
    cost_down: np.ndarray
    board: np.ndarray
    places: np.ndarray
    winner_up: np.ndarray
    winner_down: np.ndarray
    prefix: np.ndarray
    breakpoint_: np.ndarray


def hierarchical_optimum(program: Program) -> np.ndarray:
    """Group sizes of the finest regions, (n_leaves, n_sizes), that solve a program exactly whose
    noisy vectors are counts, without public numbers by region.

    Counts of coarser regions are sums of the result. Among optima, ties go to regions by position,
    beginning with another one for each size, so that none is favoured. Raises OverflowError if
    costs could leave 64 bits.
    """
    noisy, total = program.noisy, program.total
    largest = max(float(np.abs(level).max()) for level in noisy) + total
    if 8 * largest * sum(program.weights) >= LARGEST_COST:
        raise OverflowError("the weighted noisy counts do not fit 64 bits")
    n_sizes = noisy[0].shape[1]
    if len(noisy) == 1:
        return share_out(noisy[0][0], np.array([0, n_sizes]), np.array([total])).reshape(1, -1)
    tree = _tree(program)
    leaves = _solve(total, tree, _initial_state(tree))
    return np.ascontiguousarray(leaves.reshape(n_sizes, -1).T)


def _tree(program: Program) -> _Tree:
    noisy, hierarchy, weights = program.noisy, program.hierarchy, program.weights
    n_sizes = noisy[0].shape[1]
    n_regions = hierarchy.n_regions[:-1]
    level_start = np.concatenate([[0], np.cumsum(np.array(n_regions) * n_sizes)])
    n_nodes = int(level_start[-1]) + 1
    first_child = np.zeros(n_nodes, dtype=np.int64)
    n_children = np.zeros(n_nodes, dtype=np.int64)
    parent = np.full(n_nodes, n_nodes - 1, dtype=np.int64)
    favoured = np.zeros(n_nodes, dtype=np.int64)
    weight = np.zeros(n_nodes, dtype=np.int64)
    values = np.zeros(n_nodes, dtype=np.int64)
    size = np.arange(n_sizes)[:, None]
    for depth in range(len(n_regions)):
        nodes = slice(level_start[depth], level_start[depth + 1])
        offsets = hierarchy.children(depth)
        children = np.diff(offsets)
        weight[nodes] = weights[depth]
        values[nodes] = noisy[depth].T.reshape(-1)
        n_children[nodes] = np.tile(children, n_sizes)
        favoured[nodes] = (size % children).reshape(-1)
        below = size * hierarchy.n_regions[depth + 1] + offsets[:-1]
        is_bottom = depth + 1 == len(n_regions)
        first_child[nodes] = (below + (0 if is_bottom else level_start[depth + 1])).reshape(-1)
        if depth:
            above = size * n_regions[depth - 1] + hierarchy.levels[depth].parent
            parent[nodes] = (level_start[depth - 1] + above).reshape(-1)
    n_children[-1] = n_sizes
    return _Tree(
        level_start.astype(np.int64),
        first_child,
        n_children,
        parent,
        favoured,
        weight,
        values,
        np.ascontiguousarray(noisy[-1].T, dtype=np.int64).reshape(-1),
        int(weights[-1]),
    )


def _initial_state(tree: _Tree) -> _State:
    n_nodes = len(tree.parent)
    places = 1 << np.ceil(np.log2(np.maximum(tree.n_children, 1))).astype(np.int64)
    board = np.cumsum(2 * places) - 2 * places
    nothing = np.full(2 * int(places.sum()), -1, dtype=np.int64)
    return _State(
        held=np.zeros(n_nodes, np.int64),
        cost_up=np.zeros(n_nodes, np.int64),
        cost_down=np.zeros(n_nodes, np.int64),
        board=board,
        places=places,
        winner_up=nothing,
        winner_down=nothing.copy(),
        prefix=np.empty_like(tree.noisy_leaf),
        breakpoint_=np.empty_like(tree.noisy_leaf),
    )


@njit(cache=True, nogil=True)
def _solve(total: int, tree: _Tree, state: _State) -> np.ndarray:
    """Counts of the finest level, laid out as `noisy_leaf`."""
    count = state.held
    root = count.size - 1
    bottom, bottom_stop = tree.level_start[-2], tree.level_start[-1]
    for v in range(bottom, bottom_stop):
        start, stop = tree.first_child[v], tree.first_child[v] + tree.n_children[v]
        sort_segment(tree.noisy_leaf, start, stop, state.prefix, state.breakpoint_)
        count[v] = max(np.int64(0), tree.noisy[v])
    for v in range(bottom_stop - 1, -1, -1):
        count[tree.parent[v]] += count[v]
    # A longer step than this could neither be given away nor be missing from the total.
    away = abs(total - count[root])
    for v in range(bottom, bottom_stop):
        away = max(away, count[v])
    step = np.int64(1)
    while step < away:
        step *= 2
    while step:
        for v in range(bottom, bottom_stop):
            _price_bottom(v, step, tree, state)
        for depth in range(tree.level_start.size - 3, -1, -1):
            for v in range(tree.level_start[depth], tree.level_start[depth + 1]):
                _exchange(v, step, tree, state)
                _price_node(v, step, tree, state)
        _exchange(root, step, tree, state)
        _approach(total, step, tree, state)
        step //= 2

    result = np.empty_like(tree.noisy_leaf)
    for v in range(bottom, bottom_stop):
        start, stop = tree.first_child[v], tree.first_child[v] + tree.n_children[v]
        level = unit_level(count[v], start, stop, state.prefix, state.breakpoint_)
        fill(tree.noisy_leaf, start, stop, count[v], level, tree.favoured[v], result)
    return result


@njit(cache=True, nogil=True)
def _exchange(v: int, step: np.int64, tree: _Tree, state: _State) -> None:
    """Play a node's tournaments, then move steps between its children while that pays."""
    first, n = tree.first_child[v], tree.n_children[v]
    base, places = state.board[v], state.places[v]
    for j in range(n):
        child = first + (j + tree.favoured[v]) % n
        state.winner_up[base + places + j] = child
        state.winner_down[base + places + j] = child
    for place in range(places - 1, 0, -1):
        _play(base, place, state.winner_up, state.cost_up)
        _play(base, place, state.winner_down, state.cost_down)
    while True:
        taker, giver = state.winner_up[base + 1], state.winner_down[base + 1]
        if state.cost_up[taker] + state.cost_down[giver] >= 0:
            break
        _move(taker, step, step, v, tree, state)
        _move(giver, -step, step, v, tree, state)


@njit(cache=True, nogil=True)
def _approach(total: int, step: np.int64, tree: _Tree, state: _State) -> None:
    """Add or take steps at the root until it is less than one away from the total."""
    root = state.held.size - 1
    top = state.board[root] + 1
    while abs(total - state.held[root]) >= step:
        if total > state.held[root]:
            child, change = state.winner_up[top], step
        else:
            child, change = state.winner_down[top], -step
            if state.cost_down[child] >= NEVER:
                break
        state.held[root] += change
        _move(child, change, step, root, tree, state)


@njit(cache=True, nogil=True)
def _move(
    v: int, change: np.int64, step: np.int64, ancestor: int, tree: _Tree, state: _State
) -> None:
    """Add `change`, a step up or down, to a node and its cheapest descendants.

    Prices and tournaments are updated from there up to those of `ancestor`, the parent of v.
    """
    bottom = tree.level_start[-2]
    winner = state.winner_up if change > 0 else state.winner_down
    while v < bottom:
        state.held[v] += change
        v = winner[state.board[v] + 1]
    state.held[v] += change
    _price_bottom(v, step, tree, state)
    while True:
        above = tree.parent[v]
        base, n = state.board[above], tree.n_children[above]
        place = state.places[above] + (v - tree.first_child[above] - tree.favoured[above]) % n
        while place > 1:
            place //= 2
            _play(base, place, state.winner_up, state.cost_up)
            _play(base, place, state.winner_down, state.cost_down)
        if above == ancestor:
            return
        v = above
        _price_node(v, step, tree, state)


@njit(cache=True, nogil=True)
def _play(base: int, place: int, winner: np.ndarray, cost: np.ndarray) -> None:
    """Decide one match; the left side wins ties, and empty places lose."""
    left, right = winner[base + 2 * place], winner[base + 2 * place + 1]
    winner[base + place] = left if right < 0 or cost[left] <= cost[right] else right


@njit(cache=True, nogil=True)
def _price_bottom(v: int, step: np.int64, tree: _Tree, state: _State) -> None:
    """Cost per unit of a step of a bottom node, up and down.

    Among a step's units below, the middle one represents all. At length 1 that is exact, and at any
    length the cost never falls as the count grows.
    """
    start, stop = tree.first_child[v], tree.first_child[v] + tree.n_children[v]
    n, middle = state.held[v], (step + 1) // 2
    own = 2 * (n - tree.noisy[v])
    below = 2 * unit_level(n + middle, start, stop, state.prefix, state.breakpoint_) - 1
    state.cost_up[v] = tree.weight[v] * (own + step) + tree.leaf_weight * below
    if n < step:
        state.cost_down[v] = NEVER
    else:
        unit = n - step + middle
        below = 2 * unit_level(unit, start, stop, state.prefix, state.breakpoint_) - 1
        state.cost_down[v] = -tree.weight[v] * (own - step) - tree.leaf_weight * below


@njit(cache=True, nogil=True)
def _price_node(v: int, step: np.int64, tree: _Tree, state: _State) -> None:
    """Cost per unit of a step of a node above the bottom: its own and its cheapest child's."""
    top = state.board[v] + 1
    own = 2 * (state.held[v] - tree.noisy[v])
    state.cost_up[v] = tree.weight[v] * (own + step) + state.cost_up[state.winner_up[top]]
    below = state.cost_down[state.winner_down[top]]
    if below >= NEVER:
        state.cost_down[v] = NEVER
    else:
        state.cost_down[v] = below - tree.weight[v] * (own - step)

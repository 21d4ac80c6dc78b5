"""Prices of the cells from which a large rounding pass begins, compiled.

Without a parent each node above cells would take its cheapest ones. With one, a cell takes as many
as it must from the nodes that ask least for it: its leaf's cost plus a charge of the node. Charges
under which every node gets about as many ones as its fractional parts sum to are found by Newton
steps on each charge alone, damped; the price of a cell is the sum at which it has what it must.
From there only what the steps left is moved exactly: the optimum is the same where it is unique.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .flow_trees import UNIT, Network, Trees

MANY_LEAVES = 1 << 18
"""Leaves from which on a pass begins with prices of its own."""
ROUNDS = 40
"""Newton steps at most."""
NEAR = UNIT / 64
"""How near to its price a leaf's cost counts as being there, for the slope of a step."""
LARGEST_STEP = UNIT / 2
HIGHEST = 16 * UNIT
"""Prices are no larger; costs that leave bounds are."""


@njit(cache=True, nogil=True)
def first_prices(network: Network, trees: Trees) -> np.ndarray:
    """Prices (k,) of the cells in units of 1 / UNIT."""
    k, n_leaves, n_nodes = network.residual.size, trees.cell.size, trees.parent.size
    first = np.zeros(k + 1, dtype=np.int64)
    for a in range(n_leaves):
        first[trees.cell[a] + 1] += 1
    largest = first.max()
    for j in range(k):
        first[j + 1] += first[j]
    cost, node = np.empty(n_leaves), np.empty(n_leaves, dtype=np.int64)
    filled = first[:k].copy()
    wanted = np.zeros(n_nodes)
    for i in range(network.fraction.shape[0]):
        for a in range(trees.first_leaf[i], trees.first_leaf[i + 1]):
            j, v = trees.cell[a], trees.leaf_parent[a]
            cost[filled[j]], node[filled[j]] = trees.leaf_cost[a], v
            filled[j] += 1
            wanted[v] += network.fraction[i, j] / UNIT

    charge, price, best = np.zeros(n_nodes), np.zeros(k), np.zeros(k)
    # A node's steps are halved where they have gone too far, and grow again where they have not.
    pace, last = np.ones(n_nodes), np.zeros(n_nodes)
    asked = np.empty(largest)
    fewest = np.inf
    for _ in range(ROUNDS):
        held, near = np.zeros(n_nodes), np.zeros(n_nodes)
        for j in range(k):
            start, n = first[j], first[j + 1] - first[j]
            if n == 0:
                continue
            for m in range(n):
                asked[m] = cost[start + m] + charge[node[start + m]]
            ordered = np.sort(asked[:n])
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
            fewest = amiss
            for j in range(k):
                best[j] = price[j]
        if amiss < np.count_nonzero(wanted) / 2:
            break
        for v in range(n_nodes):
            over = held[v] - wanted[v]
            pace[v] = pace[v] / 2 if over * last[v] < 0 else min(pace[v] * 1.2, 1.0)
            last[v] = over
            step = pace[v] * over * 2 * NEAR / max(near[v], 1.0)
            charge[v] += min(max(step, -LARGEST_STEP), LARGEST_STEP)
        charge -= charge.sum() / max(np.count_nonzero(wanted), 1)
    prices = np.empty(k, dtype=np.int64)
    for j in range(k):
        prices[j] = min(max(best[j], -HIGHEST), HIGHEST)
    return prices

"""The mechanisms for trips, and how far one person's trips move the counts of a level.

Neighbouring tables differ in one person: changed (bounded) or added or removed (unbounded). A
person makes m trips, or up to m; at a level with counts a before and b after, a and b being the
person's own counts, the squared sensitivity is the largest |a - b|^2.

- Any trips: a person may put all m into one node, so |a - b|^2 <= m^2 unbounded, 2 m^2 bounded.
- Distinct trips, at most one a leaf: a node has at most as many of them as leaves. |a|^2 is largest
  if the m trips fill the nodes with most leaves one after the other; bounded neighbours reach at
  most twice that. At the leaves this is m, or 2 m; further up the trips of one person may all be in
  one node, so that the m^2 of the general case returns as soon as a node has m leaves.
- The root: a person who is added or removed moves it by up to m. Changing a person moves it only
  if the number of trips is free, by up to m; if everybody makes exactly m, the total is m times
  the number of persons and does not move.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .tree import Tree

INFTDA = "inftda"
"""Top-down with the integer Chebyshev projection of Algorithm 2 in [InfTDA2024]."""

TDA_L2 = "tda_l2"
"""Top-down with the exact integer L2 projection."""

TDA_CHEBYSHEV = "tda_chebyshev"
"""Top-down with any Chebyshev minimiser, as a general solver finds it."""

FULL_INFORMATION = "inftda_full_information"
"""All levels' measurements combined by least squares on the tree, then projected top-down."""

GAUSSIAN_LEAVES = "gaussian_leaves"
"""Discrete Gaussian noise on every leaf, positive or not."""

STABILITY_HISTOGRAM = "stability_histogram"
"""Discrete Laplace noise on positive leaves, suppressed below a threshold."""

TOP_DOWN = (INFTDA, TDA_L2, TDA_CHEBYSHEV, FULL_INFORMATION)
"""Those whose estimates are consistent and not negative, with an exact invariant root."""

CHEBYSHEV = "chebyshev"


@dataclass(frozen=True)
class Contribution:
    """Definition of neighbouring tables.

    is_bounded : one person is changed; otherwise one is added or removed.
    trips : m, the most trips of a person.
    are_distinct : no person has two trips in one leaf.
    is_exact : every person makes exactly m trips.
    """

    is_bounded: bool = True
    trips: int = 1
    are_distinct: bool = False
    is_exact: bool = True

    @property
    def has_invariant_total(self) -> bool:
        """Whether neighbouring tables have the same number of trips."""
        return self.is_bounded and self.is_exact


def squared_sensitivity(tree: Tree, level: int, contribution: Contribution) -> int:
    """Upper bound on |a - b|^2 at a level, attained where the tree has room for it.

    It is 0 where neighbouring tables cannot differ: at an invariant root.
    """
    m = contribution.trips
    if level == 0:
        return 0 if contribution.has_invariant_total else m * m
    own = _filled_squares(largest_leaf_counts(tree, level, m), m)
    if not contribution.are_distinct:
        own = m * m
    return 2 * own if contribution.is_bounded else own


def l1_sensitivity(contribution: Contribution) -> int:
    """The largest sum |a - b| at the leaves: m trips added or removed, or m of each."""
    return contribution.trips * (2 if contribution.is_bounded else 1)


def _filled_squares(capacities: list[int], trips: int) -> int:
    """The largest sum of squares of at most `trips` trips in nodes of these capacities."""
    squares = 0
    for capacity in capacities:
        inside = min(capacity, trips)
        squares += inside * inside
        trips -= inside
    return squares


def largest_leaf_counts(tree: Tree, level: int, n: int) -> list[int]:
    """The n largest numbers of leaves below nodes of a level, in descending order.

    A node's leaves are the product of its areas' leaves, so the largest products of two sorted
    lists are among the first n of each.
    """
    largest = np.ones(1, dtype=object)
    for dimension, depth in zip(tree.dimensions, tree.depths[level], strict=True):
        own = np.sort(dimension.n_leaves(depth))[::-1][:n].astype(object)
        largest = np.sort(np.multiply.outer(largest, own).ravel())[::-1][:n]
    return [int(count) for count in largest]

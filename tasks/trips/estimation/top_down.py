"""Top-down estimation on arrays: one level below another, or all levels after least squares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..settings import TripsMechanism
from ..workload.mechanisms import CHEBYSHEV, FULL_INFORMATION, TDA_CHEBYSHEV, TDA_L2
from ..workload.tree import Tree
from ..workload.truth import NodeCounts
from .black_box import chebyshev_by_highs
from .projection import chebyshev_projection, euclidean_projection
from .tree_least_squares import MeasuredLevel, tree_least_squares

COUNTS_FOR_NOTHING = 1e9
"""Variance of a repeated measurement over that of the first."""

ROOT = np.zeros(1, dtype=np.int64)
"""The key of the root, as the one node of its level."""


def project(
    values: np.ndarray, offsets: np.ndarray, totals: np.ndarray, mechanism: TripsMechanism
) -> np.ndarray:
    """The projection that a mechanism's settings name, on every segment."""
    if mechanism.name == TDA_CHEBYSHEV:
        return chebyshev_by_highs(values, offsets, totals)
    smallest_first = mechanism.remove_small_values == "first"
    is_euclidean = mechanism.name == TDA_L2 or (
        mechanism.name == FULL_INFORMATION and mechanism.projection != CHEBYSHEV
    )
    chosen = euclidean_projection if is_euclidean else chebyshev_projection
    return chosen(values, offsets, totals, smallest_first=smallest_first)


def only_children(tree: Tree, level: int, parents: NodeCounts) -> NodeCounts:
    """The nodes of a level of only children, with their parents' counts."""
    keys, _ = tree.children(level - 1, parents.keys)
    return NodeCounts(keys, parents.counts)


def step_down(
    tree: Tree, level: int, parents: NodeCounts, noisy: NodeCounts, mechanism: TripsMechanism
) -> NodeCounts:
    """The positive nodes of a level, from its noisy counts and the counts of the parents.

    Raises ValueError if the noisy counts are not those of all children of the parents.
    """
    keys, offsets = tree.children(level - 1, parents.keys)
    _refuse_other_nodes(level, keys, noisy.keys)
    return NodeCounts(keys, project(noisy.counts, offsets, parents.counts, mechanism)).positive


@dataclass(frozen=True, eq=False)
class MeasuredTree:
    """All measured nodes of a tree, level by level from the root, in the order of the tree.

    `keys[l]` (n_l,) are the nodes of level l, and `levels[l]` holds their noisy counts.
    """

    tree: Tree
    keys: list[np.ndarray]
    levels: list[MeasuredLevel]

    @classmethod
    def rooted(cls, tree: Tree, count: int, variance: float) -> MeasuredTree:
        """The root alone; a variance of 0 makes it exact."""
        no_parent = np.zeros(0, dtype=np.int64)
        return cls(tree, [ROOT], [MeasuredLevel(np.array([count]), variance, no_parent, ROOT)])

    def add_level(self, parents: np.ndarray, noisy: NodeCounts, variance: float) -> None:
        """Add the noisy counts of all children of some nodes of the last level.

        Raises ValueError if they are not those children.
        """
        level = len(self.levels)
        keys, offsets = self.tree.children(level - 1, parents)
        _refuse_other_nodes(level, keys, noisy.keys)
        places = self._places(parents)
        self.keys.append(keys)
        self.levels.append(MeasuredLevel(noisy.counts, variance, places, offsets))

    def add_inferred(self, parents: np.ndarray) -> None:
        """Add the only children of some nodes of the last level, which were not measured.

        They repeat their parents' counts with a variance that makes them count for nothing.
        """
        keys, _ = self.tree.children(len(self.levels) - 1, parents)
        above = self.levels[-1]
        repeated = NodeCounts(keys, above.values[self._places(parents)])
        self.add_level(parents, repeated, COUNTS_FOR_NOTHING * (above.variance or 1.0))

    def _places(self, nodes: np.ndarray) -> np.ndarray:
        """Where some nodes of the last level stand in it."""
        order = np.argsort(self.keys[-1], kind="stable")
        return order[np.searchsorted(self.keys[-1], nodes, sorter=order)]

    def combined(self) -> list[np.ndarray]:
        """Least-squares estimates of the nodes of every level."""
        return tree_least_squares(self.levels)


def integer_pass(
    measured: MeasuredTree, mechanism: TripsMechanism
) -> Iterator[tuple[int, NodeCounts]]:
    """The positive nodes of every level, by projecting the combined estimates from the top.

    Nodes above the leaves whose children were not measured were found empty by the pass that
    selected what is measured, and stay so: there is nothing to tell their trips apart by.
    """
    estimates = measured.combined()
    counts = np.maximum(0, np.rint(estimates[0]).astype(np.int64))
    yield 0, NodeCounts(ROOT, counts).positive
    for level in range(1, measured.tree.depth + 1):
        own = measured.levels[level]
        may_be_positive = np.ones(own.values.size, dtype=bool)
        if level < measured.tree.depth:
            may_be_positive[:] = False
            may_be_positive[measured.levels[level + 1].parent] = True
        family = own.family[may_be_positive]
        offsets = np.searchsorted(family, np.arange(own.parent.size + 1))
        rounded = np.rint(estimates[level][may_be_positive]).astype(np.int64)
        totals = counts[own.parent]
        counts = np.zeros(own.values.size, dtype=np.int64)
        counts[may_be_positive] = project(rounded, offsets, totals, mechanism)
        yield level, NodeCounts(measured.keys[level], counts).positive


def _refuse_other_nodes(level: int, wanted: np.ndarray, found: np.ndarray) -> None:
    if not np.array_equal(wanted, found):
        raise ValueError(f"the measurements of level {level} are of other nodes than asked for")

"""Estimates of a trips run, level by level, from published measurements and the public tree.

**Best linear unbiased estimates** on a tree of measured nodes take two passes. Every node's count
is the sum of its children's, and every measured node has one noisy count, of variance s_l at level
l. Upwards, the estimate from a node's own subtree weighs its own count against the sum of its
children's estimates by the inverse of their variances:

    v_u = 1 / (1 / s_l + 1 / sum v_c),   x_u = v_u (z_u / s_l + sum x_c / sum v_c),

a node whose children were not measured having v = s_l and x = z. Downwards, the correction of a
parent by the rest of the tree is shared among its children in proportion to their variances:

    xhat_c = x_c + (v_c / sum v_c) (xhat_u - sum x_c).

The result is the weighted least-squares solution with additive counts, so it is best linear
unbiased if the choice of measurements did not depend on the noise. Where earlier noisy counts
decided it, it is the same solution on the measured subtree, and a selection bias remains.

A top-down mechanism projects each parent's noisy children onto its count and keeps positive counts.
The full-information mechanism combines the measurements of all levels first; where the tree is too
large to be measured whole, a first top-down pass selects the nodes to measure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...runs.directory import RunDirectory
from ...runs.errors import SpineflowError
from ..measurement import estimate_kind, parents_of, read_nodes, write_estimates
from ..plan import Plan, estimates_file, level_folder, measured_file, read_plan
from ..settings import FULL_INFORMATION, TDA_CHEBYSHEV, TDA_L2, TripsMechanism, TripsSettings
from ..tree import NodeCounts, Tree, read_tree
from .projection import chebyshev_by_highs, integer_projection


@dataclass(frozen=True, eq=False)
class MeasuredLevel:
    """Nodes of one level below some parents of the level above, family by family.

    Family j has the nodes `offsets[j]` to `offsets[j + 1]`, whose parent is at `parent[j]` in the
    level above; `parent` ascends. `values` (n,) are the noisy counts, all of `variance`; a root
    that is exact has variance 0, one that was not measured infinite variance.
    """

    values: np.ndarray
    variance: float
    parent: np.ndarray
    offsets: np.ndarray

    @property
    def family(self) -> np.ndarray:
        """The number of every node's family, (n,)."""
        return np.repeat(np.arange(self.parent.size), np.diff(self.offsets))


def tree_least_squares(levels: Sequence[MeasuredLevel]) -> list[np.ndarray]:
    """Estimates of the nodes of every level, root first, each `(n,)` float64."""
    estimates = [level.values.astype(np.float64) for level in levels]
    variances = [np.full(level.values.size, level.variance) for level in levels]
    sums = []
    for depth in range(len(levels) - 1, 0, -1):
        level, own = levels[depth], levels[depth - 1].variance
        family, n = level.family, level.parent.size
        total = np.bincount(family, estimates[depth], n)
        variance = np.bincount(family, variances[depth], n)
        sums.append((total, variance))
        weight = 1.0 if np.isinf(own) else own / (own + variance)
        estimates[depth - 1][level.parent] += weight * (total - estimates[depth - 1][level.parent])
        variances[depth - 1][level.parent] = weight * variance
    for depth, (total, variance) in enumerate(reversed(sums), start=1):
        level = levels[depth]
        surplus = (estimates[depth - 1][level.parent] - total) / variance
        estimates[depth] += variances[depth] * surplus[level.family]
    return estimates


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
        mechanism.name == FULL_INFORMATION and mechanism.projection == "euclidean"
    )
    return integer_projection(
        values, offsets, totals, is_euclidean=is_euclidean, smallest_first=smallest_first
    )


def only_children(tree: Tree, level: int, parents: NodeCounts) -> NodeCounts:
    """The nodes of a level of only children, with their parents' counts."""
    keys, _ = tree.children(level - 1, parents.keys)
    return NodeCounts(keys, parents.counts)


def step_down(
    tree: Tree, level: int, parents: NodeCounts, noisy: NodeCounts, mechanism: TripsMechanism
) -> NodeCounts:
    """The positive nodes of a level, from its noisy counts and the counts of the parents.

    Raises SpineflowError unless the noisy counts are those of all children of the parents.
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

        Raises SpineflowError if they are not those children.
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
        """Positions of some nodes of the last level in it."""
        order = np.argsort(self.keys[-1], kind="stable")
        return order[np.searchsorted(self.keys[-1], nodes, sorter=order)]

    def combined(self) -> list[np.ndarray]:
        """Least-squares estimates of the nodes of every level."""
        return tree_least_squares(self.levels)


def integer_pass(
    measured: MeasuredTree, mechanism: TripsMechanism
) -> Iterator[tuple[int, NodeCounts]]:
    """The positive nodes of every level, by projecting the combined estimates from the top.

    Nodes above the leaves whose children were not measured were found empty by the selecting pass,
    and stay empty: their trips cannot be divided among the children.
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
        raise SpineflowError(
            f"The estimates above {level_folder(level)} differ from those that decided its "
            "measurements; finish the run with the code that began it, or start a new run."
        )


def estimate_level(run: RunDirectory, settings: TripsSettings, level: int) -> None:
    """Estimate and write the positive nodes of a level."""
    plan = read_plan(run)
    if level == 0:
        nodes = _root(run, plan)
    elif level in plan.inferred:
        nodes = only_children(plan.tree, level, parents_of(run, plan, level))
    elif plan.is_top_down:
        parents, noisy = parents_of(run, plan, level), _noisy(run, plan, level)
        nodes = step_down(plan.tree, level, parents, noisy, settings.mechanism)
    else:
        noisy = _noisy(run, plan, level)
        nodes = noisy.at(noisy.counts != 0)
    write_estimates(estimates_file(run, level, estimate_kind(plan)), plan.tree, level, nodes)


def combine_levels(run: RunDirectory, settings: TripsSettings) -> None:
    """Combine the measurements of all levels, and write the estimates of every level."""
    plan = read_plan(run)
    for level, nodes in integer_pass(measured_tree(run, plan), settings.mechanism):
        write_estimates(estimates_file(run, level), plan.tree, level, nodes)


def measured_tree(run: RunDirectory, plan: Plan) -> MeasuredTree:
    """All noisy counts of a run, an exact root included."""
    total = read_tree(run).total
    root = int(_noisy(run, plan, 0).counts[0]) if total is None else total
    variance = weight_variance(plan, 0) if total is None else 0.0
    measured = MeasuredTree.rooted(plan.tree, root, variance)
    for level in range(1, plan.tree.depth + 1):
        parents = parents_of(run, plan, level).keys
        if level in plan.inferred:
            measured.add_inferred(parents)
        else:
            noisy = _noisy(run, plan, level)
            measured.add_level(parents, noisy, weight_variance(plan, level))
    return measured


def weight_variance(plan: Plan, level: int) -> float:
    """Variance that least squares give a measured level; without noise all have the same weight."""
    return float(plan.parameter(level)) or 1.0


def _root(run: RunDirectory, plan: Plan) -> NodeCounts:
    """The root: the invariant total, or the noisy one, at least 0."""
    total = read_tree(run).total
    root = _noisy(run, plan, 0) if total is None else NodeCounts(ROOT, ROOT + total)
    return root.positive


def _noisy(run: RunDirectory, plan: Plan, level: int) -> NodeCounts:
    return read_nodes(measured_file(run, level), plan.tree, level, "value")

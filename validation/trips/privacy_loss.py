"""What a trips run measured costs its budget: shares, sensitivities and variances recomputed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from ..noise import gaussian_variance, laplace_variance
from ..outcome import Failures
from .run_files import TripsTree, level_paths

RELATIVE_TOLERANCE = 1e-9


@dataclass(frozen=True)
class ExpectedTrips:
    """What the settings of a trips run promise about its files.

    `loss` is rho, or the epsilon of the stability histogram, None for a run without noise;
    `threshold` is the smallest count that the stability histogram may list, None for others.
    A `top_down` mechanism gives consistent counts that are not negative. `children_measured`
    tells that a level's measured nodes are the children of the positive nodes above, and
    `every_node` that they are all of its nodes; otherwise they were chosen in another way.
    """

    loss: Fraction | None
    threshold: int | None
    levels: tuple[int, ...]
    top_down: bool
    children_measured: bool
    every_node: bool
    bounded: bool
    trips_per_person: int
    distinct: bool
    exact: bool


def check_noise(
    tree: TripsTree, noise: Mapping[int, Fraction], expected: ExpectedTrips, failures: Failures
) -> None:
    """Before anything is drawn: what the noise that each level will get costs is the budget.

    `noise` has sigma^2 of each level's discrete Gaussian, or the scale of the stability
    histogram's discrete Laplace, 0 for none.
    """
    if expected.loss is None:
        if any(noise.values()):
            failures.add("a run without noise would draw some")
        return
    if expected.top_down:
        _check_unmeasured(tree, noise, expected, failures)
    losses = []
    for level, parameter in noise.items():
        if parameter <= 0:
            failures.add(f"level {level} would be measured without noise")
            return
        if expected.threshold is not None:
            losses.append(_most_trips(expected) / parameter)
        else:
            losses.append(squared_sensitivity(tree, level, expected) / (2 * parameter))
    if sum(losses) != expected.loss:
        failures.add(f"the levels' losses add to {sum(losses)}, not {expected.loss}")


def _check_unmeasured(
    tree: TripsTree, noise: Mapping[int, Fraction], expected: ExpectedTrips, failures: Failures
) -> None:
    """A level without noise is one that neighbours cannot change, or that of only children."""
    n_above = None
    for level in range(len(tree.refined) + 1):
        n = int(np.prod(tree.sizes(level), dtype=object))
        is_invariant_root = level == 0 and expected.bounded and expected.exact
        if level not in noise and not is_invariant_root and n != n_above:
            failures.add(f"level {level} is not measured, but does not follow from the one above")
        n_above = n


def check_losses(root: Path, tree: TripsTree, expected: ExpectedTrips, failures: Failures) -> None:
    """The levels' losses add to exactly the budget, and each level's noise is as its loss says."""
    spent, n_empty = Fraction(0), 0
    for level in expected.levels:
        constants = {
            (str(row["plb"]), float(row["variance"]))
            for path in level_paths(root, "measurements/trips", level, "dpqueries")
            for row in _constants(path)
        }
        if not constants:
            # Below a root that was found empty there are no nodes to measure.
            n_empty += 1
            continue
        if len(constants) > 1:
            failures.add(f"level {level} has measurements of several variances or losses")
            continue
        plb, variance = constants.pop()
        if expected.loss is None:
            if plb != "inf" or variance != 0:
                failures.add(f"level {level} has noise, but the run has none")
            continue
        loss = Fraction(plb)
        spent += loss
        wanted = _variance(tree, level, loss, expected)
        if not math.isclose(variance, wanted, rel_tol=RELATIVE_TOLERANCE):
            failures.add(f"level {level} has variance {variance:g}, its loss says {wanted:g}")
    if expected.loss is None:
        return
    if spent > expected.loss or (spent < expected.loss and not n_empty):
        failures.add(f"the levels' losses add to {spent}, not {expected.loss}")


def squared_sensitivity(tree: TripsTree, level: int, expected: ExpectedTrips) -> int:
    """Largest squared change of a level's counts by one person, by filling the largest nodes."""
    m = expected.trips_per_person
    if level == 0:
        return 0 if expected.bounded and expected.exact else m * m
    squares = m * m
    if expected.distinct:
        squares, left = 0, m
        for room in _largest_nodes(tree, level, m):
            squares += min(room, left) ** 2
            left -= min(room, left)
    return squares * (2 if expected.bounded else 1)


def _largest_nodes(tree: TripsTree, level: int, n: int) -> list[int]:
    """Numbers of leaves of the n nodes of a level that have most."""
    products = [1]
    for areas, depth in zip(tree.areas, tree.depths(level), strict=True):
        leaves = np.ones(len(areas[-1].codes), dtype=np.int64)
        for below in range(len(areas) - 1, depth, -1):
            leaves = np.bincount(areas[below].parent, leaves).astype(np.int64)
        largest = sorted(leaves.tolist(), reverse=True)[:n]
        products = sorted((a * b for a in products for b in largest), reverse=True)[:n]
    return products


def _variance(tree: TripsTree, level: int, loss: Fraction, expected: ExpectedTrips) -> float:
    if expected.threshold is not None:
        return laplace_variance(_most_trips(expected) / loss)
    return gaussian_variance(squared_sensitivity(tree, level, expected) / (2 * loss))


def _most_trips(expected: ExpectedTrips) -> Fraction:
    """How many trips differ between neighbours, in the L1 norm of the leaves' counts."""
    return Fraction(expected.trips_per_person * (2 if expected.bounded else 1))


def _constants(path: Path) -> list[dict]:
    """The distinct pairs of plb and variance in a file."""
    table = pq.read_table(path, columns=["plb", "variance"])
    return table.group_by(["plb", "variance"]).aggregate([]).to_pylist()

"""Covariances of areas off the spine: districts, places, any lists of blocks.

For an area E write z_u for the part of its answers that lies in geounit u, and x_u for the whole of
u. Given x_u and the measurements below u, z_u has the mean R_u x_u and a covariance N_u that
depend on the subtree alone. With the children's covariances V_c, their sum S and the gains
K = S^-1 of `spine_posterior`,

    R_u = (sum of R_c V_c) S^-1,
    N_u = sum of N_c + sum over all children of (R_c - R_u) V_c (R_c - R_u)',

where R_c is the query itself for a block of the area and 0 for another. At the root, whose
covariance from everything is C, the area's answers have the covariance N + R C R'. Only geounits
that the area cuts are ever looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from spineflow.tasks.census.queries import MarginalQuery
from spineflow.tasks.topdown.estimation.exact_weights import Sums
from spineflow.tasks.topdown.estimation.spine_estimates import GroupedEstimates
from spineflow.tasks.topdown.intervals.answers import AnswerCovariances, estimates_of, sums_of
from spineflow.tasks.topdown.intervals.spine_posterior import SpinePosterior, Step

MOST_NUMBERS = 1 << 25
"""Areas are taken together while their matrices have no more entries (256 MiB)."""
BLOCKS_AT_ONCE = 1 << 14


@dataclass(frozen=True, eq=False)
class _Parts:
    """Parts of areas in the geounits of one geolevel.

    unit, area : (p,). regression : (p, s, z, n) the matrices R on all core cells; None for whole
    blocks. variance, diffuse : (p, s, z, z) the matrices N, and what is left undetermined.
    """

    unit: np.ndarray
    area: np.ndarray
    regression: np.ndarray | None
    variance: np.ndarray
    diffuse: np.ndarray


def area_variances(
    posterior: SpinePosterior, query: MarginalQuery, area: np.ndarray, n_areas: int
) -> AnswerCovariances:
    """Covariances of the query's answers for areas 0 to n_areas - 1.

    Args:
        area: (n_blocks,) the area of each block in the order of the spine's last geolevel, -1 for
            none.

    Cost: one small matrix for each pair of an area and a geounit that it touches.
    """
    sums = sums_of(posterior.algebra, query)
    shape = (n_areas, len(sums.codes), len(sums.core), len(sums.core))
    variance, diffuse = np.zeros(shape), np.zeros(shape)
    size = len(sums.codes) * len(sums.core) * len(posterior.algebra.cell_type)
    for first, last in _chunks(np.bincount(area[area >= 0], minlength=n_areas) * size):
        unit = np.flatnonzero((area >= first) & (area < last))
        nothing = np.zeros((unit.size, *shape[1:]))
        parts = _Parts(unit, area[unit], None, nothing, nothing)
        for step in reversed(posterior.steps):
            parts = _up(step, sums, parts, n_areas)
        at_root = _through(sums, parts, posterior.root)
        np.add.at(variance, parts.area, parts.variance + at_root[0])
        np.add.at(diffuse, parts.area, parts.diffuse + at_root[1])
    return AnswerCovariances.of_components(sums, sums.summed * variance, sums.summed * diffuse)


def area_covariances(
    posterior: SpinePosterior, query: MarginalQuery, area: np.ndarray, n_areas: int
) -> tuple[np.ndarray, np.ndarray]:
    """Covariances (n_areas, n_answers, n_answers), and whether each answer is determined."""
    found = area_variances(posterior, query, area, n_areas)
    return found.matrices(), found.is_known()


def area_estimates(
    blocks: GroupedEstimates, query: MarginalQuery, area: np.ndarray, n_areas: int
) -> np.ndarray:
    """Best linear unbiased estimates (n_areas, n_answers), the sums of the blocks'."""
    found = np.zeros((n_areas, query.n_rows))
    inside = np.flatnonzero(area >= 0)
    for start in range(0, inside.size, BLOCKS_AT_ONCE):
        rows = inside[start : start + BLOCKS_AT_ONCE]
        np.add.at(found, area[rows], estimates_of(blocks, query, rows))
    return found


def _chunks(cost: np.ndarray) -> Iterator[tuple[int, int]]:
    """Runs of areas whose costs add up to no more than is allowed, each of one area at least."""
    start = 0
    while start < len(cost):
        total = np.cumsum(cost[start:])
        stop = start + max(1, int(np.searchsorted(total, MOST_NUMBERS, side="right")))
        yield start, stop
        start = stop


def _up(step: Step, sums: Sums, parts: _Parts, n_areas: int) -> _Parts:
    """Parts of the areas in the wholes of a step, from those in its parts."""
    pairs, place = np.unique(step.whole[parts.unit] * n_areas + parts.area, return_inverse=True)
    place = place.reshape(-1)
    shape = (pairs.size, len(sums.codes), len(sums.core))
    n_cells = sums.core.shape[1]
    cross, cross_diffuse = np.zeros((*shape, n_cells)), np.zeros((*shape, n_cells))
    own, own_diffuse = np.zeros((*shape, shape[2])), np.zeros((*shape, shape[2]))
    _add(own, place, parts.variance)
    _add(own_diffuse, place, parts.diffuse)
    for chosen, group, rows in step.parts.meeting(parts.unit):
        regression = sums.core[None, None]
        if parts.regression is not None:
            regression = parts.regression[chosen]
        regression = regression[..., group.cells]
        for of_group, into, into_own in (
            (group.estimates.variance, cross, own),
            (group.estimates.diffuse, cross_diffuse, own_diffuse),
        ):
            covariance = of_group[rows][:, sums.codes]
            if covariance.any():
                product = regression @ covariance
                _add(into, place[chosen], product, group.cells)
                _add(into_own, place[chosen], product @ regression.swapaxes(-1, -2))
    unit, area = pairs // n_areas, pairs % n_areas
    found = np.zeros((*shape, n_cells))
    gains = {id(group): gain for group, gain in zip(step.sums.groups, step.gains, strict=True)}
    for chosen, group, rows in step.sums.meeting(unit):
        along, along_diffuse = (part[rows][:, sums.codes] for part in gains[id(group)])
        seen, seen_diffuse = (c[chosen][..., group.cells] for c in (cross, cross_diffuse))
        regression = seen @ along + seen_diffuse @ along_diffuse
        for of_group, part, into in (
            (group.estimates.variance, seen, own),
            (group.estimates.diffuse, seen_diffuse, own_diffuse),
        ):
            total = of_group[rows][:, sums.codes]
            product = part @ regression.swapaxes(-1, -2)
            again = regression @ total @ regression.swapaxes(-1, -2)
            into[chosen] += again - product - product.swapaxes(-1, -2)
        found[np.ix_(chosen, np.arange(shape[1]), np.arange(shape[2]), group.cells)] = regression
    return _Parts(unit, area, found, own, own_diffuse)


def _through(sums: Sums, parts: _Parts, root: GroupedEstimates) -> tuple[np.ndarray, np.ndarray]:
    """R C R' and R D R' at the root."""
    found = np.zeros_like(parts.variance), np.zeros_like(parts.diffuse)
    for chosen, group, rows in root.meeting(parts.unit):
        regression = sums.core[None, None]
        if parts.regression is not None:
            regression = parts.regression[chosen]
        regression = regression[..., group.cells]
        matrices = group.estimates.variance, group.estimates.diffuse
        for into, covariance in zip(found, matrices, strict=True):
            product = regression @ covariance[rows][:, sums.codes]
            into[chosen] = product @ regression.swapaxes(-1, -2)
    return found


def _add(
    into: np.ndarray, place: np.ndarray, values: np.ndarray, cells: np.ndarray | None = None
) -> None:
    """Add values (p, s, z, z or n) to the rows `place` (p,), on some of the last axis's cells."""
    if not len(place):
        return
    order = np.argsort(place, kind="stable")
    starts = np.flatnonzero(np.diff(place[order], prepend=-1))
    total = np.add.reduceat(values[order], starts, axis=0)
    rows = place[order][starts]
    if cells is None:
        into[rows] += total
    else:
        into[np.ix_(rows, np.arange(into.shape[1]), np.arange(into.shape[2]), cells)] += total

"""Estimates and covariances of areas off the spine: districts, places, any lists of blocks.

For an area E write z_u for the part of its answers that lies in geounit u, and x_u for the whole of
u. Given x_u and the measurements below u, z_u has the mean R_u x_u and a covariance N_u that
depend on the subtree alone. With the children's covariances V_c, their sum S and the gains
K = S^-1 of `spine_posterior`,

    R_u = (sum of R_c V_c) S^-1,
    N_u = sum of N_c + sum over all children of (R_c - R_u) V_c (R_c - R_u)',

where R_c is the answers themselves for a block of the area and 0 for another. At the root, whose
covariance from everything is C, the area's answers have the covariance N + R C R'. Only geounits
that the area cuts are ever looked at. What two areas have in common comes out by taking the answers
of both as those of one, a block's R_c having rows for each of them that it belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse

from ...tables.mapped import cut_at
from ..estimation.area_kernels import add, add_change, add_parts, add_regression
from ..estimation.spine_estimates import GroupedEstimates, Step
from .answers import AnswerCovariances, ProductAnswers
from .spine_posterior import SpinePosterior

MOST_NUMBERS = 1 << 19
"""Areas are taken together while their matrices have no more entries (4 MiB): smaller ones stay
nearer to the processor."""


@dataclass(frozen=True, eq=False)
class BlockAreas:
    """Areas, or tuples of areas, as lists of blocks; they may overlap.

    block, area : (p,) a block's row on the spine and a number from 0 to n_areas - 1, ascending.
    inside : (p, slots) which areas of the tuple the block is in; of single areas, ones.
    """

    n_areas: int
    block: np.ndarray
    area: np.ndarray
    inside: np.ndarray

    @classmethod
    def of_pairs(cls, n_areas: int, block: np.ndarray, area: np.ndarray) -> BlockAreas:
        """From pairs of a block and an area, in any order; rows of blocks below 0 are left out."""
        kept = np.flatnonzero((block >= 0) & (area >= 0))
        n_blocks = int(block[kept].max(initial=0)) + 1
        pairs = np.unique(area[kept].astype(np.int64) * n_blocks + block[kept])
        return cls(n_areas, pairs % n_blocks, pairs // n_blocks, np.ones((pairs.size, 1)))

    def part(self, start: int, stop: int) -> BlockAreas:
        """The areas from `start` to `stop`, numbered from 0."""
        first, last = np.searchsorted(self.area, [start, stop])
        kept = slice(first, last)
        return BlockAreas(
            stop - start, self.block[kept], self.area[kept] - start, self.inside[kept]
        )

    def tuples(self, chosen: Sequence[np.ndarray]) -> BlockAreas:
        """Tuples of these areas: `chosen` has, for each slot, the area of every tuple (t,)."""
        of_areas = self.incidence(int(self.block.max(initial=-1)) + 1)
        found = [sparse.coo_array(of_areas[areas]) for areas in chosen]
        keys = np.concatenate([np.stack(one.coords) for one in found], axis=1).astype(np.int64)
        pairs, place = np.unique(keys, axis=1, return_inverse=True)
        inside = np.zeros((pairs.shape[1], len(chosen)))
        slot = np.repeat(np.arange(len(chosen)), [one.nnz for one in found])
        inside[place.reshape(-1), slot] = 1.0
        return BlockAreas(len(chosen[0]), pairs[1], pairs[0], inside)

    def incidence(self, n_blocks: int, dtype: DTypeLike = np.float64) -> sparse.csr_array:
        """(n_areas, n_blocks) 0/1 matrix of the blocks of each single area."""
        ones = np.ones(self.block.size, dtype=dtype)
        return sparse.csr_array((ones, (self.area, self.block)), (self.n_areas, n_blocks))

    def sums(self, of_blocks: np.ndarray) -> np.ndarray:
        """(n_areas, ...) sums over the blocks of each single area, from (n_blocks, ...)."""
        n_blocks = len(of_blocks)
        flat = self.incidence(n_blocks, of_blocks.dtype) @ of_blocks.reshape(n_blocks, -1)
        return np.asarray(flat).reshape(self.n_areas, *of_blocks.shape[1:])


@dataclass(frozen=True, eq=False)
class _Parts:
    """Parts of areas in the geounits of one geolevel.

    unit, area : (p,). regression : (p, S or 1, z, n) the matrices R on all core cells, z the
    answers' core sets in every slot. variance, diffuse : (p, S, z, z) the matrices N, and what is
    left undetermined.
    """

    unit: np.ndarray
    area: np.ndarray
    regression: np.ndarray
    variance: np.ndarray
    diffuse: np.ndarray


def area_covariances(
    posterior: SpinePosterior, answers: ProductAnswers, areas: BlockAreas
) -> AnswerCovariances:
    """Covariances of the answers of areas, or of tuples of areas.

    Cost: one small matrix for each pair of an area and a geounit that it touches.
    """
    z, n_cells = answers.core.shape
    z *= areas.inside.shape[1]
    shape = (areas.n_areas, len(answers.places), z, z)
    variance, diffuse = np.zeros(shape), np.zeros(shape)
    size = len(answers.places) * z * n_cells
    costs = np.bincount(areas.area, minlength=areas.n_areas) * size
    for first, last in cut_at(costs, MOST_NUMBERS):
        start, stop = np.searchsorted(areas.area, [first, last])
        inside, area = areas.inside[start:stop], areas.area[start:stop]
        regression = (inside[:, :, None, None] * answers.core).reshape(-1, 1, z, n_cells)
        nothing = np.zeros((len(area), *shape[1:]))
        parts = _Parts(areas.block[start:stop], area, regression, nothing, nothing)
        for step in reversed(posterior.steps):
            parts = _up(step, answers.places, parts, areas.n_areas)
        at_root = _through(answers.places, parts, posterior.root)
        add(variance, parts.area, parts.variance + at_root[0])
        add(diffuse, parts.area, parts.diffuse + at_root[1])
    return AnswerCovariances(answers, variance, diffuse)


def area_estimates(
    blocks: GroupedEstimates, answers: ProductAnswers, areas: BlockAreas
) -> np.ndarray:
    """Best linear unbiased estimates (n_areas, a) of single areas, the sums of the blocks'."""
    found = np.zeros((areas.n_areas, len(answers.core), blocks.algebra.n_coordinates))
    incidence = areas.incidence(len(blocks.type_is_possible)).tocsc()
    for group in blocks.groups:
        part = incidence[:, group.rows].tocsr()
        sums = part @ group.estimates.mean.reshape(group.rows.size, -1)
        sums = np.asarray(sums).reshape(areas.n_areas, *group.estimates.mean.shape[1:])
        found += answers.on_core(sums, group.cells)
    return answers.estimates(found)


def _up(step: Step, places: list[int], parts: _Parts, n_areas: int) -> _Parts:
    """Parts of the areas in the wholes of a step, from those in its parts."""
    pairs, place = np.unique(step.whole[parts.unit] * n_areas + parts.area, return_inverse=True)
    place, components = place.reshape(-1), np.array(places)
    z, n_cells = parts.regression.shape[2:]
    shape = (pairs.size, len(places), z)
    cross, cross_diffuse, regression = (np.zeros((*shape, n_cells)) for _ in range(3))
    own, own_diffuse = np.zeros((*shape, z)), np.zeros((*shape, z))
    for into, matrices in ((own, parts.variance), (own_diffuse, parts.diffuse)):
        if matrices.any():
            add(into, place, matrices)
    for chosen, group, rows in step.parts.meeting(parts.unit):
        # Copied, for kernels of a kept posterior's cells, which are read-only, would be others.
        of_parts = parts.regression[chosen], place[chosen], group.cells.copy(), components
        add_parts(*of_parts, group.estimates.variance[rows], cross, own)
        add_parts(*of_parts, group.estimates.diffuse[rows], cross_diffuse, own_diffuse)
    unit, area = pairs // n_areas, pairs % n_areas
    gains = {id(group): gain for group, gain in zip(step.sums.groups, step.gains, strict=True)}
    for chosen, group, rows in step.sums.meeting(unit):
        of_wholes = chosen, group.cells.copy(), components
        gain, sums = gains[id(group)], group.estimates
        add_regression(*of_wholes, cross, gain.along[rows], regression)
        add_regression(*of_wholes, cross_diffuse, gain.along_diffuse[rows], regression)
        add_change(*of_wholes, regression, cross, sums.variance[rows], own)
        add_change(*of_wholes, regression, cross_diffuse, sums.diffuse[rows], own_diffuse)
    return _Parts(unit, area, regression, own, own_diffuse)


def _through(
    places: list[int], parts: _Parts, root: GroupedEstimates
) -> tuple[np.ndarray, np.ndarray]:
    """R C R' and R D R' at the root."""
    found = np.zeros_like(parts.variance), np.zeros_like(parts.diffuse)
    for chosen, group, rows in root.meeting(parts.unit):
        regression = parts.regression[chosen][..., group.cells]
        matrices = group.estimates.variance, group.estimates.diffuse
        for into, covariance in zip(found, matrices, strict=True):
            if not covariance.any():
                continue
            product = regression @ covariance[rows][:, places]
            into[chosen] = product @ regression.swapaxes(-1, -2)
    return found

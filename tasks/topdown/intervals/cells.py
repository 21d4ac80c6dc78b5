"""Intervals of published cells: any answers, such as a table's variables, of any areas."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from .answers import ProductAnswers, covariances_of, estimates_of
from .areas import BlockAreas, area_covariances, area_estimates
from .intervals import Intervals, intervals_of
from .run_posterior import RunPosterior

AREAS_AT_ONCE = 1 << 10
RUNS_ALIKE = 4
"""Of so many runs of areas, all are taken as single blocks or none."""


@dataclass(frozen=True, eq=False)
class CellAnswers:
    """Estimates, variances, and whether the measurements determine them, (n_areas, a) each, with
    the bounds (n_areas, a) that every histogram meets."""

    estimate: np.ndarray
    variance: np.ndarray
    is_known: np.ndarray
    at_least: np.ndarray
    at_most: np.ndarray
    mechanism: str

    def intervals(self, level: float) -> Intervals:
        """Intervals that hold the truth with probability `level` at least."""
        bounds = self.at_least, self.at_most
        return intervals_of(self.estimate, self.variance, level, *bounds, self.mechanism)


@dataclass(frozen=True, eq=False)
class PublishedCells:
    """Answers that are published of many areas.

    counted : (a, n_cells) 0/1 matrix, the cells of each answer, each a product of sets of levels.
    """

    found: RunPosterior
    counted: sparse.csr_array

    def of_areas(self, areas: BlockAreas) -> Iterator[tuple[int, CellAnswers]]:
        """Answers of runs of areas: the number of the first, and what is known of them.

        Raises ValueError for an answer that counts no product of sets.
        """
        found = self.found
        for first in range(0, areas.n_areas, AREAS_AT_ONCE * RUNS_ALIKE):
            alike = areas.part(first, min(first + AREAS_AT_ONCE * RUNS_ALIKE, areas.n_areas))
            are_blocks = np.bincount(alike.area, minlength=alike.n_areas).max(initial=0) <= 1
            for start in range(0, alike.n_areas, AREAS_AT_ONCE):
                part = alike.part(start, min(start + AREAS_AT_ONCE, alike.n_areas))
                shape = part.n_areas, self.counted.shape[0]
                estimate, variance = np.zeros(shape), np.zeros(shape)
                is_known = np.ones(shape, dtype=bool)
                for numbers, answers in self._kinds:
                    of_kind = _of_areas(found, answers, part, are_blocks)
                    estimate[:, numbers], variance[:, numbers], is_known[:, numbers] = of_kind
                bounds = found.bounds_of(found.bounds[-1].summed(part), self.counted)
                mechanism = found.of_run.mechanism
                yield first + start, CellAnswers(estimate, variance, is_known, *bounds, mechanism)

    @cached_property
    def _kinds(self) -> list[tuple[np.ndarray, ProductAnswers]]:
        """The answers that sum over all free attributes, and the others, with their numbers: the
        first see one component, whatever they count of the core."""
        algebra = self.found.posterior.algebra
        answers = ProductAnswers.of_matrix(algebra, self.counted)
        sums = np.ones(answers.n_answers, dtype=bool)
        for sets, numbers in zip(answers.free, answers.free_of_answer, strict=True):
            sums &= np.asarray(sets.all(axis=1))[numbers]
        return [
            (np.flatnonzero(chosen), ProductAnswers.of_matrix(algebra, self.counted[chosen]))
            for chosen in (sums, ~sums)
            if chosen.any()
        ]


def _of_areas(
    found: RunPosterior, answers: ProductAnswers, areas: BlockAreas, are_blocks: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Estimates, variances and whether they are known, (n_areas, a) each.

    are_blocks : no area has more than one block.
    """
    if not are_blocks:
        covariances = area_covariances(found.posterior, answers, areas)
        estimate = area_estimates(found.blocks, answers, areas)
        return estimate, covariances.variances(), covariances.is_known()
    shape = areas.n_areas, answers.n_answers
    estimate, variance = np.zeros(shape), np.zeros(shape)
    is_known = np.ones(shape, dtype=bool)
    covariances = covariances_of(found.blocks, answers, areas.block)
    estimate[areas.area] = estimates_of(found.blocks, answers, areas.block)
    variance[areas.area], is_known[areas.area] = covariances.variances(), covariances.is_known()
    return estimate, variance, is_known

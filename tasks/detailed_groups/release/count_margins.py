"""The margin of error of every released count, sums of cells included, from the noise alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ...noise.distributions import IntegerDistribution
from ...noise.sums import margin_of_cut_sum, margin_of_sum
from ...runs.directory import RunDirectory
from ..ingest.ingest import run_parameters
from ..measurement.charge import noise_of
from ..settings import DetailedGroupsSettings


@dataclass(frozen=True)
class CountNoise:
    """The noise of a run's released counts.

    total_only, second_stage : by region type and iteration level, the noise of a count of groups
        that are measured by a total only, and of the others; None for no noise.
    coverage : the probability with which a margin holds.
    are_cut : negative counts became 0 before they were added.
    """

    total_only: Mapping[tuple[str, int], IntegerDistribution | None]
    second_stage: Mapping[tuple[str, int], IntegerDistribution | None]
    coverage: Fraction
    are_cut: bool = False

    def margins(
        self,
        measured_at: tuple[np.ndarray, Sequence[str]],
        level: np.ndarray,
        total_only: np.ndarray,
        n_cells: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The margin of the noise in each of some counts, and the one that holds for the released
        count whatever was cut; each of shape (n,), int32.

        `measured_at` has the region type whose measurement a count is, as positions in a list,
        `level` the iteration level, `total_only` whether the group is measured by a total only, and
        `n_cells` the number of noisy counts that were added.
        """
        place, names = measured_at
        parts = place, level, total_only.astype(int), n_cells
        sizes = tuple(int(part.max()) + 1 for part in parts)
        # There are few kinds of counts, and many counts of each.
        kind = np.ravel_multi_index(parts, sizes)
        known = np.zeros((math.prod(sizes), 2), dtype=np.int32)
        for own in np.flatnonzero(np.bincount(kind)):
            at, of_level, only, n = map(int, np.unravel_index(own, sizes))
            known[own] = self._margins(names[at], of_level, n, is_total_only=bool(only))
        return known[kind, 0], known[kind, 1]

    def _margins(
        self, region_type: str, level: int, n: int, *, is_total_only: bool
    ) -> tuple[int, int]:
        noise = (self.total_only if is_total_only else self.second_stage)[region_type, level]
        if noise is None:
            return 0, 0
        own = margin_of_sum(noise, n, self.coverage)
        return own, margin_of_cut_sum(noise, n, self.coverage) if self.are_cut else own


def count_noise_of(run: RunDirectory, settings: DetailedGroupsSettings) -> CountNoise:
    """The noise of a run's released counts, at the confidence of its settings."""
    parameters = run_parameters(run, settings)
    total_only, second_stage = {}, {}
    for level in parameters.budgets:
        noise = noise_of(run, parameters, *level)
        total_only[level] = noise.total_only.distribution
        second_stage[level] = noise.stage_2.distribution
    are_cut = not parameters.allow_negative_counts
    return CountNoise(total_only, second_stage, settings.mechanism.coverage, are_cut)

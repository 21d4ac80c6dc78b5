"""The margin of error of every released count, sums of cells included, from the noise alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ...noise.sums import margin_of_cut_sum, margin_of_sum
from ...runs.directory import RunDirectory
from ..ingest.ingest import run_specification
from ..workload.explorer import LevelBudget
from ..workload.mechanism import MechanismParameters
from ..workload.wanted_margins import level_budgets


@dataclass(frozen=True)
class CountNoise:
    """The noise of a run's released counts.

    levels : by region type and iteration level, the budget that buys the noise of its counts; None
        for no noise.
    coverage : the probability with which a margin holds.
    are_cut : negative counts became 0 before they were added.
    """

    levels: Mapping[tuple[str, int], LevelBudget] | None
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
        if self.levels is None:
            return 0, 0
        budget = self.levels[region_type, level]
        noise = budget.total_only if is_total_only else budget.second_stage
        own = margin_of_sum(noise, n, self.coverage)
        return own, margin_of_cut_sum(noise, n, self.coverage) if self.are_cut else own


def count_noise_of(
    run: RunDirectory, parameters: MechanismParameters, coverage: Fraction
) -> CountNoise:
    """The noise of the released counts of a run, or of one of its tabulations."""
    has_none, are_cut = parameters.infinite, not parameters.allow_negative_counts
    levels = None if has_none else level_budgets(parameters, run_specification(run))
    return CountNoise(levels, coverage, are_cut)

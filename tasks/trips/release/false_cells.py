"""How many cells of a release are expected to be false: released with trips, and without any.

An empty cell that was measured has noise alone, which is as often v as -v. Cells with trips seldom
have a noisy count below 0, so that of those measured at v > 0 about as many are empty as were
measured at -v. A released cell measured at v is therefore false with a probability of about
n(-v) / n(v), where n counts the measured cells; one measured at v <= 0 is taken to be false.

No noisy count tells a cell without trips from one with far fewer than the standard deviation of the
noise. Both are counted here, so that this is an upper estimate, and near the truth where cells
have no trips or many. Only noisy counts and what is released of them are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from ...runs.directory import RunDirectory
from ..measurement.files import read_cuts, read_nodes
from ..paths import measured_file
from ..workload.mechanisms import STABILITY_HISTOGRAM
from ..workload.plan import Plan
from ..workload.truth import NodeCounts
from .table import released_level

BINS_PER_SIGMA = 4
"""Noisy counts are compared with their opposites in bins of a quarter of a standard deviation."""


@dataclass(frozen=True)
class FalseCells:
    """Released cells, and how many of them are expected to have no trips, or too few to tell.

    `sigma` is the standard deviation of the noise in a cell.
    """

    released: int
    expected: float
    sigma: float

    @property
    def sentence(self) -> str:
        """How many cells are released, and how many of them are expected to be false, in words."""
        if not self.released:
            return "no cell is released with trips"
        share = self.expected / self.released
        hidden = f", or so few that noise of {self.sigma:.3g} hides them" if self.sigma else ""
        return (
            f"of {self.released:,} released cells about {round(self.expected):,} ({share:.0%}) are "
            f"expected to be false: to have no trips{hidden}"
        )


def false_cells(run: RunDirectory, plan: Plan) -> FalseCells:
    """The expectation for the released table of a run, from its noisy measurements.

    The stability histogram publishes nothing where there is nothing. Where the finest level was
    not measured, because it repeats the counts above, the level that was measured stands in.
    """
    level = max(plan.levels)
    released = released_level(run.release, plan.tree, level).positive.ascending
    sigma_squared = float(plan.noise[level])
    if plan.mechanism == STABILITY_HISTOGRAM or not sigma_squared:
        return FalseCells(released.keys.size, 0.0, 0.0)
    files = [measured_file(run, level, shard.name) for shard in read_cuts(run, level).shards]
    measured = read_nodes(files, plan.tree, level, "value")
    sigma = sqrt(sigma_squared)
    return FalseCells(released.keys.size, expected_false(measured, released, sigma), sigma)


def expected_false(measured: NodeCounts, released: NodeCounts, sigma: float) -> float:
    """Expected number of empty cells among the released ones.

    Args:
        measured: keys of all cells that were measured, and their noisy counts.
        released: those that are released, by ascending keys, with their positive counts.
        sigma: standard deviation of the noise.
    """
    width = max(1, round(sigma / BINS_PER_SIGMA))
    bin_of = (np.abs(measured.counts) + width - 1) // width
    n_bins = int(bin_of.max(initial=0)) + 1
    above = np.bincount(bin_of[measured.counts > 0], minlength=n_bins)
    below = np.bincount(bin_of[measured.counts < 0], minlength=n_bins)
    chance = np.minimum(1.0, below / np.maximum(above, 1))
    is_released = released.counts_of(measured.keys) > 0
    is_above = is_released & (measured.counts > 0)
    return float(chance[bin_of[is_above]].sum() + (is_released & (measured.counts <= 0)).sum())

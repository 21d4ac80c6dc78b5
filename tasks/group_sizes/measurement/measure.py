"""Measuring a group-sizes run, level by level.

What each vector that is measured is, and its sensitivity, stands in
`tasks.group_sizes.workload.mechanisms`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...answers.noisy import DPQUERY_SUFFIX, NoisyAnswers, write_measurements
from ...ledger.charging import single_draw
from ...noise.draws import Noise, NoiseDraws, sum_that_fits
from ...runs.directory import RunDirectory
from ..ingest.files import read_plan, read_regions, true_counts
from ..paths import UNIVERSE, measurement_file
from ..settings import GroupSizesSettings
from ..workload.mechanisms import (
    CHAINED_CUMULATIVE_GROUP_SIZES,
    CUMULATIVE_GROUP_SIZES,
    GROUP_SIZES,
)


def measure_level(run: RunDirectory, settings: GroupSizesSettings, level_name: str) -> None:
    """Measure and publish one level; raises as `single_draw`."""
    plan, hierarchy = read_plan(run), read_regions(run)
    depth = hierarchy.names.index(level_name)
    level, regions = plan.levels[depth], hierarchy.levels[depth].region
    counts = true_counts(run, hierarchy, plan)[depth]
    path = measurement_file(run, level_name)
    plb, variance = "inf", 0.0
    noise = level.noise_of(plan.noise)
    if noise is not None and plan.loss is not None:
        plb, variance = str(plan.loss * level.share), noise.variance
    with single_draw(
        run,
        settings,
        path,
        UNIVERSE,
        truth=[run.histogram(UNIVERSE)],
        seeds=(UNIVERSE, level_name),
    ) as drawing:

        def draw() -> Iterator[list[NoisyAnswers]]:
            yield [
                NoisyAnswers(
                    plan.vector + DPQUERY_SUFFIX,
                    regions,
                    noisy_vector(plan.vector, counts, noise, drawing.noise, level_name),
                    np.full(len(regions), variance),
                    np.full(len(regions), plb, dtype=object),
                )
            ]

        write_measurements(
            path, draw(), is_private=settings.is_private, recording=drawing.recording
        )


def true_vector(vector: str, counts: np.ndarray) -> np.ndarray:
    """A vector at one level, (n, n_sizes), from the counts of its regions and sizes, (n, n_sizes).

    >>> counts = np.array([[2, 1], [0, 3]])
    >>> true_vector(CHAINED_CUMULATIVE_GROUP_SIZES, counts).tolist()
    [[2, 3], [2, 6]]
    """
    if vector == GROUP_SIZES:
        return counts
    if vector == CUMULATIVE_GROUP_SIZES:
        return np.cumsum(counts, axis=1)
    if vector == CHAINED_CUMULATIVE_GROUP_SIZES:
        chain = np.cumsum(counts.T.reshape(-1))
        return np.ascontiguousarray(chain.reshape(counts.shape[::-1]).T)
    raise ValueError(f"unknown vector {vector!r}")


def noisy_vector(
    vector: str, counts: np.ndarray, noise: Noise | None, draws: NoiseDraws, part: str = ""
) -> np.ndarray:
    """The vector with independent noise on every value; without noise if it is None.

    `part` is the level, under whose name the noise is charged.

    Raises OverflowError if a value does not fit 64 bits.
    """
    values = true_vector(vector, counts)
    if noise is None:
        return values
    return sum_that_fits(values, draws.draw(part, noise, values.size).reshape(values.shape))

"""Measuring a group-sizes run, level by level."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...answers.noisy import DPQUERY_SUFFIX, NoisyAnswers, write_measurements
from ...ledger.charging import single_draw
from ...runs.directory import RunDirectory
from ..ingest.files import read_plan, read_regions, true_counts
from ..paths import UNIVERSE, measurement_file
from ..settings import GroupSizesSettings
from .vectors import noisy_vector


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

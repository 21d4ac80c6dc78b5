"""Measuring a run of the supplemental tables, level by level."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...answers.noisy import DPQUERY_SUFFIX, NoisyAnswers, write_measurements
from ...ledger.charging import single_draw
from ...noise.draws import NoiseDraws, sum_that_fits
from ...runs.directory import RunDirectory
from ..ingest.files import read_areas, read_plan, true_counts
from ..paths import UNIVERSE, measurement_file
from ..settings import SupplementalDhcSettings
from ..workload.plan import Query


def measure_level(run: RunDirectory, settings: SupplementalDhcSettings, level: str) -> None:
    """Measure and publish all queries of a level; raises as `single_draw`."""
    plan, areas = read_plan(run), read_areas(run)
    counts, regions = true_counts(run, areas, level), areas.regions[level]
    path = measurement_file(run, level)
    with single_draw(
        run,
        settings,
        path,
        UNIVERSE,
        truth=[run.histogram(UNIVERSE)],
        seeds=(UNIVERSE, level),
    ) as drawing:

        def draw() -> Iterator[list[NoisyAnswers]]:
            yield [
                measured(query, regions, counts[:, query.columns], drawing.noise)
                for query in plan.of_level(level)
            ]

        write_measurements(
            path, draw(), is_private=settings.is_private, recording=drawing.recording
        )


def measured(
    query: Query, regions: np.ndarray, counts: np.ndarray, draws: NoiseDraws
) -> NoisyAnswers:
    """The counts of a query `(n_regions, n)` with independent noise on each; they may be negative.

    Raises OverflowError if a value does not fit 64 bits.
    """
    noise, n = query.noise, len(regions)
    values, plb, variance = counts, "inf", 0.0
    if noise is not None:
        drawn = draws.draw(query.part, noise, counts.size).reshape(counts.shape)
        values, plb, variance = sum_that_fits(counts, drawn), str(query.rho), noise.variance
    return NoisyAnswers(
        query.query_name + DPQUERY_SUFFIX,
        regions,
        values,
        np.full(n, variance),
        np.full(n, plb, dtype=object),
    )

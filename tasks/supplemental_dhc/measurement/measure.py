"""Measuring a run of the supplemental tables, level by level."""

from __future__ import annotations

from ...answers.noisy import NoisyAnswers
from ...noise.draws import NoiseDraws
from ...products.measurement import noisy_answers, publish_level
from ...runs.directory import RunDirectory
from ..ingest.files import read_areas, read_plan, true_counts
from ..paths import UNIVERSE
from ..settings import SupplementalDhcSettings


def measure_level(run: RunDirectory, settings: SupplementalDhcSettings, level: str) -> None:
    """Measure and publish all queries of a level; raises as `single_draw`."""
    plan, areas = read_plan(run), read_areas(run)
    counts, regions = true_counts(run, areas, level), areas.regions[level]

    def answers(draws: NoiseDraws) -> list[NoisyAnswers]:
        return [
            noisy_answers(
                q.query_name, regions, counts[:, q.columns], q.noise, q.rho, draws, q.part
            )
            for q in plan.of_level(level)
        ]

    publish_level(run, settings, UNIVERSE, level, answers)

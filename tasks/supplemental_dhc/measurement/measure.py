"""Measuring a run of the supplemental tables, level by level."""

from __future__ import annotations

from ...products.measurement import publish_measures
from ...runs.directory import RunDirectory
from ..ingest.files import read_areas, read_plan, true_counts
from ..settings import SupplementalDhcSettings
from ..workload.costs import universe_plan


def measure_level(run: RunDirectory, settings: SupplementalDhcSettings, level: str) -> None:
    """Measure and publish all queries of a level; raises as `single_draw`."""
    plan, areas = read_plan(run), read_areas(run)
    counts, regions = true_counts(run, areas, level), areas.regions[level]
    values = {query.query_name: counts[:, query.columns] for query in plan.of_level(level)}
    publish_measures(run, settings, universe_plan(plan), level, regions, values)

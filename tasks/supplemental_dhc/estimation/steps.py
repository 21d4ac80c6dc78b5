"""The step that estimates the tables of a level."""

from __future__ import annotations

from ...runs.directory import RunDirectory
from ...runs.handles import Made, once
from ...runs.stamps import write_parquet
from ...runs.steps import step
from ..paths import UNIVERSE
from ..settings import SupplementalDhcSettings
from .estimate import estimate_level


@step("estimate households", SupplementalDhcSettings, run_name="estimate-{level}")
def estimate(run: RunDirectory, settings: SupplementalDhcSettings, level: str) -> Made:
    """Write the rows of a level's tables, from its noisy counts alone."""
    path = run.estimates(UNIVERSE, level)
    return once(path, lambda: write_parquet(path, estimate_level(run, level)))

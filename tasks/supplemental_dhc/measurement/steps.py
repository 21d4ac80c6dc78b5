"""The step that draws the noise of a run of the supplemental tables."""

from __future__ import annotations

from ...runs.directory import RunDirectory
from ...runs.handles import Made, once
from ...runs.steps import step
from ..paths import UNIVERSE
from ..settings import SupplementalDhcSettings
from .measure import measure_level


@step("measure households", SupplementalDhcSettings, run_name="measure-{level}", retried=False)
def measure(run: RunDirectory, settings: SupplementalDhcSettings, level: str) -> Made:
    """Publish a level's noisy counts; what is published is never drawn again."""
    return once(run.dpqueries(UNIVERSE, level), measure_level, run, settings, level)

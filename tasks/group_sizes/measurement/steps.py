"""The step that draws the noise of a group-sizes run."""

from __future__ import annotations

from ...runs.directory import RunDirectory
from ...runs.handles import Made, once
from ...runs.steps import step
from ..paths import UNIVERSE
from ..settings import GroupSizesSettings
from .measure import measure_level


@step("measure groups", GroupSizesSettings, run_name="measure-{level}", retried=False)
def measure(run: RunDirectory, settings: GroupSizesSettings, level: str) -> Made:
    """Publish a level's noisy vector; what is published is never drawn again."""
    return once(run.dpqueries(UNIVERSE, level), measure_level, run, settings, level)

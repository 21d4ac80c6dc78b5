"""The step that draws the noise of a group-sizes run."""

from __future__ import annotations

from ...runs.directory import RunDirectory
from ...runs.handles import Made, once
from ...runs.steps import step
from ..paths import measurement_file
from ..settings import GroupSizesSettings
from .measure import measure_level


@step("measure groups", GroupSizesSettings, run_name="measure-{level}", retried=False)
def measure(run: RunDirectory, settings: GroupSizesSettings, level: str) -> Made:
    """Publish a level's noisy vector; what is published is never drawn again."""
    path = measurement_file(run, level)
    return once(path, measure_level, run, settings, level)

"""The step that estimates group sizes."""

from __future__ import annotations

from ...runs.directory import RunDirectory
from ...runs.handles import Made, once
from ...runs.steps import step
from ..ingest.files import read_plan
from ..paths import UNIVERSE
from ..settings import GroupSizesSettings
from .estimate import estimate_run


@step("estimate groups", GroupSizesSettings, run_name="estimate")
def estimate(run: RunDirectory, settings: GroupSizesSettings) -> Made:
    """Find the counts of all levels from the noisy vectors, by the mechanism of the plan."""
    path = run.estimates(UNIVERSE, read_plan(run).levels[-1].level)
    return once(path, estimate_run, run, settings)

"""The step that writes the release of a detailed-groups run."""

from __future__ import annotations

from ...runs.directory import RunDirectory
from ...runs.handles import Made, found, made
from ...runs.steps import step
from ..settings import DetailedGroupsSettings
from .run import has_unchecked_release, write_run_release


@step("write groups", DetailedGroupsSettings, run_name="write groups")
def write_tables(run: RunDirectory, settings: DetailedGroupsSettings) -> Made:
    """Write t1.csv, t2.csv and population_groups.parquet; they are released once checked."""
    if run.release.exists() or has_unchecked_release(run):
        return found(run.unchecked_release)
    write_run_release(run, settings)
    return made(run.unchecked_release)

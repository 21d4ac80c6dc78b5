"""The step that writes the release of a detailed-groups run."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.detailed_groups.release.run import has_unchecked_release, write_run_release
from spineflow.tasks.detailed_groups.settings import DetailedGroupsSettings
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch


@step("write groups", run_name="write groups")
def write_groups(run_root: str) -> Artifact:
    """Write t1.csv, t2.csv and population_groups.parquet; they are published once checked."""
    run = RunDirectory(Path(run_root))
    reused = run.release.exists() or has_unchecked_release(run)
    with stopwatch() as seconds:
        if not reused:
            write_run_release(run, frozen_settings(DetailedGroupsSettings, run.settings))
    return Artifact(run.unchecked_release.name, seconds=seconds(), reused=reused)

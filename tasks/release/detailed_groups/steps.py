"""The step that writes the release of a detailed-groups run."""

from __future__ import annotations

from pathlib import Path

from tasks.handles import Artifact
from tasks.release.detailed_groups.run import has_unchecked_release, write_run_release
from tasks.run_directory import RunDirectory
from tasks.settings.detailed_groups import DetailedGroupsSettings
from tasks.settings.load import frozen_settings
from tasks.steps import step
from tasks.timing import stopwatch


@step("write groups", run_name="write groups")
def write_groups(run_root: str) -> Artifact:
    """Write t1.csv, t2.csv and population_groups.parquet; they are published once checked."""
    run = RunDirectory(Path(run_root))
    reused = run.release.exists() or has_unchecked_release(run)
    with stopwatch() as seconds:
        if not reused:
            write_run_release(run, frozen_settings(DetailedGroupsSettings, run.settings))
    return Artifact(run.unchecked_release.name, seconds=seconds(), reused=reused)

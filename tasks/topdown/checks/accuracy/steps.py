"""The step that compares a release with the truth."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch
from spineflow.tasks.topdown.checks.accuracy.run import write_run_accuracy
from spineflow.tasks.topdown.settings import TopdownSettings


@step("accuracy", run_name="accuracy")
def compare_with_truth(run_root: str) -> Artifact:
    """Compare the release with the truth, in confidence, if the truth is still there."""
    run = RunDirectory(Path(run_root))
    with stopwatch() as seconds:
        write_run_accuracy(run, frozen_settings(TopdownSettings, run.settings))
    return Artifact(run.confidential.name, seconds=seconds())

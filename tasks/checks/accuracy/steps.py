"""The step that compares a release with the truth."""

from __future__ import annotations

from pathlib import Path

from tasks.checks.accuracy.run import write_run_accuracy
from tasks.handles import Artifact
from tasks.run_directory import RunDirectory
from tasks.settings.load import frozen_settings
from tasks.settings.topdown import TopdownSettings
from tasks.steps import step
from tasks.timing import stopwatch


@step("accuracy", run_name="accuracy")
def compare_with_truth(run_root: str) -> Artifact:
    """Compare the release with the truth, in confidence, if the truth is still there."""
    run = RunDirectory(Path(run_root))
    with stopwatch() as seconds:
        write_run_accuracy(run, frozen_settings(TopdownSettings, run.settings))
    return Artifact(run.confidential.name, seconds=seconds())

"""The step that compares a release with the truth."""

from __future__ import annotations

from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Made, made
from spineflow.tasks.runs.steps import step
from spineflow.tasks.topdown.checks.accuracy.run import write_run_accuracy
from spineflow.tasks.topdown.settings import TopdownSettings


@step("accuracy", TopdownSettings, run_name="accuracy")
def compare_with_truth(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Compare the release with the truth, in confidence, if the truth is still there."""
    write_run_accuracy(run, settings)
    return made(run.confidential)

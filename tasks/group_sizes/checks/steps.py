"""The steps that check a group-sizes run, publish its release and report on it."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.group_sizes.checks.accuracy import has_truth, read_accuracy, write_accuracy
from spineflow.tasks.group_sizes.checks.run import check_run
from spineflow.tasks.group_sizes.release.report import write_report
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.gate import checked, published, stamp_files
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch


@step("check group sizes", run_name="check")
def check_release(run_root: str) -> Artifact:
    """Check the tables and the measurements by code independent of what made them."""
    return checked(RunDirectory(Path(run_root)), GroupSizesSettings, check_run)


@step("publish group sizes", run_name="publish release")
def publish_release(run_root: str) -> Artifact:
    """Move the checked release to where readers look for it."""
    return published(RunDirectory(Path(run_root)))


@step("report group sizes", run_name="report")
def report_run(run_root: str) -> Artifact:
    """Compare the release with the truth, in confidence, and write the public report."""
    run = RunDirectory(Path(run_root))
    settings = frozen_settings(GroupSizesSettings, run.settings)
    with stopwatch() as seconds:
        if has_truth(run):
            write_accuracy(run)
        accuracy = None if settings.input.confidential else read_accuracy(run)
        path = write_report(run, settings, accuracy)
        if not settings.is_private:
            stamp_files(run)
    return run.artifact(path, seconds=seconds())

"""The steps that check a finished run and publish its release."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.gate import checked, published, stamp_files
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch
from spineflow.tasks.topdown.checks.accuracy.queries import read_accuracy
from spineflow.tasks.topdown.checks.run import check_run
from spineflow.tasks.topdown.release.certificate import write_certificate
from spineflow.tasks.topdown.release.report import write_report
from spineflow.tasks.topdown.settings import TopdownSettings


@step("check", run_name="check")
def check_release(run_root: str) -> Artifact:
    """Check estimates, constraints, shares and microdata by code independent of the estimator."""
    return checked(RunDirectory(Path(run_root)), TopdownSettings, check_run)


@step("publish release", run_name="publish release")
def publish_release(run_root: str) -> Artifact:
    """Add the certificate, and move the checked release to where readers look for it."""
    run = RunDirectory(Path(run_root))
    settings = frozen_settings(TopdownSettings, run.settings)
    return published(run, lambda: write_certificate(run, settings))


@step("report", run_name="report")
def report_run(run_root: str) -> Artifact:
    """Write the public report."""
    run = RunDirectory(Path(run_root))
    settings = frozen_settings(TopdownSettings, run.settings)
    with stopwatch() as seconds:
        accuracy = None if settings.input.confidential else read_accuracy(run)
        path = write_report(run, settings, accuracy)
        if not settings.is_private:
            stamp_files(run)
    return run.artifact(path, seconds=seconds())

"""The steps that check a finished trips run, publish its release and report on it."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.gate import checked, published, stamp_files
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch
from spineflow.tasks.trips.checks.accuracy import has_truth, read_accuracy, write_accuracy
from spineflow.tasks.trips.checks.run import check_run
from spineflow.tasks.trips.release.certificate import write_certificate
from spineflow.tasks.trips.release.report import write_report
from spineflow.tasks.trips.settings import TripsSettings


@step("check", run_name="check")
def check_trips(run_root: str) -> Artifact:
    """Check measurements, estimates and table by code independent of what made them."""
    return checked(RunDirectory(Path(run_root)), TripsSettings, check_run)


@step("publish release", run_name="publish release")
def publish_trips(run_root: str) -> Artifact:
    """Add the certificate, and move the checked release to where readers look for it."""
    run = RunDirectory(Path(run_root))
    settings = frozen_settings(TripsSettings, run.settings)
    return published(run, lambda: write_certificate(run, settings))


@step("report", run_name="report")
def report_trips(run_root: str) -> Artifact:
    """Compare the release with the truth, in confidence, and write the public report."""
    run = RunDirectory(Path(run_root))
    settings = frozen_settings(TripsSettings, run.settings)
    with stopwatch() as seconds:
        if has_truth(run):
            write_accuracy(run, settings)
        accuracy = None if settings.input.confidential else read_accuracy(run)
        path = write_report(run, settings, accuracy)
        if not settings.is_private:
            stamp_files(run)
    return run.artifact(path, seconds=seconds())

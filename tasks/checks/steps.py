"""The steps that check a finished run and publish its release."""

from __future__ import annotations

from pathlib import Path

from tasks.checks.accuracy.queries import read_accuracy
from tasks.checks.gate import checked, published, stamp_files
from tasks.checks.run import check_run
from tasks.handles import Artifact
from tasks.release.certificate import write_certificate
from tasks.release.report import write_report
from tasks.run_directory import RunDirectory
from tasks.settings.load import frozen_settings
from tasks.settings.topdown import TopdownSettings
from tasks.steps import step
from tasks.timing import stopwatch


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

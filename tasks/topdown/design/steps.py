"""The steps of a comparison of budgets, in addition to the steps of a study."""

from __future__ import annotations

from ...runs.directory import RunDirectory
from ...runs.handles import Made, created, once
from ...runs.steps import step
from .comparison import TIDY, release, trials_file, write_designs, write_report
from .settings import ComparisonSettings


@step("design budgets", ComparisonSettings, run_name="design")
def design_budgets(run: RunDirectory, settings: ComparisonSettings) -> Made:
    """Find the best split, and write the settings of all allocations."""
    return once(trials_file(run), write_designs, run, settings)


@step("release comparison", ComparisonSettings, run_name="release")
def release_comparison(run: RunDirectory, settings: ComparisonSettings) -> Made:
    """Write the designed settings and the errors of all allocations."""
    return once(run.release / TIDY, release, run, settings)


@step("report comparison", ComparisonSettings, run_name="report")
def report_comparison(run: RunDirectory, settings: ComparisonSettings) -> Made:
    """Write the page."""
    return created(write_report(run, settings))

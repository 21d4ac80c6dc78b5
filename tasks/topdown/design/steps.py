"""The steps of a comparison of budgets."""

from __future__ import annotations

from ...runs.directory import RunDirectory
from ...runs.handles import Made, made, once
from ...runs.steps import step
from ..paths import state_totals_file
from ..trials import TRIALS
from .comparison import (
    TIDY,
    allocation_folder,
    dataset_folder,
    designs_file,
    prepare_allocation,
    release,
    replicate_file,
    run_replicate,
    write_designs,
    write_report,
)
from .settings import ComparisonSettings


@step("read public input", ComparisonSettings, run_name="read public input")
def read_public_input(run: RunDirectory, settings: ComparisonSettings) -> Made:
    """Read and check the input, which may be disclosed."""
    folder = dataset_folder(run)
    last = state_totals_file(RunDirectory(folder))
    return once(last, TRIALS.read_input, settings.topdown, folder)


@step("design budgets", ComparisonSettings, run_name="design")
def design_budgets(run: RunDirectory, settings: ComparisonSettings) -> Made:
    """Find the best split, and write the settings of all allocations."""
    return once(designs_file(run), write_designs, run, settings)


@step("lay out allocation", ComparisonSettings, run_name="lay-out-{allocation}")
def lay_out_allocation(run: RunDirectory, settings: ComparisonSettings, allocation: str) -> Made:
    """Build the spines and constraints of an allocation."""
    layouts = allocation_folder(run, allocation) / "layouts"
    return once(layouts, prepare_allocation, run, settings, allocation)


@step("release allocation", ComparisonSettings, run_name="release-{allocation}-{seed}")
def release_allocation(
    run: RunDirectory, settings: ComparisonSettings, allocation: str, seed: int
) -> Made:
    """Measure, estimate and compare with the input, under a seed."""
    path = replicate_file(run, allocation, seed)
    return once(path, run_replicate, run, settings, allocation, seed)


@step("release comparison", ComparisonSettings, run_name="release")
def release_comparison(run: RunDirectory, settings: ComparisonSettings) -> Made:
    """Write the designed settings and the errors of all allocations."""
    return once(run.release / TIDY, release, run, settings)


@step("report comparison", ComparisonSettings, run_name="report")
def report_comparison(run: RunDirectory, settings: ComparisonSettings) -> Made:
    """Write the page."""
    return made(write_report(run, settings))

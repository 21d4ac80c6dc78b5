"""The steps that write the releases of runs of persons and of households."""

from __future__ import annotations

from collections.abc import Callable

from ...runs.directory import RunDirectory
from ...runs.handles import Made, found, made
from ...runs.steps import step
from ..settings import DetailedGroupsSettings, DetailedHouseholdsSettings
from .files import T1, write_run_release
from .household_files import TIDY_FILE
from .household_files import write_run_release as write_household_release


@step("write groups", DetailedGroupsSettings, run_name="write groups")
def write_tables(run: RunDirectory, settings: DetailedGroupsSettings) -> Made:
    """Write t1.csv, t2.csv and population_groups.parquet; they are released once checked."""
    return _written(run, T1, lambda: write_run_release(run, settings))


@step("write households", DetailedHouseholdsSettings, run_name="write households")
def write_household_tables(run: RunDirectory, settings: DetailedHouseholdsSettings) -> Made:
    """Write t3.csv, t4.csv and detailed_households.parquet; they are released once checked."""
    return _written(run, TIDY_FILE, lambda: write_household_release(run, settings))


def _written(run: RunDirectory, last: str, write: Callable[[], None]) -> Made:
    """Files that are released or to be checked, the `last` of them too, or else are written."""
    if run.release.exists() or (run.unchecked_release / last).exists():
        return found(run.unchecked_release)
    write()
    return made(run.unchecked_release)

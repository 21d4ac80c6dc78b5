"""The steps that write the releases of runs of persons and of households."""

from __future__ import annotations

from ...runs.directory import RunDirectory
from ...runs.handles import Made, found, made
from ...runs.steps import step
from ..settings import DetailedGroupsSettings, DetailedHouseholdsSettings
from . import household_files as households
from .run import has_unchecked_release, write_run_release


@step("write groups", DetailedGroupsSettings, run_name="write groups")
def write_tables(run: RunDirectory, settings: DetailedGroupsSettings) -> Made:
    """Write t1.csv, t2.csv and population_groups.parquet; they are released once checked."""
    if run.release.exists() or has_unchecked_release(run):
        return found(run.unchecked_release)
    write_run_release(run, settings)
    return made(run.unchecked_release)


@step("write households", DetailedHouseholdsSettings, run_name="write households")
def write_household_tables(run: RunDirectory, settings: DetailedHouseholdsSettings) -> Made:
    """Write t3.csv, t4.csv and detailed_households.parquet; they are released once checked."""
    if run.release.exists() or households.has_unchecked_release(run):
        return found(run.unchecked_release)
    households.write_run_release(run, settings)
    return made(run.unchecked_release)

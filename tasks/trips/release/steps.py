"""The step that writes the released table of trips."""

from __future__ import annotations

from ...runs.directory import RunDirectory
from ...runs.handles import Made, found, made
from ...runs.steps import step
from ..settings import TripsSettings
from .table import RANGE_QUERIES_TEXT, TABLE, write_release


@step("write table", TripsSettings, run_name="table")
def write_table(run: RunDirectory, settings: TripsSettings) -> Made:
    """Write the table and its range queries from the leaves' estimates."""
    if (run.release / f"{TABLE}.csv").exists():
        return found(run.release / f"{TABLE}.csv")
    # Version 0.1.0 wrote no range queries as text: what it left unchecked is written anew.
    names = (f"{TABLE}.csv", RANGE_QUERIES_TEXT)
    if all((run.unchecked_release / name).exists() for name in names):
        return found(run.unchecked_release / f"{TABLE}.csv")
    n_rows = write_release(run, is_private=settings.is_private)
    return made(run.unchecked_release / f"{TABLE}.csv", {"rows": n_rows})

"""The step that writes the tables of a group-sizes release."""

from __future__ import annotations

from ...runs.directory import RunDirectory
from ...runs.handles import Made, found, made
from ...runs.steps import step
from ..estimation.estimate import estimated_counts
from ..ingest.files import read_plan, read_regions
from ..settings import GroupSizesSettings
from .tables import GROUP_SIZES, write_tables


@step("tabulate groups", GroupSizesSettings, run_name="tabulate")
def tabulate(run: RunDirectory, settings: GroupSizesSettings) -> Made:
    """Write the tables where the checks look for them."""
    name = f"{GROUP_SIZES}.csv"
    for folder in (run.release, run.unchecked_release):
        if (folder / name).exists():
            return found(folder / name)
    plan, hierarchy = read_plan(run), read_regions(run)
    write_tables(
        run.unchecked_release,
        hierarchy,
        estimated_counts(run, plan, hierarchy),
        plan.smallest_size,
        is_private=settings.is_private,
    )
    return made(run.unchecked_release / name)

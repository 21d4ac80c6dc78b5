"""The step that writes the tables of a group-sizes release."""

from __future__ import annotations

from spineflow.tasks.group_sizes.estimation.estimate import estimated_counts
from spineflow.tasks.group_sizes.ingest.files import read_plan, read_regions
from spineflow.tasks.group_sizes.release.tables import GROUP_SIZES, write_tables
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Made, found, made
from spineflow.tasks.runs.steps import step


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

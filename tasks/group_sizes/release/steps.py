"""The step that writes the tables of a group-sizes release."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.group_sizes.estimation.run import estimated_counts
from spineflow.tasks.group_sizes.ingest.run_files import read_plan, read_regions
from spineflow.tasks.group_sizes.release.tables import GROUP_SIZES, write_tables
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch


@step("tabulate groups", run_name="tabulate")
def tabulate(run_root: str) -> Artifact:
    """Write the tables where the checks look for them."""
    run = RunDirectory(Path(run_root))
    settings = frozen_settings(GroupSizesSettings, run.settings)
    name = f"{GROUP_SIZES}.csv"
    for folder in (run.release, run.unchecked_release):
        if (folder / name).exists():
            return run.artifact(folder / name, reused=True)
    with stopwatch() as seconds:
        plan, hierarchy = read_plan(run), read_regions(run)
        counts = estimated_counts(run, plan, hierarchy)
        write_tables(
            run.unchecked_release,
            hierarchy,
            counts,
            plan.smallest_size,
            is_private=settings.is_private,
        )
    return run.artifact(run.unchecked_release / name, seconds=seconds())

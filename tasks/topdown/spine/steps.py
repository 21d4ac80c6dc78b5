"""Steps that build, store and summarise the spines."""

from __future__ import annotations

from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Made, found, made
from spineflow.tasks.runs.steps import step
from spineflow.tasks.topdown.paths import spine_folder
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.build import write_universe_spine
from spineflow.tasks.topdown.spine.files import BLOCKS
from spineflow.tasks.topdown.spine.shards import SHARDS, n_geounits, shards_by_geolevel
from spineflow.tasks.topdown.spine.summary import has_summary, summary_folder, write_summary


@step("build spine", TopdownSettings, run_name="spine-{universe}")
def build_spine(run: RunDirectory, settings: TopdownSettings, universe: str) -> Made:
    """Build a universe's spine from the public geography and the declared invariants."""
    folder = spine_folder(run, universe)
    is_there = (folder / SHARDS).exists()
    if not is_there:
        write_universe_spine(run, settings, universe)
    sizes = {level: n_geounits(own) for level, own in shards_by_geolevel(folder).items()}
    return (found if is_there else made)(folder / BLOCKS, sizes)


@step("summarise spine", TopdownSettings, run_name="spine-summary-{universe}")
def summarise_spine(run: RunDirectory, settings: TopdownSettings, universe: str) -> Made:
    """Compare a universe's spine with the AIAN spine: sizes, distances, predicted deviations."""
    folder = summary_folder(run, universe)
    if has_summary(run, universe):
        return found(folder)
    write_summary(run, settings, universe)
    return made(folder)

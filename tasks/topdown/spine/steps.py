"""Steps that build, store and summarise the spines."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.census.invariants import read_geography, read_invariants
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.build import universe_spine
from spineflow.tasks.topdown.spine.files import BLOCKS, read_spine, write_spine
from spineflow.tasks.topdown.spine.shards import SHARDS, cut_spine, write_shards
from spineflow.tasks.topdown.spine.summary import has_summary, summary_folder, write_summary


@step("build spine", run_name="spine-{universe}")
def build_spine(run_root: str, universe: str) -> Artifact:
    """Build a universe's spine from the public geography and the declared invariants."""
    run = RunDirectory(Path(run_root))
    folder = run.spine(universe)
    reused = (folder / SHARDS).exists()
    with stopwatch() as seconds:
        if not reused:
            settings = frozen_settings(TopdownSettings, run.settings)
            geography, invariants = read_geography(run.geography), read_invariants(run.invariants)
            spine = universe_spine(settings, universe, geography, invariants)
            write_spine(spine, folder)
            schema, budget = settings.schema_of(universe), settings.budget_of(universe)
            write_shards(cut_spine(spine, schema, budget), folder)
    spine = read_spine(folder)
    facts = tuple((level.name, len(level)) for level in spine.geolevels)
    return run.artifact(folder / BLOCKS, seconds=seconds(), reused=reused, facts=facts)


@step("summarise spine", run_name="spine-summary-{universe}")
def summarise_spine(run_root: str, universe: str) -> Artifact:
    """Compare a universe's spine with the AIAN spine: sizes, distances, predicted deviations."""
    run = RunDirectory(Path(run_root))
    reused = has_summary(run, universe)
    with stopwatch() as seconds:
        if not reused:
            write_summary(run, frozen_settings(TopdownSettings, run.settings), universe)
    path = str(summary_folder(run, universe).relative_to(run.root))
    return Artifact(path, seconds=seconds(), reused=reused)

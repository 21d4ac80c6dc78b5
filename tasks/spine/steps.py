"""Steps that build and store the spines."""

from __future__ import annotations

from pathlib import Path

from tasks.handles import Artifact
from tasks.ingest.invariants import read_invariants
from tasks.ingest.run import read_geography
from tasks.run_directory import RunDirectory
from tasks.settings import frozen_settings
from tasks.spine.build import universe_spine
from tasks.spine.files import BLOCKS, read_spine, write_spine
from tasks.steps import step
from tasks.timing import stopwatch


@step("build spine", run_name="spine-{universe}")
def build_spine(run_root: str, universe: str) -> Artifact:
    """Build a universe's spine from the public geography and the declared invariants."""
    run = RunDirectory(Path(run_root))
    folder = run.spine(universe)
    reused = (folder / BLOCKS).exists()
    with stopwatch() as seconds:
        if not reused:
            settings = frozen_settings(run.settings)
            geography, invariants = read_geography(run.geography), read_invariants(run.invariants)
            write_spine(universe_spine(settings, universe, geography, invariants), folder)
    spine = read_spine(folder)
    facts = tuple((level.name, len(level)) for level in spine.geolevels)
    return run.artifact(folder / BLOCKS, seconds=seconds(), reused=reused, facts=facts)

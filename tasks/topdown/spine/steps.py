"""Steps that build and store the spines."""

from __future__ import annotations

from collections.abc import Callable

from ...runs.directory import RunDirectory
from ...runs.handles import Made, created, reused
from ...runs.steps import step
from ..paths import spine_folder
from ..settings import TopdownSettings
from .build import write_universe_spine
from .files import BLOCKS
from .shards import SHARDS, n_geounits, shards_by_geolevel


@step("build spine", TopdownSettings, run_name="spine-{universe}")
def build_spine(run: RunDirectory, settings: TopdownSettings, universe: str) -> Made:
    """Build a universe's spine from the public geography and the declared invariants."""
    return spine_once(run, settings, universe, write_universe_spine)


def spine_once(
    run: RunDirectory,
    settings: TopdownSettings,
    universe: str,
    write: Callable[[RunDirectory, TopdownSettings, str], None],
) -> Made:
    """The spine of a universe, made by `write` if missing, and its sizes."""
    folder = spine_folder(run, universe)
    is_there = (folder / SHARDS).exists()
    if not is_there:
        write(run, settings, universe)
    sizes = {level: n_geounits(own) for level, own in shards_by_geolevel(run, universe).items()}
    return (reused if is_there else created)(folder / BLOCKS, sizes)

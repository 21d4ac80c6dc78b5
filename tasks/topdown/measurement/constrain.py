"""From a run's public files to its files of constraints."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ....geography.declared import declared_units
from ....geography.levels import Spine
from ...answers.noisy import write_constraints
from ...census.invariants import read_geography
from ...runs.directory import RunDirectory
from ..paths import constraints_file, geography_file, spine_folder
from ..settings import TopdownSettings
from ..spine.build import universe_spine
from ..spine.files import read_spine
from ..spine.shards import read_shards
from .constraints import constraints_of_shard, resolved_invariants
from .public_answers import held_invariants, public_answers


def refuse_unheld_invariants(run: RunDirectory, settings: TopdownSettings) -> None:
    """Raise InputRefused for an invariant that the run's spine cannot hold."""
    areas = read_geography(geography_file(run))
    units = declared_units(areas, settings.compiled_census.areas.geolevels)
    for universe in settings.run.universes:
        declared = settings.compiled_census.universes[universe]
        resolved_invariants(read_spine(spine_folder(run, universe)), declared, units)


def checked_declared_spines(
    settings: TopdownSettings, areas: pd.DataFrame
) -> Iterator[tuple[str, Spine]]:
    """Build the spine of every universe of a declared census, and refuse what it cannot hold."""
    units = declared_units(areas, settings.compiled_census.areas.geolevels)
    for universe in settings.run.universes:
        spine = universe_spine(settings, universe, areas, areas)
        resolved_invariants(spine, settings.compiled_census.universes[universe], units)
        yield universe, spine


def constrain_universe(run: RunDirectory, settings: TopdownSettings, universe: str) -> int:
    """Write the constraints of every geolevel; returns the number of files that were not there.

    Earlier universes that relations name must have been estimated.
    """
    shards = [
        shard
        for shard in read_shards(spine_folder(run, universe))
        if not constraints_file(run, universe, shard.geolevel, shard.name).exists()
    ]
    if not shards:
        return 0
    spine, schema = read_spine(spine_folder(run, universe)), settings.schema_of(universe)
    zeros, public = settings.zeros_of(universe), public_answers(run, settings, universe, spine)
    declared = held_invariants(settings.compiled_census.universes[universe], public.exact)
    resolved = resolved_invariants(spine, declared, public.units)
    for shard in shards:
        rows = constraints_of_shard(spine, shard, schema, declared, zeros, public, resolved)
        write_constraints(constraints_file(run, universe, shard.geolevel, shard.name), rows)
    return len(shards)

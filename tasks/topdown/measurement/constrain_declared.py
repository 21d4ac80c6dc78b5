"""Constraints of a declared census: what a run holds, from its public files to constraint files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from scipy import sparse

from ....geography.declared import declared_units
from ....geography.levels import Spine
from ...answers.estimates import read_estimates
from ...answers.noisy import write_constraints
from ...census.census import Universe
from ...census.declared_input import read_multiples
from ...census.invariants import read_geography
from ...census.queries import marginal_query
from ...runs.directory import RunDirectory
from ..paths import (
    constraints_file,
    geography_file,
    held_file,
    invariants_file,
    spine_folder,
    state_totals_file,
)
from ..settings import TopdownSettings
from ..spine.build import universe_spine
from ..spine.files import read_spine
from ..spine.shards import Shard, read_shards
from ..workload.settled_types import (
    SETTLED,
    settled_labels,
    settling,
)
from .declared_constraints import (
    declared_constraints,
    declared_resolution,
)


def refuse_unheld_invariants(run: RunDirectory, settings: TopdownSettings) -> None:
    """Raise InputRefused for an invariant that the run's spine cannot hold."""
    geolevels = settings.compiled_census.areas.geolevels
    units = declared_units(read_geography(geography_file(run)), geolevels)
    for universe in settings.run.universes:
        declared = settings.compiled_census.universes[universe]
        declared_resolution(read_spine(spine_folder(run, universe)), declared, units)


def checked_declared_spines(
    settings: TopdownSettings, areas: pd.DataFrame
) -> Iterator[tuple[str, Spine]]:
    """Build the spine of every universe of a declared census, and refuse what it cannot hold."""
    units = declared_units(areas, settings.compiled_census.areas.geolevels)
    for universe in settings.run.universes:
        spine = universe_spine(settings, universe, areas, areas)
        declared_resolution(spine, settings.compiled_census.universes[universe], units)
        yield universe, spine


def constrain_declared(
    run: RunDirectory, settings: TopdownSettings, universe: str, shards: Iterable[Shard]
) -> None:
    """`constrain_universe` for a declared census; earlier universes must have been estimated."""
    spine = read_spine(spine_folder(run, universe))
    declared = settings.compiled_census.universes[universe]
    areas = read_geography(geography_file(run))
    units = declared_units(areas, settings.compiled_census.areas.geolevels)
    public = pq.read_table(invariants_file(run)).to_pandas()
    released = released_sums(run, settings, declared, areas)
    held = read_held(run, settings, universe, len(areas))
    resolved = declared_resolution(spine, declared, units)
    totals = read_declared_totals(state_totals_file(run))[universe]
    for shard in shards:
        rows = declared_constraints(
            spine,
            shard,
            declared,
            settings.zeros_of(universe),
            multiples=[
                read_multiples(public, universe, number) for number in range(len(declared.bounds))
            ],
            units=units,
            resolved=resolved,
            totals=totals,
            released=released,
            held=held,
        )
        write_constraints(constraints_file(run, universe, shard.geolevel, shard.name), rows)


def read_declared_totals(path: Path) -> dict[str, dict[str, dict[str, list[int]]]]:
    """By universe and invariant, the exact answers of every unit by its path."""
    return json.loads(path.read_text(encoding="utf-8"))


def read_held(
    run: RunDirectory, settings: TopdownSettings, universe: str, n_areas: int
) -> dict[str, sparse.csr_array]:
    """By name, the answers `(n_areas, n_rows)` of earlier releases that a universe is held to."""
    declared, schema = settings.compiled_census.universes[universe], settings.schema_of(universe)
    found = {}
    for held in declared.held:
        n_rows = marginal_query(schema, held.query).n_rows
        found[held.name] = _read_held(run, universe, held.name, n_areas, n_rows)
    return found


def _read_held(
    run: RunDirectory, universe: str, name: str, n_areas: int, n_rows: int
) -> sparse.csr_array:
    mine = [("universe", "=", universe), ("held", "=", name)]
    table = pq.read_table(held_file(run), columns=["area", "row", "count"], filters=mine)
    area, row, count = (column.to_numpy() for column in table.columns)
    return sparse.csr_array((count, (area, row)), shape=(n_areas, n_rows))


def read_settled(
    run: RunDirectory, settings: TopdownSettings, universe: str, n_areas: int
) -> tuple[np.ndarray, sparse.csr_array] | None:
    """Settled type `(n_cells,)` of every cell, and the exact answers `(n_areas, n_types)`; None
    where held answers and bounds settle none. See `settled_types`.
    """
    declared, schema = settings.compiled_census.universes[universe], settings.schema_of(universe)
    settled = settling(declared, schema) if settings.interleaves(universe) else None
    if settled is None:
        return None
    held, bounds = settled
    label, types, _ = settled_labels(schema, held.query, bounds[0].query)
    return label, _read_held(run, universe, SETTLED, n_areas, types.size)


def released_sums(
    run: RunDirectory, settings: TopdownSettings, universe: Universe, areas: pd.DataFrame
) -> dict[str, np.ndarray]:
    """By relation, `(n_areas,)` the weighted sum of the released counts of earlier universes."""
    found: dict[str, np.ndarray] = {}
    for relation in universe.relations:
        for side in relation.others:
            spine = read_spine(spine_folder(run, side.universe))
            last = spine.geolevels[-1]
            schema = settings.schema_of(side.universe)
            files = [
                run.estimates(side.universe, last.name, shard.name)
                for shard in read_shards(spine_folder(run, side.universe))
                if shard.geolevel == last.name
            ]
            estimates = read_estimates(files, last.geocode, schema.n_cells)
            sums = np.zeros(len(areas), dtype=np.int64)
            sums[spine.block_row] = estimates @ side.weights
            found[relation.name] = found[relation.name] + sums if relation.name in found else sums
    return found

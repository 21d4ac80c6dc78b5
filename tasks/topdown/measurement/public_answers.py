"""What a run holds exactly, read from its public files: numbers of records that bounds multiply,
answers of invariants, and those of earlier releases.

The 2020 Census counts addresses by block (`invariants.parquet`) and persons by state; a declared
census has a column for every answer of the universes that its bounds are per, and the answers of
its invariants by the path of each unit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from scipy import sparse

from ....geography.declared import GEOCODE, Units, declared_units
from ....geography.levels import Geolevel, Spine
from ...answers.estimates import read_estimates
from ...census.agreements import (
    AgreeingTypes,
    agreeing_types,
    householders_of_cells,
    people_of_cells,
)
from ...census.census import Census, Universe
from ...census.declared_input import read_multiples
from ...census.invariants import FACILITY_COLUMNS, inhabitable, read_state_totals
from ...census.queries import counted_rows, incidence, marginal_query
from ...census.schema import Schema
from ...runs.directory import RunDirectory
from ..paths import geography_file, held_file, invariants_file, state_totals_file
from ..settings import TopdownSettings
from ..spine.files import spine_of
from ..spine.shards import Shard, shards_by_geolevel
from ..workload.implied_types import IMPLIED, implied_labels, implying
from .agreements import agreement, household_limits
from .constraints import (
    WHOLE,
    LevelUnits,
    PublicAnswers,
    UnitAnswers,
    alike,
    listed_kind,
    resolved_units,
)

UNITS, FACILITIES = "units", "facilities"
"""Universes of the Census Edited File whose records in every block are public."""

STATE, HOUSING_UNITS = "State", "housing_units"


def public_answers(
    run: RunDirectory, settings: TopdownSettings, universe: str, spine: Spine
) -> PublicAnswers:
    """What the constraints of a universe are made of.

    Earlier universes that its relations name must have been estimated.
    """
    census, public, n_areas = settings.compiled_census, read_public(run), spine.n_blocks
    declared, units = census.universes[universe], units_of_run(run, census, spine)
    exact = _exact_answers(run, declared, spine, units, public)
    return PublicAnswers(
        lambda rows: frame_multiples(declared, public.iloc[rows]),
        units,
        exact,
        released_sums(run, settings, declared, n_areas),
        read_held(run, settings, universe, n_areas),
        agreed_answers(run, settings, declared, n_areas, exact),
    )


def read_public(run: RunDirectory) -> pd.DataFrame:
    """What is public of the areas that a spine has, in the rows that `Spine.block_row` numbers."""
    file = invariants_file(run)
    columns = [name for name in pq.read_schema(file).names if name != GEOCODE]
    public = pq.read_table(file, columns=columns).to_pandas()
    # The spine of the 2020 Census has the blocks that can hold somebody; the index tells which.
    return public[inhabitable(public)] if HOUSING_UNITS in public else public


def frame_multiples(universe: Universe, public: pd.DataFrame) -> list[np.ndarray]:
    """By bound of a universe, `(n_areas, n_rows)` records of each area that the bound multiplies;
    `public` is the frame that an ingest wrote of what is public of areas.
    """
    if HOUSING_UNITS in public:
        return _address_multiples(universe, public)
    return [read_multiples(public, universe.name, n) for n in range(len(universe.bounds))]


def units_of_areas(census: Census, spine: Spine, areas: pd.DataFrame) -> dict[str, Units]:
    """The declared geounits by geolevel, where the areas have a column for them, and of the 2020
    Census the states.
    """
    if all(geolevel not in areas for geolevel in census.geolevels):
        return {STATE: _states(spine)} if STATE in spine.names else {}
    return declared_units(areas, census.geolevels)


def held_invariants(universe: Universe, held: Mapping[str, object]) -> Universe:
    """A universe with those of its invariants that a run holds; `held` has their names."""
    return replace(universe, invariants=tuple(i for i in universe.invariants if i.name in held))


def units_of_run(run: RunDirectory, census: Census, spine: Spine) -> dict[str, Units]:
    """`units_of_areas` from a run's file, of which only the geolevels' columns are read."""
    file = geography_file(run)
    columns = [name for name in pq.read_schema(file).names if name in census.geolevels]
    return units_of_areas(census, spine, pq.read_table(file, columns=columns).to_pandas())


def _exact_answers(
    run: RunDirectory,
    universe: Universe,
    spine: Spine,
    units: Mapping[str, Units],
    public: pd.DataFrame,
) -> dict[str, UnitAnswers]:
    """By invariant that is held, its exact answers; of the 2020 Census, of persons by state where
    they are declared, and of housing units by block.
    """
    file = state_totals_file(run)
    if HOUSING_UNITS not in public:
        totals = read_declared_totals(file)[universe.name]
        return {
            invariant.name: UnitAnswers.of_units(units[invariant.geolevel], totals[invariant.name])
            for invariant in universe.invariants
        }
    found = {}
    of_states = {state: (total,) for state, total in read_state_totals(file).items()}
    for invariant in universe.invariants:
        if invariant.geolevel == spine.names[-1]:
            own = public[[HOUSING_UNITS]].to_numpy()
            found[invariant.name] = UnitAnswers(own, own[:0], np.empty(0, dtype=object))
        elif of_states:
            found[invariant.name] = UnitAnswers.of_units(units[STATE], of_states)
    return found


def _address_multiples(universe: Universe, addresses: pd.DataFrame) -> list[np.ndarray]:
    facilities = addresses[list(FACILITY_COLUMNS)].to_numpy()
    none = np.zeros((len(addresses), 1), dtype=facilities.dtype)
    counted = {
        UNITS: addresses[[HOUSING_UNITS]].to_numpy(),
        FACILITIES: np.hstack([none, facilities]),
    }
    schema, found = universe.full_schema, []
    for bound in universe.bounds:
        query = marginal_query(schema, bound.query)
        rows = query.row_of_cell[schema.cells_where(bound.where)]
        found.append(counted[bound.per] * (np.bincount(rows, minlength=query.n_rows) > 0))
    return found


def _states(spine: Spine) -> Units:
    """The states of the 2020 Census among the blocks that can hold somebody, by FIPS code."""
    codes = state_codes(spine.geolevel(STATE).geocode)
    path, state = np.unique(codes, return_inverse=True)
    number = np.empty(spine.n_blocks, dtype=np.int64)
    number[spine.block_row] = state.reshape(-1)[spine.ancestors(STATE)]
    return Units(number, path)


def state_codes(state_geocode: np.ndarray) -> np.ndarray:
    """FIPS codes of geounits of the State geolevel: the last two digits on every spine."""
    return np.array([code[-2:] for code in state_geocode], dtype=object)


def shard_units(
    run: RunDirectory, settings: TopdownSettings, universe: Universe, spine: Spine, shard: Shard
) -> dict[str, tuple[LevelUnits, np.ndarray]]:
    """By invariant, how its units lie among a shard's geounits, and the units' paths.

    No more is worked out than the shard needs: of invariants in the finest areas nothing, and of
    one that is listed at its own geolevel that geolevel alone.
    """
    census, n = settings.compiled_census, shard.stop - shard.start
    found = {}
    for invariant in universe.invariants:
        kind: int | None = None
        if invariant.geolevel == census.geolevels[-1]:
            kind = WHOLE
        elif invariant.above is not None and invariant.geolevel not in spine.names:
            continue
        elif invariant.above is not None:
            kind = listed_kind(spine, invariant, shard.geolevel)
        if kind is not None:
            found[invariant.name] = alike(n, kind), np.empty(0, dtype=object)
            continue
        units = units_of_run(run, census, spine)[invariant.geolevel]
        level = resolved_units(spine, invariant, units, invariant.name)[shard.geolevel]
        found[invariant.name] = level.part(shard.start, shard.stop), units.path
    return found


def read_declared_totals(path: Path) -> dict[str, dict[str, dict[str, list[int]]]]:
    """By universe and invariant, the exact answers of every unit by its path."""
    return json.loads(path.read_text(encoding="utf-8"))


def read_held(
    run: RunDirectory, settings: TopdownSettings, universe: str, n_areas: int
) -> dict[str, sparse.csr_array]:
    """By name, the answers `(n_areas, n_rows)` that a universe is held to, of earlier releases and
    of earlier universes of the run, which must have been estimated.
    """
    declared, schema = settings.compiled_census.universes[universe], settings.schema_of(universe)
    found = {}
    for held in declared.held:
        if held.release is None:
            other_schema = settings.schema_of(held.universe)
            counts = area_counts(run, settings, held.universe, n_areas)
            found[held.name] = counts @ counted_rows(
                schema, other_schema, held.query, held.where, held.of
            )
            continue
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


def read_implied_types(
    run: RunDirectory, settings: TopdownSettings, universe: str, n_areas: int
) -> tuple[np.ndarray, sparse.csr_array] | None:
    """Implied type `(n_cells,)` of every cell, and the exact answers `(n_areas, n_types)`; None
    where held answers and bounds imply none. See `implied_types`.
    """
    declared, schema = settings.compiled_census.universes[universe], settings.schema_of(universe)
    implied = implying(declared, schema) if settings.interleaves(universe) else None
    if implied is None:
        return None
    held, bounds = implied
    label, types, _ = implied_labels(schema, held.query, bounds[0].query)
    return label, _read_held(run, universe, IMPLIED, n_areas, types.size)


def released_sums(
    run: RunDirectory, settings: TopdownSettings, universe: Universe, n_areas: int
) -> dict[str, np.ndarray]:
    """By relation, `(n_areas,)` the weighted sum of the released counts of earlier universes."""
    found: dict[str, np.ndarray] = {}
    for relation in universe.relations:
        for side in relation.others:
            sums = area_counts(run, settings, side.universe, n_areas) @ side.weights
            found[relation.name] = found[relation.name] + sums if relation.name in found else sums
    return found


def agreed_answers(
    run: RunDirectory,
    settings: TopdownSettings,
    universe: Universe,
    n_areas: int,
    exact: Mapping[str, UnitAnswers],
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By agreement, least and most `(n_areas, n_rows)` of its query's answers; see `agreements`.

    They follow from released counts and from exact totals, so that they cost nothing. The earlier
    universes must have been estimated.
    """
    found = {}
    schema = settings.schema_of(universe.name)
    types = agreeing_types(universe.agreements, schema)
    if types is not None:
        return _household_answers(run, settings, types, schema, n_areas)
    for one in universe.agreements:
        other_schema = settings.schema_of(one.universe)
        counts = area_counts(run, settings, one.universe, n_areas)
        released = counts @ other_schema.cells_where(one.of).astype(np.int64)
        (invariant,) = universe.invariants
        query = marginal_query(schema, one.query)
        agrees = np.zeros(query.n_rows, dtype=bool)
        agrees[query.row_of_cell[schema.cells_where(one.where)]] = True
        total = exact[invariant.name].of_areas[:, 0]
        found[one.name] = agreement(released, total, one.most, agrees)
    return found


def _household_answers(
    run: RunDirectory, settings: TopdownSettings, types: AgreeingTypes, schema: Schema, n_areas: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """`agreed_answers` of householders, whose answers are the same from below and above, and of
    sizes, with one answer, the number of people.
    """
    found, householders = {}, None
    if types.householders is not None:
        one = types.householders
        other_schema = settings.schema_of(one.universe)
        counts = area_counts(run, settings, one.universe, n_areas)
        row = householders_of_cells(one, schema, other_schema)
        answered = incidence(row, marginal_query(schema, one.query).n_rows)
        householders = (counts @ answered.T).toarray()
        found[one.name] = householders, householders
    if types.sizes is not None:
        one = types.sizes
        other_schema = settings.schema_of(one.universe)
        counts = area_counts(run, settings, one.universe, n_areas)
        least, most = (counts @ people for people in people_of_cells(one, other_schema))
        low, high = household_limits(householders, least, most)
        found[one.name] = low[:, None], high[:, None]
    return found


def area_counts(
    run: RunDirectory, settings: TopdownSettings, universe: str, n_areas: int
) -> sparse.csr_array:
    """Released counts `(n_areas, n_cells)`, in the order of the geography frame."""
    spine, n_cells = spine_of(run, universe), settings.schema_of(universe).n_cells
    found = sparse.coo_array(released_counts(run, universe, spine.geolevels[-1], n_cells))
    rows = spine.block_row[found.row]
    return sparse.csr_array((found.data, (rows, found.col)), shape=(n_areas, n_cells))


def released_counts(
    run: RunDirectory, universe: str, level: Geolevel, n_cells: int, rows: np.ndarray | None = None
) -> sparse.csr_array:
    """Released counts `(n, n_cells)` of all geounits of a geolevel in its order, or of some of them
    by their positions, for which the files of their shards alone are read.
    """
    shards, geocode = shards_by_geolevel(run, universe)[level.name], level.geocode
    if rows is not None:
        ends = np.array([shard.stop for shard in shards])
        held = np.unique(np.searchsorted(ends, rows, side="right"))
        shards, geocode = [shards[i] for i in held], geocode[rows]
    files = [run.estimates(universe, level.name, shard.name) for shard in shards]
    return read_estimates(files, geocode, n_cells)

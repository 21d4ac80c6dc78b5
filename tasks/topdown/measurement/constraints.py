"""Constraints that the declared invariants and the schema put on every geounit.

For persons: between one and 99,999 people per occupied group-quarters facility of each type, at
most 99,999 per housing unit in households, state totals, and structural zeros. For housing units:
the number of units in every geounit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from spineflow.geography.levels import Spine
from spineflow.tasks.answers.noisy import Constraint, write_constraints
from spineflow.tasks.census.invariants import (
    FACILITY_COLUMNS,
    inhabitable,
    read_invariants,
    read_state_totals,
)
from spineflow.tasks.census.schema import Schema
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.measurement.constrain_declared import constrain_declared
from spineflow.tasks.topdown.paths import (
    constraints_file,
    invariants_file,
    spine_folder,
    state_totals_file,
)
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import read_spine
from spineflow.tasks.topdown.spine.shards import Shard, read_shards

MOST_PERSONS_PER_ADDRESS = 99_999

BOUNDED_ATTRIBUTE = "hhgq"
"""Attribute of persons on each of whose levels there are bounds; without it, on the total."""
STATE_TOTAL = "state_total_con"
TOTAL = "total_con"


def bound_names(schema: Schema) -> tuple[str, str]:
    """Names of the lower and of the upper bounds on persons.

    >>> from spineflow.tasks.census.cef_2020 import PERSONS
    >>> bound_names(PERSONS)
    ('hhgq_total_lb_con', 'hhgq_total_ub_con')
    """
    is_typed = BOUNDED_ATTRIBUTE in schema.attributes
    bounded = f"{BOUNDED_ATTRIBUTE}_total" if is_typed else "total"
    return f"{bounded}_lb_con", f"{bounded}_ub_con"


def constraints_of_shard(
    spine: Spine,
    shard: Shard,
    schema: Schema,
    invariants: pd.DataFrame,
    state_totals: Mapping[str, int],
    structural_zeros: Sequence[str],
) -> tuple[Constraint, ...]:
    """All constraints of a shard's geounits.

    `invariants` has one row a block below the shard's geounits, in the order of the spine's blocks.
    A state's total stands once under its FIPS code, whether or not the state is split; where
    `state_totals` is empty they are not declared, and no total of persons is constrained.
    """
    level = spine.geolevel(shard.geolevel)
    geocode = level.geocode[shard.start : shard.stop]
    blocks = spine.blocks_below(shard.geolevel, shard.start, shard.stop)
    geounit = spine.ancestors(shard.geolevel, blocks) - shard.start

    def summed(values: np.ndarray) -> np.ndarray:
        sums = np.zeros((shard.stop - shard.start, *values.shape[1:]), dtype=np.int64)
        np.add.at(sums, geounit, values)
        return sums

    housing_units = summed(invariants["housing_units"].to_numpy())
    if schema.universe == "units":
        return (Constraint(TOTAL, "=", geocode, housing_units[:, None]),)
    lower = summed(invariants[list(FACILITY_COLUMNS)].to_numpy())
    lower = np.column_stack([np.zeros_like(housing_units), lower])
    most = MOST_PERSONS_PER_ADDRESS * lower
    most[:, 0] = MOST_PERSONS_PER_ADDRESS * housing_units
    if BOUNDED_ATTRIBUTE not in schema.attributes:
        lower, most = lower.sum(axis=1, keepdims=True), most.sum(axis=1, keepdims=True)
    lower_name, upper_name = bound_names(schema)
    found = [
        Constraint(lower_name, ">=", geocode, lower),
        Constraint(upper_name, "<=", geocode, most),
    ]
    if shard.geolevel == "US" and state_totals:
        total = np.array([[sum(state_totals.values())]])
        found.append(Constraint(TOTAL, "=", geocode, total))
    if shard.geolevel == "State" and state_totals:
        states = np.unique(state_of(geocode))
        totals = np.array([[state_totals[state]] for state in states])
        found.append(Constraint(STATE_TOTAL, "=", states, totals))
    zeros = np.zeros((len(geocode), 1), dtype=np.int64)
    found += [Constraint(f"{name}_con", "=", geocode, zeros) for name in structural_zeros]
    return tuple(found)


def state_of(state_geocode: np.ndarray) -> np.ndarray:
    """FIPS codes of geounits of the State geolevel: the last two digits on every spine."""
    return np.array([code[-2:] for code in state_geocode], dtype=object)


def constrain_universe(run: RunDirectory, settings: TopdownSettings, universe: str) -> int:
    """Write the constraints of every geolevel; returns the number of files."""
    if settings.is_declared:
        return constrain_declared(run, settings, universe)
    spine = read_spine(spine_folder(run, universe))
    schema = settings.schema_of(universe)
    invariants = read_invariants(invariants_file(run), with_geocodes=False)
    row_of_block = np.flatnonzero(inhabitable(invariants))[spine.block_row]
    totals = read_state_totals(state_totals_file(run))
    zeros = [zero.name for zero in settings.zeros_of(universe)]
    shards = read_shards(spine_folder(run, universe))
    for shard in shards:
        blocks = spine.blocks_below(shard.geolevel, shard.start, shard.stop)
        below = invariants.iloc[row_of_block[blocks]]
        rows = constraints_of_shard(spine, shard, schema, below, totals, zeros)
        write_constraints(constraints_file(run, universe, shard.geolevel, shard.name), rows)
    return len(shards)

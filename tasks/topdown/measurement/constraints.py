"""Constraints that the declared invariants, bounds and structural zeros put on every geounit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ....geography.levels import Spine
from ...answers.noisy import Constraint, write_constraints
from ...census.cef_2020 import CENSUS
from ...census.census import Census, Invariant, Universe
from ...census.invariants import (
    FACILITY_COLUMNS,
    inhabitable,
    read_invariants,
    read_state_totals,
)
from ...census.queries import TOTAL, marginal_query
from ...census.schema import Schema
from ...runs.directory import RunDirectory
from ..paths import (
    constraints_file,
    invariants_file,
    spine_folder,
    state_totals_file,
)
from ..settings import TopdownSettings
from ..spine.files import read_spine
from ..spine.shards import Shard, read_shards
from .constrain_declared import constrain_declared

UNITS, FACILITIES = "units", "facilities"
"""Universes of the Census Edited File whose records in every block are public."""


def constraint_name(name: str, bound: str = "") -> str:
    """The name of a constraint in files.

    >>> constraint_name("total", "_lb")
    'total_lb_con'
    """
    return f"{name}{bound}_con"


def bound_names(schema: Schema, census: Census = CENSUS) -> tuple[str, str]:
    """Names of the lower and of the upper bounds on a universe's records.

    >>> bound_names(CENSUS.schema("units"))
    ('total_lb_con', 'total_ub_con')
    """
    attribute = census.universes[schema.universe].bounded_attribute(schema)
    bounded = TOTAL if attribute is None else f"{attribute}_{TOTAL}"
    return constraint_name(bounded, "_lb"), constraint_name(bounded, "_ub")


def bounds_of(
    schema: Schema, counted: Mapping[str, np.ndarray], census: Census = CENSUS
) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bounds `(n, n_types)` of geounits, the declared bounds added up.

    `counted` are the records of the universes that bounds are per: `(n, n_rows)` by the rows of
    the bounds' queries, or `(n, 1)`. Bounds on an attribute that the schema lacks are on its sum.
    """
    universe = census.universes[schema.universe]
    attribute = universe.bounded_attribute(schema)
    n = len(next(iter(counted.values())))
    sums = []
    for name in ("at_least", "at_most"):
        limit = np.zeros((n, 1), dtype=np.int64)
        for bound in universe.bounds:
            query = marginal_query(universe.full_schema, bound.query)
            rows = query.row_of_cell[universe.full_schema.cells_where(bound.where)]
            inside = np.bincount(rows, minlength=query.n_rows) > 0
            found = (getattr(bound, name) or 0) * counted[bound.per] * inside
            if bound.query != attribute:
                found = found.sum(axis=1, keepdims=True)
            limit = limit + found
        sums.append(limit)
    return sums[0], sums[1]


def counted_records(invariants: pd.DataFrame) -> dict[str, np.ndarray]:
    """The public records of every block `(n, n_rows)`, by the universe that bounds are per."""
    facilities = invariants[list(FACILITY_COLUMNS)].to_numpy()
    none = np.zeros((len(invariants), 1), dtype=facilities.dtype)
    return {
        UNITS: invariants[["housing_units"]].to_numpy(),
        FACILITIES: np.hstack([none, facilities]),
    }


def area_total(universe: Universe, geolevels: Sequence[str]) -> Invariant | None:
    """The universe's invariant total above the last geolevel, None if there is none."""
    found = (i for i in universe.invariants if i.query == TOTAL and i.geolevel != geolevels[-1])
    return next(found, None)


TOTAL_CONSTRAINT = constraint_name(TOTAL)
"""Name of exact totals of geounits."""

_PERSONS = CENSUS.universes["persons"]

STATE_TOTAL = constraint_name(
    next(i.name for i in _PERSONS.invariants if i.geolevel != CENSUS.geolevels[-1])
)
"""Name of the exact totals of the states of the 2020 census, which stand under their FIPS codes."""

MOST_PERSONS_PER_ADDRESS = max(bound.at_most or 0 for bound in _PERSONS.bounds)
"""Most persons per housing unit or facility of the 2020 census."""


def constraints_of_shard(
    spine: Spine,
    shard: Shard,
    schema: Schema,
    invariants: pd.DataFrame,
    state_totals: Mapping[str, int],
    structural_zeros: Sequence[str],
    census: Census = CENSUS,
) -> tuple[Constraint, ...]:
    """All constraints of a shard's geounits.

    `invariants` has one row a block below the shard's geounits, in the order of the spine's blocks.
    A unit's exact total stands once under its own code at its geolevel, whether or not the spine
    splits it; where `state_totals` is empty they are not declared, and no total is constrained.
    """
    level = spine.geolevel(shard.geolevel)
    geocode = level.geocode[shard.start : shard.stop]
    blocks = spine.blocks_below(shard.geolevel, shard.start, shard.stop)
    geounit = spine.ancestors(shard.geolevel, blocks) - shard.start
    universe, geolevels = census.universes[schema.universe], census.geolevels

    def summed(values: np.ndarray) -> np.ndarray:
        sums = np.zeros((shard.stop - shard.start, *values.shape[1:]), dtype=np.int64)
        np.add.at(sums, geounit, values)
        return sums

    counted = {name: summed(values) for name, values in counted_records(invariants).items()}
    found = []
    if universe.bounds:
        lower, most = bounds_of(schema, counted, census)
        lower_name, upper_name = bound_names(schema, census)
        found += [
            Constraint(lower_name, ">=", geocode, lower),
            Constraint(upper_name, "<=", geocode, most),
        ]
    for invariant in universe.invariants:
        if invariant.geolevel == geolevels[-1]:
            name = constraint_name(invariant.name)
            found.append(Constraint(name, "=", geocode, counted[schema.universe]))
    above = area_total(universe, geolevels)
    if above is not None and state_totals:
        if shard.geolevel in geolevels[: geolevels.index(above.geolevel)]:
            total = np.array([[sum(state_totals.values())]])
            found.append(Constraint(constraint_name(TOTAL), "=", geocode, total))
        if shard.geolevel == above.geolevel:
            states = np.unique(state_of(geocode))
            totals = np.array([[state_totals[state]] for state in states])
            found.append(Constraint(constraint_name(above.name), "=", states, totals))
    zeros = np.zeros((len(geocode), 1), dtype=np.int64)
    found += [Constraint(constraint_name(name), "=", geocode, zeros) for name in structural_zeros]
    return tuple(found)


def state_of(state_geocode: np.ndarray) -> np.ndarray:
    """FIPS codes of geounits of the State geolevel: the last two digits on every spine."""
    return np.array([code[-2:] for code in state_geocode], dtype=object)


def constrain_universe(run: RunDirectory, settings: TopdownSettings, universe: str) -> int:
    """Write the constraints of every geolevel; returns the number of files that were not there."""
    shards = [
        shard
        for shard in read_shards(spine_folder(run, universe))
        if not constraints_file(run, universe, shard.geolevel, shard.name).exists()
    ]
    if not shards:
        return 0
    if settings.is_declared:
        constrain_declared(run, settings, universe, shards)
        return len(shards)
    spine = read_spine(spine_folder(run, universe))
    schema = settings.schema_of(universe)
    invariants = read_invariants(invariants_file(run), with_geocodes=False)
    row_of_block = np.flatnonzero(inhabitable(invariants))[spine.block_row]
    totals = read_state_totals(state_totals_file(run))
    zeros = [zero.name for zero in settings.zeros_of(universe)]
    for shard in shards:
        blocks = spine.blocks_below(shard.geolevel, shard.start, shard.stop)
        below = invariants.iloc[row_of_block[blocks]]
        rows = constraints_of_shard(spine, shard, schema, below, totals, zeros)
        write_constraints(constraints_file(run, universe, shard.geolevel, shard.name), rows)
    return len(shards)

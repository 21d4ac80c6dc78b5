"""What declarations and public records tell of people: types that areas can have, exact totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ....geography.declared import Units
from ....geography.levels import Spine
from ...census.census import Universe
from ...census.queries import marginal_query
from ...census.schema import Schema
from ..measurement.constraints import FREE, PART, bound_values, resolved_invariants
from ..settings import TopdownSettings
from .shard_constraints import aligned_rows, typed_query


def possible_types(
    universe: Universe, schema: Schema, multiples: Sequence[np.ndarray], n_areas: int
) -> tuple[np.ndarray, np.ndarray]:
    """Type `(n_cells,)` of every cell, and `(n_areas, n_types)` bool, the types that no bound rules
    out in an area.

    `multiples` are, by bound, the records of each area that it multiplies.
    """
    typed = typed_query(universe, schema)
    types = marginal_query(schema, typed)
    type_is_possible = np.ones((n_areas, types.n_rows), dtype=bool)
    for bounded in universe.bounded_queries:
        query = bounded.asked(schema)
        rows = aligned_rows(bounded.inside(schema), query) if query.name == typed else None
        _, most = bound_values(bounded, schema, [multiples[n] for n in bounded.numbers])
        if rows is not None and most is not None:
            type_is_possible[:, rows] &= most[:, rows] > 0
    return types.row_of_cell, type_is_possible


def known_totals(
    settings: TopdownSettings, universe: str, spine: Spine, units: Mapping[str, Units]
) -> dict[str, np.ndarray]:
    """The deepest geolevel where all totals, or all sums of siblings, are exact, and their numbers;
    those above it follow. Estimates of every area by itself take the areas' own alone. `units` are
    those of `units_of_areas`.
    """
    census, schema = settings.compiled_census, settings.schema_of(universe)
    declared, last = census.universes[universe], census.geolevels[-1]
    held = [
        invariant
        for invariant in declared.invariants
        if marginal_query(schema, invariant.query).n_rows == 1
        and (invariant.geolevel == last or not settings.blocks_only)
        and (invariant.above is None or invariant.geolevel in spine.names)
    ]
    totals = resolved_invariants(spine, replace(declared, invariants=tuple(held)), units).values()
    for name in reversed(spine.names):
        for of_level in totals:
            kind, unit = of_level[name].kind, of_level[name].unit
            if not (kind == FREE).any():
                return {name: np.where(kind == PART, len(kind) + unit, np.arange(len(kind)))}
    return {}

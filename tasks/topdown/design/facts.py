"""What is public of a universe before a run: its spine, its levels, and what is exact on it.

It follows from the declaration, the geography and the records that bounds are per, which the frames
of `ingest.public_tables` have. Nothing confidential is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from ....geography.declared import declared_units
from ....geography.levels import Spine
from ...census.declared_input import read_multiples
from ...census.invariants import inhabitable
from ...census.queries import TOTAL, marginal_query
from ...runs.errors import InputRefused
from ...runs.spelling import did_you_mean
from ..checks.accuracy.levels import (
    EntityLevel,
    declared_entity_levels,
    entity_levels,
    own_level,
)
from ..estimation.declared_shard import aligned_rows, typed_query
from ..estimation.estimate import bounded_type_of_cell
from ..measurement.constraints import bounds_of, counted_records, state_of
from ..measurement.declared_constraints import FREE, PART, declared_resolution
from ..settings import TopdownSettings
from ..spine.build import universe_spine
from ..spine.families import structural_zeros
from ..workload.state_totals import PERSONS, STATE, holds_state_totals


@dataclass(frozen=True, eq=False)
class PublicFacts:
    """A universe of some settings as far as it is public.

    areas : the geography frame of the spine's blocks, whose rows `spine.block_row` numbers.
    type_of_cell : (n_cells,) type of every cell. can_have : (n_blocks, n_types) bool, types that no
        bound rules out in a block.
    known : by geolevel, a number for each of its geounits; the total of all of one number is exact.
    housing_units : (n_blocks,) of the census of 2020; None of a declared one, which has its own.
    """

    settings: TopdownSettings
    universe: str
    spine: Spine
    areas: pd.DataFrame
    type_of_cell: np.ndarray
    can_have: np.ndarray
    known: Mapping[str, np.ndarray]
    housing_units: np.ndarray | None

    @classmethod
    def of(
        cls,
        settings: TopdownSettings,
        universe: str,
        geography: pd.DataFrame,
        invariants: pd.DataFrame,
    ) -> PublicFacts:
        """From the frames of `ingest.public_tables`; raises InputRefused as `universe_spine`."""
        spine = universe_spine(settings, universe, geography, invariants)
        facts = _declared if settings.is_declared else _of_2020
        return facts(settings, universe, spine, geography, invariants)

    @cached_property
    def levels(self) -> tuple[EntityLevel, ...]:
        """The levels of the accuracy report that somebody may be in."""
        if self.settings.is_declared:
            census = self.settings.compiled_census
            levels = declared_entity_levels(self.spine, self.areas, census)
        else:
            levels = entity_levels(self.spine, self.areas)
        return tuple(level for level in levels if (level.entity[self.is_inhabitable] >= 0).any())

    @cached_property
    def is_inhabitable(self) -> np.ndarray:
        """(n_blocks,) bool, where there may be somebody."""
        return np.asarray(self.can_have.any(axis=1))

    @property
    def forbidden(self) -> np.ndarray:
        """(n_cells,) bool, the structural zeros."""
        return structural_zeros(self.settings, self.universe)

    def area_of(self, level: str, where: str) -> np.ndarray:
        """(n_blocks,) the area of a level that each block is in, -1 for none.

        The geounits of the spine are levels too, also where they have another name there. Raises
        InputRefused, naming `where`, for a level that there is not.
        """
        known = {_spelt(x.name): x.entity for x in self.levels}
        own = {_spelt(own_level(name)): name for name in self.spine.names}
        name = _spelt(level)
        if name in known:
            return known[name]
        if name in own:
            return self.spine.ancestors(own[name])
        names = [x.name for x in self.levels]
        raise InputRefused(
            f"{where}.level is {level!r}, which this geography does not have"
            f"{did_you_mean(level, names)}; there are {', '.join(names)}."
        )

    def is_exact(self, query: str, level: str | None) -> bool:
        """Whether a declared census tells the answers to a query at a level by its invariants,
        however noisy the measurements are.

        Estimates are combined with exact totals alone: their variances do not tell of other exact
        answers, which releases are held to afterwards.
        """
        census, schema = self.settings.compiled_census, self.settings.schema_of(self.universe)
        if not self.settings.is_declared:
            return False
        names = census.geolevels
        spelt = [_spelt(name) for name in names]
        # What is estimated for every area by itself is held to nothing above the areas.
        least = len(names) - 1
        if level is not None and _spelt(level) in spelt and not self.settings.blocks_only:
            least = spelt.index(_spelt(level))
        return any(
            marginal_query(schema, invariant.query).refines(marginal_query(schema, query))
            for invariant in census.universes[self.universe].invariants
            if names.index(invariant.geolevel) >= least
        )


def _of_2020(
    settings: TopdownSettings,
    universe: str,
    spine: Spine,
    geography: pd.DataFrame,
    invariants: pd.DataFrame,
) -> PublicFacts:
    """A universe of the census of 2020, of which blocks without an address are no part."""
    census, schema = settings.compiled_census, settings.schema_of(universe)
    inhabited = np.flatnonzero(inhabitable(invariants))
    blocks = invariants.iloc[inhabited[spine.block_row]]
    _, most = bounds_of(schema, counted_records(blocks), census)
    has_bounds = bool(census.universes[universe].bounds)
    known = {}
    if universe == PERSONS and holds_state_totals(settings):
        names = state_of(spine.geolevel(STATE).geocode)
        known[STATE] = np.unique(names.astype(str), return_inverse=True)[1]
    last = census.geolevels[-1]
    if any(
        invariant.query == TOTAL and invariant.geolevel == last
        for invariant in census.universes[universe].invariants
    ):
        known[last] = np.arange(spine.n_blocks)
    return PublicFacts(
        settings,
        universe,
        spine,
        geography.iloc[inhabited].reset_index(drop=True),
        bounded_type_of_cell(schema),
        most > 0 if has_bounds else np.ones((len(blocks), 1), bool),
        known,
        blocks["housing_units"].to_numpy(),
    )


def _declared(
    settings: TopdownSettings,
    universe: str,
    spine: Spine,
    areas: pd.DataFrame,
    multiples: pd.DataFrame,
) -> PublicFacts:
    """A universe of a declared census."""
    declared, schema = settings.compiled_census.universes[universe], settings.schema_of(universe)
    typed = typed_query(declared)
    types = marginal_query(schema, typed)
    can_have = np.ones((len(areas), types.n_rows), dtype=bool)
    for number, bound in enumerate(declared.bounds):
        rows = aligned_rows(bound, schema, types) if bound.query == typed else None
        if rows is not None and bound.at_most is not None:
            most = bound.at_most * read_multiples(multiples, universe, number)
            can_have[:, rows] &= most[:, rows] > 0
    return PublicFacts(
        settings,
        universe,
        spine,
        areas,
        types.row_of_cell,
        can_have[spine.block_row],
        _known_totals(settings, universe, spine, areas),
        None,
    )


def _known_totals(
    settings: TopdownSettings, universe: str, spine: Spine, areas: pd.DataFrame
) -> dict[str, np.ndarray]:
    """The deepest geolevel where all totals, or all sums of siblings, are exact, and their numbers;
    those above it follow. Estimates of every area by itself take the areas' own alone.
    """
    census, schema = settings.compiled_census, settings.schema_of(universe)
    resolved = declared_resolution(
        spine, census.universes[universe], declared_units(areas, census.areas.geolevels)
    )
    totals = [
        resolved[invariant.name]
        for invariant in census.universes[universe].invariants
        if marginal_query(schema, invariant.query).n_rows == 1
        and (not settings.blocks_only or invariant.geolevel == census.geolevels[-1])
    ]
    for name in reversed(spine.names):
        for of_level in totals:
            kind, unit = of_level[name].kind, of_level[name].unit
            if not (kind == FREE).any():
                return {name: np.where(kind == PART, len(kind) + unit, np.arange(len(kind)))}
    return {}


def _spelt(level: str) -> str:
    """A level as names are compared: capitals and underscores do not matter."""
    return level.lower().replace("_", " ")

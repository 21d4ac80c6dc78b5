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

from ....geography.levels import Spine
from ...census.invariants import inhabitable
from ...census.queries import marginal_query
from ...runs.errors import InputRefused
from ...runs.names import did_you_mean
from ..checks.accuracy.levels import EntityLevel, entity_levels, own_level
from ..estimation.public_facts import known_totals, possible_types
from ..measurement.public_answers import HOUSING_UNITS, frame_multiples, units_of_areas
from ..settings import TopdownSettings
from ..spine.build import PublicTables, spines_of


@dataclass(frozen=True, eq=False)
class PublicFacts:
    """A universe of some settings as far as it is public.

    areas : the geography frame of the spine's blocks, whose rows `spine.block_row` numbers.
    type_of_cell : (n_cells,) type of every cell. type_is_possible : (n_blocks, n_types) bool, types
        that no bound rules out in a block.
    known : by geolevel, a number for each of its geounits; the total of all of one number is exact.
    housing_units : (n_blocks,) of the census of 2020; None of a declared one, which has its own.
    """

    settings: TopdownSettings
    universe: str
    spine: Spine
    areas: pd.DataFrame
    type_of_cell: np.ndarray
    type_is_possible: np.ndarray
    known: Mapping[str, np.ndarray]
    housing_units: np.ndarray | None

    @classmethod
    def of(cls, settings: TopdownSettings, universe: str, tables: PublicTables) -> PublicFacts:
        """From the frames of `ingest.public_tables`; raises InputRefused as `universe_spine`."""
        spine, (geography, invariants) = spines_of(settings).spine(universe, tables), tables
        housing_units = None
        if HOUSING_UNITS in invariants:
            # Blocks without an address are no part of the spine.
            used = inhabitable(invariants)
            geography, invariants = (
                frame[used].reset_index(drop=True) for frame in (geography, invariants)
            )
            housing_units = invariants[HOUSING_UNITS].to_numpy()[spine.block_row]
        census = settings.compiled_census
        declared, units = census.universes[universe], units_of_areas(census, spine, geography)
        schema = settings.schema_of(universe)
        multiples = frame_multiples(declared, invariants)
        type_of_cell, type_is_possible = possible_types(declared, schema, multiples, len(geography))
        return cls(
            settings,
            universe,
            spine,
            geography,
            type_of_cell,
            type_is_possible[spine.block_row],
            known_totals(settings, universe, spine, units),
            housing_units,
        )

    @cached_property
    def levels(self) -> tuple[EntityLevel, ...]:
        """The levels of the accuracy report that somebody may be in."""
        levels = entity_levels(self.spine, self.areas, self.settings.compiled_census)
        return tuple(level for level in levels if (level.entity[self.is_inhabitable] >= 0).any())

    @cached_property
    def is_inhabitable(self) -> np.ndarray:
        """(n_blocks,) bool, where there may be somebody."""
        return np.asarray(self.type_is_possible.any(axis=1))

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
        """Whether invariants tell the answers to a query at a level, however noisy the measurements
        are.

        Estimates are combined with exact totals alone: their variances do not tell of other exact
        answers, which releases are held to afterwards.
        """
        census, schema = self.settings.compiled_census, self.settings.schema_of(self.universe)
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


def _spelt(level: str) -> str:
    """A level as names are compared: capitals and underscores do not matter."""
    return level.lower().replace("_", " ")

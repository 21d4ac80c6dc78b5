"""The program of a universe's budget, from settings, geography and declared invariants.

Nothing confidential is read: what the program knows of a block is which types of living quarters it
has, and whether it has housing units, which are declared invariants. The variances are those of
best linear unbiased estimates from all noisy answers, which `full_information` and the intervals
start from. Non-negativity, bounds and rounding come later, and are not in the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from ....geography.levels import Spine
from ...census.invariants import inhabitable
from ...census.queries import TOTAL, marginal_query, normalize_query_name
from ...runs.errors import InputRefused
from ...runs.spelling import did_you_mean
from ..checks.accuracy.levels import entity_levels
from ..estimation.estimate import bounded_type_of_cell
from ..estimation.query_algebra import QueryAlgebra
from ..intervals.answers import ProductAnswers
from ..intervals.area_lists import KnownBlocks, NamedAreas, read_areas
from ..measurement.constraints import bounds_of, counted_records, state_of
from ..settings import TopdownSettings
from ..spine.build import universe_spine
from ..spine.families import structural_zeros
from ..workload.state_totals import PERSONS, STATE, holds_state_totals
from .allocation import Kinds
from .kinds import Asked, MeasuredSpine
from .program import Program
from .settings import DesignSettings, Target

PARTS = 1_000_000
"""Denominator of the shares of the whole budget that a design has."""
MOST_CORE_CELLS = 64
"""Core cells from which the matrices of the recursion are no longer small."""


@dataclass(frozen=True, eq=False)
class UniverseProblem:
    """What mean variances of targets depend on, at a rho of 1.

    geolevels, queries : of an allocation's rows and columns.
    weights : (targets, asked, S) how the components of what is asked make up the mean variances.
    n_areas : (targets,).
    """

    settings: DesignSettings
    universe: str
    geolevels: tuple[str, ...]
    queries: tuple[str, ...]
    measured: MeasuredSpine
    grams: np.ndarray
    asked: tuple[Asked, ...]
    weights: np.ndarray
    n_areas: tuple[int, ...]

    @classmethod
    def of(
        cls,
        settings: DesignSettings,
        universe: str,
        geography: pd.DataFrame,
        invariants: pd.DataFrame,
    ) -> UniverseProblem:
        """The problem of a universe, from the tables of `tasks.census.inputs.read_addresses`.

        Raises InputRefused for targets that are nowhere.
        """
        design, schema = settings.design[universe], settings.schema_of(universe)
        budget = settings.budget_of(universe)
        spine = universe_spine(settings.topdown, universe, geography, invariants)
        known = [name for shares in budget.query_shares.values() for name in shares]
        named = [normalize_query_name(name) for name in design.queries]
        queries = tuple(dict.fromkeys((*named, *known)))
        asked_queries = [marginal_query(schema, target.query) for target in design.targets.values()]
        algebra = QueryAlgebra.build(
            schema,
            [*(marginal_query(schema, name) for name in queries), *asked_queries],
            bounded_type_of_cell(schema),
            structural_zeros(settings.topdown, universe),
        )
        cells = np.arange(len(algebra.cell_type))
        if cells.size > MOST_CORE_CELLS:
            raise InputRefused(
                f"design.{universe}: the queries and targets tell {cells.size} combinations of "
                f"levels apart that no query keeps whole, and {MOST_CORE_CELLS} are too many "
                "already; take targets that coarsen attributes of many levels out."
            )
        inhabited = np.flatnonzero(inhabitable(invariants))
        row_of_block = inhabited[spine.block_row]
        blocks = invariants.iloc[row_of_block]
        frame = geography.iloc[inhabited].reset_index(drop=True)
        measured = _measured(settings.topdown, universe, spine, algebra, blocks)
        housing_units = blocks["housing_units"].to_numpy()
        levels = cache(lambda: {x.name.lower(): x.entity for x in entity_levels(spine, frame)})
        partitions: dict[tuple[object, ...], np.ndarray] = {}
        asked: dict[tuple[object, ...], Asked] = {}
        weights: list[tuple[tuple[object, ...], np.ndarray]] = []
        n_areas = []
        for (name, target), query in zip(design.targets.items(), asked_queries, strict=True):
            where = f"design.{universe}.targets.{name}"
            place = (target.level, target.areas, target.smallest_housing_units)
            if place not in partitions:
                known_blocks = KnownBlocks.of(geography)
                partitions[place] = _areas(
                    target, where, spine, levels, housing_units, known_blocks
                )
            answers = ProductAnswers.of_query(algebra, query)
            key: tuple[object, ...] = (*place, answers.core.tobytes())
            if key not in asked:
                asked[key] = Asked(measured.classed.areas(partitions[place]), answers.core)
            n_areas.append(asked[key].areas.n_areas)
            weights.append((key, _component_weights(answers) / (query.n_rows * n_areas[-1])))
        found = np.zeros((len(weights), len(asked), len(algebra.components)))
        for row, (place_of_row, weight) in enumerate(weights):
            found[row, list(asked).index(place_of_row)] = weight
        grams = np.array([algebra.gram(marginal_query(schema, name), cells) for name in queries])
        return cls(
            settings,
            universe,
            spine.names,
            queries,
            measured,
            grams,
            tuple(asked.values()),
            found,
            tuple(n_areas),
        )

    @property
    def kinds(self) -> Kinds:
        """The kinds in which geounits are measured."""
        return Kinds.of(self.measured.kinds, len(self.geolevels))

    def variances(self, precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean variances of the targets (N,) at precisions (t, Q), and derivatives (N, t, Q)."""
        values, slopes = self.measured.summed_variances(self.grams, precision, self.asked)
        return (
            np.tensordot(self.weights, values, axes=2),
            np.tensordot(self.weights, slopes, axes=2),
        )

    def program(self, scale: np.ndarray) -> Program:
        """The program whose criteria are `scale` (criteria, targets) times the mean variances,
        within the limits, and with the queries that the passes of a geolevel take."""

        def criteria(precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            values, slopes = self.variances(precision)
            return scale @ values, np.tensordot(scale, slopes, axes=1)

        design = self.settings.design[self.universe]
        named = [normalize_query_name(name) for name in design.queries] or self.queries
        allowed = np.array(
            [
                [query in named and query in taken for query in self.queries]
                for taken in self._taken_by_passes()
            ]
        )
        rows, most = [], []
        # Rounding to parts moves every entry by less than one.
        room = allowed.sum() / PARTS
        for limit in design.limits.values():
            query = None if limit.query is None else normalize_query_name(limit.query)
            chosen = np.outer(
                [limit.geolevel in (None, name) for name in self.geolevels],
                [query in (None, name) for name in self.queries],
            ).ravel()
            for sign, bound in ((-1.0, -float(limit.at_least)), (1.0, float(limit.at_most))):
                if bound not in (0.0, 1.0):
                    rows.append(sign * chosen)
                    most.append(bound - room)
        limits = np.array(rows).reshape(-1, allowed.size)
        return Program(self.kinds, criteria, allowed, limits, np.array(most))

    def _taken_by_passes(self) -> Iterator[set[str]]:
        """For each geolevel, the queries that its least-squares passes take where they are
        measured."""
        passes = self.settings.workload_of(self.universe).passes
        for geolevel in self.geolevels:
            chosen = passes.get(geolevel, passes.get("other"))
            taken: set[str] = set(self.queries if chosen is None else ())
            for name in (
                (name for names in chosen.least_squares for name in names) if chosen else ()
            ):
                if name == "all":
                    taken |= set(self.queries)
                elif name.startswith("all but "):
                    left = name.removeprefix("all but ").split(",")
                    taken |= set(self.queries) - {normalize_query_name(part) for part in left}
                else:
                    taken.add(normalize_query_name(name))
            yield taken


def _measured(
    settings: TopdownSettings,
    universe: str,
    spine: Spine,
    algebra: QueryAlgebra,
    blocks: pd.DataFrame,
) -> MeasuredSpine:
    """The spine's classes, with what the invariants of its blocks say of them."""
    census = settings.compiled_census
    _, most = bounds_of(settings.schema_of(universe), counted_records(blocks), census)
    can_have = most > 0 if census.universes[universe].bounds else np.ones((len(blocks), 1), bool)
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
    return MeasuredSpine.build(
        spine,
        settings.budget_of(universe).geolevel_shares,
        can_have[:, algebra.cell_type] & algebra.is_possible,
        known=known,
    )


def _areas(
    target: Target,
    where: str,
    spine: Spine,
    levels: Callable[[], Mapping[str, np.ndarray]],
    housing_units: np.ndarray,
    known: KnownBlocks,
) -> np.ndarray:
    """(n_blocks,) area of each block of the spine, -1 for none; raises InputRefused for none at
    all."""
    if target.areas is not None:
        named = NamedAreas.listed(read_areas(Path(target.areas)), spine.block_geocode, known)
        if np.bincount(named.blocks.block).max(initial=0) > 1:
            raise InputRefused(
                f"{target.areas} has a block in several areas; those of {where} may not overlap."
            )
        area = np.full(spine.n_blocks, -1)
        area[named.blocks.block] = named.blocks.area
    else:
        name = str(target.level).lower().replace("_", " ")
        if name not in levels():
            raise InputRefused(
                f"{where}.level is {target.level!r}, which this geography does not have"
                f"{did_you_mean(name, levels())}; there are {', '.join(levels())}."
            )
        area = levels()[name].copy()
    inside = area >= 0
    units = np.bincount(area[inside], housing_units[inside])
    area[inside] = np.where(units[area[inside]] >= target.smallest_housing_units, area[inside], -1)
    if not (area >= 0).any():
        raise InputRefused(
            f"{where} has no area with {target.smallest_housing_units:,} housing units or more."
        )
    return area


def _component_weights(answers: ProductAnswers) -> np.ndarray:
    """(S,) how often the variance of each component's coordinates counts in the sum over all of a
    query's answers, for each of its core rows alike."""
    found = np.ones(len(answers.algebra.components))
    for bit, sets in enumerate(answers.coordinates):
        first, others = float((sets[:, 0] ** 2).sum()), float((sets[:, 1:] ** 2).sum())
        sees = np.arange(len(found)) >> bit & 1
        found *= np.where(sees, others, first)
    return found

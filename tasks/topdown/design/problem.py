"""The program of a universe's budget, from settings, geography and declared invariants.

Nothing confidential is read: the program uses each block's types of living quarters and whether
it has housing units, which are declared invariants; for an area of a declared
census, the facts that its invariants and bounds make public. The variances are those of
best linear unbiased estimates from all noisy answers, which `full_information` and the intervals
start from. Non-negativity, bounds and rounding come later, and are not in the program.

Allocations of a budget: the loss of each query at each geolevel, as fractions of the whole.

An allocation is p (L, Q), not negative, of sum 1: geolevel l has the share P_l, the sum of its row,
and its query q the share p_lq / P_l.

Under the discrete Gaussian mechanism a geounit is measured with the shares of one or more geolevels
and the query shares of its own, for the bypass gives a parent with one child the share of the
child. With an allocation p (L, Q), whose row l sums to P_l, a kind of geolevel l with the
shares of the geolevels T have the precision

    v_q = rho p_lq (sum of P_j over j in T) / P_l,

which is rho p_lq but for geounits that a bypass has given the shares of other geolevels. Variances
follow from the information of the kinds, which is linear in the precisions; the recursion and its
derivatives are in `geography.variance`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import compress
from pathlib import Path

import numpy as np
import pandas as pd

from ....geography.classes import ClassedAreas, ClassedSpine
from ....geography.levels import Spine
from ....geography.variance import Covariances
from ...census.invariants import inhabitable
from ...census.queries import MarginalQuery, marginal_query, normalize_query_name
from ...runs.errors import InputRefused
from ...runs.names import did_you_mean
from ...solvers.split import GeounitClasses, Program, round_shares
from ..checks.accuracy.subjects import EntityLevel, entity_levels, own_level
from ..checks.accuracy.theory import PublicFacts
from ..estimation.query_algebra import QueryAlgebra
from ..intervals.answers import ProductAnswers
from ..intervals.areas import KnownBlocks, NamedAreas, read_areas
from ..measurement.public_answers import HOUSING_UNITS, units_of_areas
from ..settings import TopdownSettings
from ..spine.build import PublicTables, spines_of
from ..workload.budget import Budget
from ..workload.implied_types import structural_zeros
from .settings import Target, UniverseDesign

PRIOR = 1e-7
"""Information about every coordinate of a block, relative to a precision of 1.

Unmeasured coordinates would have infinite variances; this makes no variance larger."""


def to_fractions(p: np.ndarray, denominator: int) -> list[list[Fraction]]:
    """The allocation in whole parts of `denominator`, of sum exactly 1."""
    parts = round_shares(np.ravel(p), denominator)
    width = p.shape[1]
    return [parts[start : start + width] for start in range(0, len(parts), width)]


def shares_of(
    fractions: Sequence[Sequence[Fraction]], geolevels: Sequence[str], queries: Sequence[str]
) -> tuple[dict[str, Fraction], dict[str, dict[str, Fraction]]]:
    """Geolevel shares, and the nonzero query shares of every geolevel."""
    of_geolevel = {
        name: sum(row, Fraction(0)) for name, row in zip(geolevels, fractions, strict=True)
    }
    of_query = {
        name: {
            query: share / of_geolevel[name]
            for query, share in zip(queries, row, strict=True)
            if share
        }
        for name, row in zip(geolevels, fractions, strict=True)
    }
    return of_geolevel, of_query


def allocation_of(
    geolevel_shares: Mapping[str, Fraction],
    query_shares: Mapping[str, Mapping[str, Fraction]],
    queries: Sequence[str],
) -> np.ndarray:
    """(L, Q) allocation of a budget's shares."""
    return np.array(
        [
            [float(share * query_shares[name].get(query, 0)) for query in queries]
            for name, share in geolevel_shares.items()
        ]
    )


@dataclass(frozen=True, eq=False)
class RequestedAreas:
    """Areas, and the requested sums over core cells in each, (z, n)."""

    areas: ClassedAreas
    core: np.ndarray


@dataclass(frozen=True, eq=False)
class MeasuredSpine:
    """The classes of a spine's geounits, and the kinds in which they are measured."""

    kinds: GeounitClasses
    classed: ClassedSpine

    @classmethod
    def build(
        cls,
        spine: Spine,
        geolevel_shares: Mapping[str, Fraction],
        cells: np.ndarray,
        *,
        known: Mapping[str, np.ndarray] | None = None,
    ) -> MeasuredSpine:
        """The classes of a spine under the discrete Gaussian mechanism.

        Args:
            geolevel_shares: the shares that the spine was built with.
            cells, known: as of `ClassedSpine.build`, the cells being core cells.

        Raises ValueError if the spine's shares do not follow from the bypass.
        """
        kinds, of_level = _kinds(spine, geolevel_shares)
        return cls(kinds, ClassedSpine.build(spine, of_level, cells, known=known))

    def summed_variances(
        self, grams: np.ndarray, precision: np.ndarray, asked: Sequence[RequestedAreas]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Variances by component, summed over rows of `core` and over areas, and their derivatives.

        Args:
            grams: (Q, S, n, n) Gram matrices of the queries on all core cells.
            precision: (kinds, Q) inverse variance of every kind's answers to every query.

        Returns `(asked, S)` and `(asked, S, kinds, Q)`.

        Example: one block of one cell, measured with precision 4, has the variance 1/4, and its
        derivative is -1/16.
        """
        counted = self.classed.information
        information = np.tensordot(counted @ precision, grams, axes=1)
        covariances = Covariances.of(self.classed, information, prior=PRIOR)
        values, derivatives = [], []
        for one in asked:
            value, of_information = covariances.slopes(one.areas, one.core)
            by_kind = counted.T @ of_information.reshape(len(of_information), -1)
            by_kind = by_kind.reshape(-1, *of_information.shape[1:])
            values.append(value)
            derivatives.append(np.einsum("tsij,qsij->stq", by_kind, grams, optimize=True))
        return np.array(values), np.array(derivatives)


def _kinds(
    spine: Spine, geolevel_shares: Mapping[str, Fraction]
) -> tuple[GeounitClasses, list[np.ndarray]]:
    """The kinds, and by geolevel the kind of each geounit, -1 for none."""
    shares = [geolevel_shares[name] for name in spine.names]
    masks = [np.full(len(level), 1 << depth) for depth, level in enumerate(spine.geolevels)]
    # A geolevel without a share is not bypassed, but not measured.
    if any(
        share and level.bypassed.any() for share, level in zip(shares, spine.geolevels, strict=True)
    ):
        for depth in range(len(spine.geolevels) - 1, 0, -1):
            parent = spine.geolevels[depth].parent
            single = np.bincount(parent, minlength=len(masks[depth - 1]))[parent] == 1
            masks[depth - 1][parent[single]] |= masks[depth][single]
            masks[depth][single] = 0
    depths, rows, of_level = list[int](), list[np.ndarray](), []
    for depth, (level, mask) in enumerate(zip(spine.geolevels, masks, strict=True)):
        pairs = np.unique(np.stack([mask, level.plb_share_code]), axis=1).T.tolist()
        kind = np.full(len(level), -1)
        for bits, share in pairs:
            own = [bits >> place & 1 for place in range(len(shares))]
            if level.plb_shares[share] != sum(compress(shares, own), Fraction(0)):
                raise ValueError(f"shares of {level.name} do not follow from the bypass")
            if bits:
                kind[mask == bits] = len(rows)
                depths.append(depth)
                rows.append(np.array(own, dtype=np.float64))
        of_level.append(kind)
    return GeounitClasses(np.array(depths), np.array(rows)), of_level


ONE = Fraction(1)
PARTS = 1_000_000
"""Denominator of the shares of the whole budget in a design."""
MOST_CORE_CELLS = 64
"""Core cells from which the matrices of the recursion are no longer small."""


class TooManyCombinations(InputRefused):
    """Queries distinguish too many combinations of levels for variances to be computed."""


@dataclass(frozen=True, eq=False)
class SpineAreas:
    """The areas of a universe of some settings.

    facts : of the universe. geography : rows of the geography frame of the spine's blocks, in their
        order.
    """

    facts: PublicFacts
    geography: pd.DataFrame

    @classmethod
    def of(cls, settings: TopdownSettings, universe: str, tables: PublicTables) -> SpineAreas:
        """From the frames of `ingest.public_tables`; raises InputRefused as `universe_spine`."""
        spine, (geography, public) = spines_of(settings).spine(universe, tables), tables
        if HOUSING_UNITS in public:
            # Blocks without an address are no part of the spine.
            public = public[inhabitable(public)]
        areas = geography.loc[public.index].reset_index(drop=True)
        units = units_of_areas(settings.compiled_census, spine, areas)
        facts = PublicFacts.of(settings, universe, spine, public, units)
        return cls(facts, areas.iloc[spine.block_row])

    @cached_property
    def levels(self) -> tuple[EntityLevel, ...]:
        """The inhabitable levels of the accuracy report."""
        census = self.facts.settings.compiled_census
        levels = entity_levels(self.facts.spine, self.geography, census)
        return tuple(level for level in levels if (level.entity[self.is_inhabitable] >= 0).any())

    @cached_property
    def is_inhabitable(self) -> np.ndarray:
        """(n_blocks,) bool, whether a block is inhabitable."""
        return np.asarray(self.facts.type_is_possible.any(axis=1))

    def area_of(self, level: str, where: str) -> np.ndarray:
        """(n_blocks,) the area of a level that each block is in, -1 for none.

        The geounits of the spine are levels too, also where they have another name there. Raises
        InputRefused, naming `where`, for an unknown level.
        """
        known = {_normalise_level(x.name): x.entity for x in self.levels}
        own = {_normalise_level(own_level(name)): name for name in self.facts.spine.names}
        name = _normalise_level(level)
        if name in known:
            return known[name]
        if name in own:
            return self.facts.spine.ancestors(own[name])
        names = [x.name for x in self.levels]
        raise InputRefused(
            f"{where}.level is {level!r}, which this geography does not have"
            f"{did_you_mean(level, names)}; there are {', '.join(names)}."
        )

    def is_exact(self, query: str, level: str | None) -> bool:
        """Whether invariants determine the answers to a query at a level, however noisy the
        measurements are.

        Estimates are combined with exact totals alone: their variances do not reflect other exact
        answers, which are imposed on releases afterwards.
        """
        settings, universe = self.facts.settings, self.facts.universe
        census, schema = settings.compiled_census, settings.schema_of(universe)
        names = census.geolevels
        spelt = [_normalise_level(name) for name in names]
        # Estimates for every area by itself meet no constraint above the areas.
        least = len(names) - 1
        if level is not None and _normalise_level(level) in spelt and not settings.blocks_only:
            least = spelt.index(_normalise_level(level))
        return any(
            marginal_query(schema, invariant.query).refines(marginal_query(schema, query))
            for invariant in census.universes[universe].invariants
            if names.index(invariant.geolevel) >= least
        )


def _normalise_level(level: str) -> str:
    """A level as names are compared: capitals and underscores do not matter."""
    return level.lower().replace("_", " ")


@dataclass(frozen=True, eq=False)
class UniverseProblem:
    """Inputs of the mean variances of targets, at a rho of 1.

    geolevels, queries : of an allocation's rows and columns.
    weights : (targets, asked, S) weights of the components of each requested answer in the mean
        variances.
    n_areas : (targets,).
    """

    settings: TopdownSettings
    universe: str
    design: UniverseDesign
    geolevels: tuple[str, ...]
    queries: tuple[str, ...]
    measured: MeasuredSpine
    grams: np.ndarray
    asked: tuple[RequestedAreas, ...]
    weights: np.ndarray
    n_areas: tuple[int, ...]

    @classmethod
    def of(
        cls,
        settings: TopdownSettings,
        universe: str,
        design: UniverseDesign,
        tables: PublicTables,
        section: str = "design",
    ) -> UniverseProblem:
        """The problem of a universe, from the tables of `ingest.public_tables`; `section` of the
        settings asks for its queries.

        Raises InputRefused for targets without areas, and TooManyCombinations.
        """
        schema, budget = settings.schema_of(universe), settings.budget_of(universe)
        areas = SpineAreas.of(settings, universe, tables)
        facts = areas.facts
        named = [normalize_query_name(name) for name in design.queries]
        queries = tuple(dict.fromkeys((*named, *budget.queries)))
        asked_queries = [marginal_query(schema, target.query) for target in design.targets.values()]
        algebra = _algebra(
            facts, [*(marginal_query(schema, name) for name in queries), *asked_queries], section
        )
        cells = np.arange(len(algebra.cell_type))
        measured = MeasuredSpine.build(
            facts.spine,
            budget.geolevel_shares,
            facts.type_is_possible[:, algebra.cell_type] & algebra.is_possible,
            known=facts.known,
        )
        blocks = KnownBlocks.of(tables[0], settings.compiled_census.code_column)
        partitions: dict[tuple[object, ...], np.ndarray] = {}
        asked: dict[tuple[object, ...], RequestedAreas] = {}
        weights: list[tuple[tuple[object, ...], np.ndarray]] = []
        n_areas = []
        for (name, target), query in zip(design.targets.items(), asked_queries, strict=True):
            where = f"design.{universe}.targets.{name}"
            place = (target.level, target.areas, target.smallest_housing_units)
            if place not in partitions:
                partitions[place] = _areas(target, where, areas, blocks)
            answers = ProductAnswers.of(algebra, query.matrix)
            key: tuple[object, ...] = (*place, answers.core.tobytes())
            if key not in asked:
                asked[key] = RequestedAreas(measured.classed.areas(partitions[place]), answers.core)
            n_areas.append(asked[key].areas.n_areas)
            noisy = 0 if areas.is_exact(target.query, target.level) else 1
            per_answer = noisy / (query.n_rows * n_areas[-1])
            weights.append((key, _component_weights(answers) * per_answer))
        found = np.zeros((len(weights), len(asked), len(algebra.components)))
        for row, (place_of_row, weight) in enumerate(weights):
            found[row, list(asked).index(place_of_row)] = weight
        grams = np.array([algebra.gram(marginal_query(schema, name), cells) for name in queries])
        return cls(
            settings,
            universe,
            design,
            facts.spine.names,
            queries,
            measured,
            grams,
            tuple(asked.values()),
            found,
            tuple(n_areas),
        )

    def precision(self, budget: Budget) -> tuple[np.ndarray, float]:
        """The precisions (t, Q) of a budget's noise, relative to an answer which gets all
        of it, and the precision of that answer.

        For a discrete Gaussian they equal `Kinds.precision` at a rho of 1.
        """
        if not budget.is_pure:
            p = allocation_of(budget.geolevel_shares, budget.query_shares, self.queries)
            return self.measured.kinds.precision(p), float(budget.total)
        whole = 1 / budget.noise(ONE, ONE).variance
        kinds, shares = self.measured.kinds, budget.geolevel_shares.values()
        found = np.zeros((len(kinds.depth), len(self.queries)))
        for row, depth in enumerate(kinds.depth):
            share = sum(compress(shares, kinds.shares[row]), Fraction(0))
            for name, part in budget.query_shares[self.geolevels[depth]].items():
                variance = budget.noise(share, part).variance
                found[row, self.queries.index(name)] = 1 / variance
        return found / whole, whole

    def variances(self, precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean variances of the targets (N,) at precisions (t, Q), and derivatives (N, t, Q)."""
        values, slopes = self.measured.summed_variances(self.grams, precision, self.asked)
        return (
            np.tensordot(self.weights, values, axes=2),
            np.tensordot(self.weights, slopes, axes=2),
        )

    def program(self, scale: np.ndarray) -> Program:
        """The program whose criteria are `scale` (criteria, targets) times the mean variances, with
        the queries that the passes of a geolevel take."""

        def criteria(precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            values, slopes = self.variances(precision)
            return scale @ values, np.tensordot(scale, slopes, axes=1)

        return Program(self.measured.kinds, criteria, self._asked)

    @cached_property
    def _asked(self) -> np.ndarray:
        """(L, Q) bool: queries that may be measured, and that the least-squares passes of a
        geolevel take where they are measured."""
        named = [normalize_query_name(name) for name in self.design.queries] or self.queries
        rows = []
        for geolevel in self.geolevels:
            passes = self.settings.passes_of(self.universe, geolevel, self.queries)
            taken = {name for names in passes.least_squares for name in names}
            rows.append([query in named and query in taken for query in self.queries])
        return np.array(rows)


def _algebra(facts: PublicFacts, queries: Sequence[MarginalQuery], section: str) -> QueryAlgebra:
    """Coordinates for the queries, which a section of the settings asks for; raises
    TooManyCombinations where their matrices would not be small.

    Where structural zeros alone separate too many cells they are left out: that makes no variance
    smaller.
    """
    schema = facts.settings.schema_of(facts.universe)
    forbidden = structural_zeros(facts.settings, facts.universe)
    for zeros in (forbidden, np.zeros_like(forbidden)):
        algebra = QueryAlgebra.build(schema, queries, facts.type_of_cell, zeros)
        if len(algebra.cell_type) <= MOST_CORE_CELLS:
            return algebra
    raise TooManyCombinations(
        f"{section}.{facts.universe} distinguishes {len(algebra.cell_type):,} combinations of "
        f"levels of {_distinguished_attributes(algebra, queries)}, and {MOST_CORE_CELLS} are the "
        "most; ask for these attributes as a whole, or declare fewer levels of them"
    )


def _distinguished_attributes(algebra: QueryAlgebra, queries: Sequence[MarginalQuery]) -> str:
    """The attributes whose levels some query keeps only in part, and their coarsenings there."""
    found = []
    for axis in algebra.core:
        n = algebra.schema.shape[axis]
        coarse = dict.fromkeys(q.name for q in queries if 1 < len(set(q.factors[axis])) < n)
        by = f", coarsened by {' and '.join(map(repr, coarse))}" if coarse else ""
        found.append(f"{algebra.schema.attributes[axis]} ({n:,} levels{by})")
    return " and ".join(found)


def _areas(target: Target, where: str, areas: SpineAreas, known: KnownBlocks) -> np.ndarray:
    """(n_blocks,) area of each block of the spine, -1 for none; raises InputRefused for none at
    all."""
    facts = areas.facts
    if target.areas is not None:
        blocks = facts.spine.block_geocode
        listed = read_areas(Path(target.areas), known.word, facts.settings.written)
        named = NamedAreas.listed(listed, known, blocks)
        if np.bincount(named.blocks.block).max(initial=0) > 1:
            raise InputRefused(
                f"{target.areas} has a {known.word.lower()} in several areas; the areas of {where} "
                "may not overlap."
            )
        area = np.full(facts.spine.n_blocks, -1)
        area[named.blocks.block] = named.blocks.area
    else:
        area = areas.area_of(str(target.level), where)
    # Uninhabitable areas have no uncertainty.
    area = np.where(areas.is_inhabitable, area, -1)
    least, units = target.smallest_housing_units, facts.housing_units
    if least and units is None:
        raise InputRefused(
            f"{where}.smallest_housing_units is of the census of 2020; of a declared census, list "
            "the areas that are meant in a file, and name it as areas."
        )
    if units is not None:
        inside = area >= 0
        sums = np.bincount(area[inside], units[inside])
        area[inside] = np.where(sums[area[inside]] >= least, area[inside], -1)
    if not (area >= 0).any():
        raise InputRefused(
            f"{where} has no area" + (f" with {least:,} housing units or more." if least else ".")
        )
    return area


def _component_weights(answers: ProductAnswers) -> np.ndarray:
    """(S,) multiplicity of the variance of each component's coordinates in the sum over all of a
    query's answers, equal for all its core rows."""
    each, found = np.arange(answers.n_answers), np.zeros(len(answers.algebra.components))
    found[answers.places] = answers.coupling(each, each).sum(axis=1) / len(answers.core)
    return found

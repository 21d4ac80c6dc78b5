"""Estimating one shard: the children of a run of parents at one geolevel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from scipy import sparse

from ....geography.declared import declared_units
from ....geography.levels import Spine
from ...answers.demanded import DemandedAnswers, read_demanded
from ...answers.estimates import write_estimates
from ...answers.noisy import DPQUERY_SUFFIX, read_constraints, read_measurements
from ...census.cef_2020 import CENSUS
from ...census.census import Universe
from ...census.invariants import read_geography
from ...census.queries import TOTAL, MarginalQuery, marginal_query
from ...census.schema import Schema
from ...runs.directory import RunDirectory
from ...runs.errors import InputRefused
from ..measurement.constrain_declared import read_settled
from ..measurement.constraints import (
    area_total,
    bound_names,
    constraint_name,
    state_of,
)
from ..measurement.declared_constraints import (
    LevelUnits,
    declared_resolution,
)
from ..measurement.demand import demanded_rows
from ..paths import (
    constraints_file,
    demanded_file,
    geography_file,
    solves_file,
    spine_folder,
)
from ..settings import TopdownSettings
from ..spine.families import Family, families_of_shard
from ..spine.shards import Shard, read_shards
from ..workload.budget import Budget
from .declared_shard import DeclaredConstraints, ExactTypes
from .exact_weights import ExactWeights
from .parent import Passes, SolveRecord, estimate_children
from .problem import (
    NO_BOUND,
    LinearRows,
    Measurements,
    QueryMeasurement,
    SiblingProblem,
)
from .solves import write_solves


@dataclass(frozen=True)
class ShardConstraints:
    """Constraints of a shard's geounits in the solver's terms; see `SiblingProblem`.

    lower, upper : (n, T) bounds on each geounit's records of each type.
    total : (n,) exact totals, or None.
    state, state_total : (n,) row of each geounit's state in `state_total`, or None.
    """

    lower: np.ndarray
    upper: np.ndarray
    total: np.ndarray | None
    state: np.ndarray | None
    state_total: np.ndarray | None

    @classmethod
    def read(
        cls, path: Path, schema: Schema, geolevel: str, geocode: np.ndarray
    ) -> ShardConstraints:
        """From a constraints file; geounits without bounds get 0 and `NO_BOUND` on their total."""
        constraints = read_constraints(path, geocode)
        lower = np.zeros((len(geocode), 1), dtype=np.int64)
        upper = np.full((len(geocode), 1), NO_BOUND, dtype=np.int64)
        total = state = state_total = None
        lower_name, upper_name = bound_names(schema)
        if (lower_name, ">=") in constraints:
            lower = constraints[lower_name, ">="].values
            upper = constraints[upper_name, "<="].values
        exact = (constraint_name(TOTAL), "=")
        if exact in constraints:
            total = constraints[exact].values[:, 0]
        invariant = area_total(CENSUS.universes[schema.universe], CENSUS.geolevels)
        if invariant is not None and geolevel == invariant.geolevel:
            states, state = np.unique(state_of(geocode), return_inverse=True)
            state_totals = read_constraints(path, states)
            exact = (constraint_name(invariant.name), "=")
            if exact in state_totals:
                state_total = state_totals[exact].values[:, 0]
        return cls(lower, upper, total, state if state_total is not None else None, state_total)

    def totals(self, start: int, stop: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Groups of the siblings `start` to `stop`, and the exact total of each; None without."""
        if self.total is not None:
            return np.arange(stop - start), self.total[start:stop]
        if self.state is not None and self.state_total is not None:
            states, group = np.unique(self.state[start:stop], return_inverse=True)
            return group, self.state_total[states]
        return None, None

    @property
    def can_have(self) -> np.ndarray:
        """Types `(n, T)` that the geounits can have."""
        return self.upper > 0

    @property
    def known_totals(self) -> np.ndarray | None:
        """Exact totals `(n,)` of the geounits, if all are known."""
        return self.total

    @property
    def known_sums(self) -> tuple[np.ndarray, np.ndarray] | None:
        """The state `(n,)` of every geounit, and the states' exact totals, if they are known."""
        if self.state is None or self.state_total is None:
            return None
        return self.state, self.state_total

    def linear_rows(self, start: int, stop: int, support: np.ndarray) -> tuple[LinearRows, ...]:
        """None: bounds of types and totals are all there is."""
        return ()


@dataclass(frozen=True)
class ShardInput:
    """What estimating a shard starts from, but for the parents' estimates.

    geocode : (n,) of the shard's geounits.
    measured : their answers by query, noisy or otherwise, that the passes get.
    demanded : the same of a universe that is measured on demand, which has none in `measured`.
    """

    run: RunDirectory
    settings: TopdownSettings
    universe: str
    spine: Spine
    shard: Shard
    schema: Schema
    geocode: np.ndarray
    type_of_cell: np.ndarray
    constraints: ShardConstraints | DeclaredConstraints
    measured: Mapping[str, QueryMeasurement]
    demanded: Mapping[str, DemandedMeasurement]

    @classmethod
    def read(
        cls,
        run: RunDirectory,
        settings: TopdownSettings,
        universe: str,
        spine: Spine,
        shard: Shard,
        *,
        measured: Mapping[str, QueryMeasurement] | None = None,
        with_held: bool = True,
    ) -> ShardInput:
        """From published measurements, which `measured` replaces, and constraints; nothing
        confidential.

        Without `with_held`, constraints are facts of the people alone: answers that are held to an
        earlier release are not, since they have that release's noise.
        """
        schema, budget = settings.schema_of(universe), settings.budget_of(universe)
        geolevel = shard.geolevel
        geocode = spine.geolevel(geolevel).geocode[shard.start : shard.stop]
        constraints = constraints_file(run, universe, geolevel, shard.name)
        demanded: Mapping[str, DemandedMeasurement] = {}
        if measured is None and settings.is_on_demand(universe):
            path = demanded_file(run, universe, geolevel, shard.name)
            measured, demanded = {}, read_demanded_measurements(path, schema, budget, geocode)
        elif measured is None:
            dpqueries = run.dpqueries(universe, geolevel, shard.name)
            measured = read_query_measurements(dpqueries, schema, budget, geocode)
        held: ShardConstraints | DeclaredConstraints
        if settings.is_declared:
            declared = settings.compiled_census.universes[universe]
            declared = declared if with_held else replace(declared, held=())
            held = _declared_constraints(run, settings, declared, spine, shard, constraints)
            type_of_cell = held.type_of_cell
        else:
            held = ShardConstraints.read(constraints, schema, geolevel, geocode)
            type_of_cell = bounded_type_of_cell(schema)
        return cls(
            run,
            settings,
            universe,
            spine,
            shard,
            schema,
            geocode,
            type_of_cell,
            held,
            measured,
            demanded,
        )

    def families(self) -> Iterator[Family]:
        """The shard's families, in order; see `families_of_shard`."""
        return families_of_shard(self.run, self.settings, self.universe, self.spine, self.shard)

    def _measurements_of(self, family: Family) -> Measurements:
        """The noisy answers of a family's children."""
        found = {name: answers.of_family(family) for name, answers in self.measured.items()}
        return found | {name: rows.of_family(family) for name, rows in self.demanded.items()}

    def estimate(
        self,
        families: Iterable[Family],
        passes: Passes | None = None,
        weights: Callable[[Family], ExactWeights | None] = lambda _: None,
    ) -> tuple[SolveRecord, ...]:
        """Estimate the children of every family, and write them with the records of the solves.

        The passes are those of the settings unless others are given; `weights` gives those of a
        family's passes; see `least_squares.solve_passes`.
        """
        if passes is None:
            passes = passes_of(self.settings, self.universe, self.shard.geolevel)
        records: list[SolveRecord] = []
        rows, cells, counts = [], [], []
        for family in families:
            children = self.geocode[family.start : family.stop]
            problem = _problem(family, children, self.constraints, self.type_of_cell)
            estimate, solves = estimate_children(
                family.parent, problem, self._measurements_of(family), passes, weights(family)
            )
            records += solves
            row, column = np.nonzero(estimate)
            rows.append(row + family.start)
            cells.append(problem.cells[column])
            counts.append(estimate[row, column])
        estimates = sparse.csr_array(
            (np.concatenate(counts), (np.concatenate(rows), np.concatenate(cells))),
            shape=(len(self.geocode), self.schema.n_cells),
            dtype=np.int64,
        )
        self.write(estimates, records)
        return tuple(records)

    def write(self, estimates: sparse.csr_array, records: Sequence[SolveRecord]) -> None:
        """Write the estimates `(n, n_cells)` of the shard, after the records of its solves."""
        place = (self.universe, self.shard.geolevel, self.shard.name)
        if records:
            write_solves(solves_file(self.run, *place), records)
        write_estimates(
            self.run.estimates(*place),
            self.geocode,
            estimates,
            is_private=self.settings.is_private,
        )


def estimate_shard(
    run: RunDirectory, settings: TopdownSettings, universe: str, spine: Spine, shard: Shard
) -> tuple[SolveRecord, ...]:
    """Estimate the geounits of a shard from published measurements, constraints and the parents'
    estimates, and write them; returns the records of the solves.

    Reads nothing confidential.
    """
    given = ShardInput.read(run, settings, universe, spine, shard)
    return given.estimate(given.families())


def _problem(
    family: Family,
    geocode: np.ndarray,
    constraints: ShardConstraints | DeclaredConstraints,
    type_of_cell: np.ndarray,
) -> SiblingProblem:
    """What the children of a parent must satisfy."""
    order = np.lexsort((family.support, type_of_cell[family.support]))
    support = family.support[order].astype(np.int64)
    group, totals = constraints.totals(family.start, family.stop)
    return SiblingProblem(
        geocode,
        support,
        type_of_cell[support],
        None if family.counts is None else family.counts[order],
        constraints.lower[family.start : family.stop],
        constraints.upper[family.start : family.stop],
        group,
        totals,
        constraints.linear_rows(family.start, family.stop, support),
    )


def _declared_constraints(
    run: RunDirectory,
    settings: TopdownSettings,
    declared: Universe,
    spine: Spine,
    shard: Shard,
    path: Path,
) -> DeclaredConstraints:
    """The constraints of a shard of a declared census."""
    geolevels = settings.compiled_census.areas.geolevels
    geounits = slice(shard.start, shard.stop)
    units = {}
    if declared.invariants:
        known = declared_units(read_geography(geography_file(run)), geolevels)
        for name, levels in declared_resolution(spine, declared, known).items():
            here = levels[shard.geolevel]
            invariant = next(entry for entry in declared.invariants if entry.name == name)
            part = LevelUnits(here.kind[geounits], here.unit[geounits])
            units[name] = (part, known[invariant.geolevel].path)
    geocode = spine.geolevel(shard.geolevel).geocode[geounits]
    schema = settings.schema_of(declared.name)
    exact = None
    settled = read_settled(run, settings, declared.name, len(spine.block_row))
    if settled is not None and declared.held:
        label, answers = settled
        blocks = spine.blocks_below(shard.geolevel, shard.start, shard.stop)
        geounit = spine.ancestors(shard.geolevel, blocks) - shard.start
        where = (geounit, spine.block_row[blocks])
        shape = (len(geocode), answers.shape[0])
        into = sparse.csr_array((np.ones(geounit.size, dtype=np.int64), where), shape)
        exact = ExactTypes(label, (into @ answers).toarray())
    return DeclaredConstraints.read(path, schema, declared, geocode, units, exact)


def bounded_type_of_cell(schema: Schema) -> np.ndarray:
    """Type, `(n_cells,)`, on which bounds are put: the level of the bounded attribute, else one."""
    attribute = CENSUS.universes[schema.universe].bounded_attribute(schema)
    if attribute is not None:
        return schema.levels(attribute)
    return np.zeros(schema.n_cells, dtype=np.int64)


def passes_of(
    settings: TopdownSettings,
    universe: str,
    geolevel: str,
    queries: Sequence[str] | None = None,
) -> Passes:
    """The passes that the settings ask for at a geolevel, with the rounder's queries built; all
    queries are `queries`, or else those that are measured there."""
    chosen = settings.passes_of(universe, geolevel, queries)
    schema = settings.schema_of(universe)
    return Passes(
        chosen.least_squares,
        tuple(tuple(marginal_query(schema, name) for name in names) for names in chosen.rounder),
        chosen.interleaved,
    )


def read_query_measurements(
    path: Path, schema: Schema, budget: Budget, geocode: np.ndarray
) -> dict[str, QueryMeasurement]:
    """Noisy answers of a shard by query; precisions are those of the noise as it was asked for."""
    found = {}
    for name, answers in read_measurements(path, geocode).items():
        query = marginal_query(schema, name.removesuffix(DPQUERY_SUFFIX))
        precision = precisions(budget, answers.variance, answers.plb)
        found[query.name] = QueryMeasurement(query, answers.values, precision)
    return found


def precisions(budget: Budget, variance: np.ndarray, plb: np.ndarray) -> np.ndarray:
    """What answers weigh, up to a common factor, from their noise: variances and losses (n,).

    1 / sigma^2 of the discrete Gaussian is the plb itself, and that of the discrete Laplace is
    proportional to its square, so that siblings' precisions keep one common ratio for all
    queries. Without noise all answers weigh the same.
    """
    if budget.infinite:
        return np.isfinite(variance).astype(np.float64)
    distinct, code = np.unique(plb.astype(str), return_inverse=True)
    spent = np.array([float(Fraction(loss)) for loss in distinct])[code]
    return spent**2 if budget.is_pure else spent


@dataclass(frozen=True)
class DemandedMeasurement:
    """Answers to one query that were measured on demand, of a shard's geounits."""

    query: MarginalQuery
    answers: DemandedAnswers
    precision: np.ndarray
    path: Path

    def of_family(self, family: Family) -> QueryMeasurement:
        """The answers of a family's children, in the rows that meet their parent's support.

        Raises InputRefused if other rows were measured: for another estimate of the parent.
        """
        precision = self.precision[family.start : family.stop]
        rows = demanded_rows(self.query, family)
        values = np.zeros((len(precision), rows.size), dtype=np.int64)
        for place in np.flatnonzero(precision):
            measured, own = self.answers.of_geounit(family.start + int(place))
            if not np.array_equal(measured, rows):
                raise InputRefused(
                    f"{self.path} was measured on demand for other estimates of the geounits "
                    "above than the run has now; finish the run with the version of Spineflow "
                    "that began it."
                )
            values[place] = own
        return QueryMeasurement(self.query, values, precision, rows)


def read_demanded_measurements(
    path: Path, schema: Schema, budget: Budget, geocode: np.ndarray
) -> dict[str, DemandedMeasurement]:
    """Answers of a shard that were measured on demand, by query."""
    found = {}
    for name, answers in read_demanded(path, geocode).items():
        query = marginal_query(schema, name.removesuffix(DPQUERY_SUFFIX))
        precision = precisions(budget, answers.variance, answers.plb)
        found[query.name] = DemandedMeasurement(query, answers, precision, path)
    return found


def shards_below(run: RunDirectory, universe: str, spine: Spine, shard: Shard) -> list[Shard]:
    """Shards with children of the shard's geounits, in order; none at the last geolevel."""
    names = spine.names[spine.names.index(shard.geolevel) + 1 :]
    return [
        other
        for other in read_shards(spine_folder(run, universe))
        if names
        and other.geolevel == names[0]
        and other.parent_start < shard.stop
        and other.parent_stop > shard.start
    ]

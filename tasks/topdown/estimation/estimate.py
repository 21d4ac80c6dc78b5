"""Estimating one shard: the children of a run of parents at one geolevel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
from scipy import sparse

from ...answers.estimates import write_estimates
from ...answers.noisy import (
    DPQUERY_SUFFIX,
    DemandedAnswers,
    NoisyAnswers,
    read_demanded,
    read_measurements,
)
from ...census.queries import MarginalQuery, Schema, marginal_query
from ...runs.errors import InputRefused
from ...runs.stamps import write_parquet
from ..measurement.measure import demanded_rows
from ..measurement.public_answers import geounits_to_units
from ..paths import demanded_file, solves_file
from ..spine.files import Family, RunUniverse, Shard, families_of_shard, shards_of
from ..workload.budget import Budget
from .exact_weights import ExactWeights
from .parent import Passes, estimate_children
from .problem import Measurements, QueryMeasurement, SiblingProblem, SolveRecord
from .shard_constraints import ShardConstraints
from .siblings import Companions, Siblings, accompany, avoid_ghosts

Answers = TypeVar("Answers")


@dataclass(frozen=True)
class ShardInput:
    """Input for estimating a shard of a universe, except the parents' estimates.

    measured : the geounits' answers by query, noisy or otherwise, that the passes get.
    demanded : answers of a universe measured on demand, whose `measured` is empty.
    companions : the condition on records that must be accompanied, if there is one.
    """

    universe: RunUniverse
    shard: Shard
    constraints: ShardConstraints
    measured: Mapping[str, QueryMeasurement]
    demanded: Mapping[str, DemandedMeasurement]
    companions: Companions | None = None

    @classmethod
    def read(cls, universe: RunUniverse, shard: Shard) -> ShardInput:
        """From published measurements and constraints; nothing confidential."""
        schema, budget = universe.schema, universe.budget
        constraints = ShardConstraints(universe, shard)
        place = universe.name, shard.geolevel, shard.name
        measured: Mapping[str, QueryMeasurement] = {}
        demanded: Mapping[str, DemandedMeasurement] = {}
        if universe.settings.is_on_demand(universe.name):
            path = demanded_file(universe.run, *place)
            demanded = {
                query.name: DemandedMeasurement(query, own, precisions(budget, own), path)
                for query, own in by_query(read_demanded(path, constraints.geocode), schema)
            }
        else:
            answered = read_measurements(universe.run.dpqueries(*place), constraints.geocode)
            measured = {
                query.name: QueryMeasurement(query, own.values, precisions(budget, own))
                for query, own in by_query(answered, schema)
            }
        companions = _companions(universe, shard) if universe.declared.accompanied else None
        return cls(universe, shard, constraints, measured, demanded, companions)

    def families(self) -> Iterator[Family]:
        """The shard's families, in order; see `families_of_shard`."""
        return families_of_shard(self.universe, self.shard)

    def shards_below(self) -> list[Shard]:
        """Shards with children of the shard's geounits, in order; none at the last geolevel."""
        names = self.universe.spine.names
        below = names[names.index(self.shard.geolevel) + 1 :][:1]
        return [
            other
            for other in shards_of(self.universe.run, self.universe.name)
            if other.geolevel in below
            and other.parent_start < self.shard.stop
            and other.parent_stop > self.shard.start
        ]

    def estimate(
        self,
        families: Iterable[Family] | None = None,
        passes: Passes | None = None,
        weights: Callable[[Family], ExactWeights | None] = lambda _: None,
    ) -> tuple[SolveRecord, ...]:
        """Estimate the children of every family, and write them with the records of the solves.

        By default the families are the shard's, from the parents' estimates, and the passes the
        settings'; `weights` returns the weights of a family's passes; see
        `least_squares.solve_passes`.
        """
        if passes is None:
            passes = passes_of(self.universe, self.shard.geolevel)
        records: list[SolveRecord] = []
        rows, cells, counts = [], [], []
        for family in self.families() if families is None else families:
            problem = _problem(family, self.constraints)
            measured = {name: own.of_family(family) for name, own in self.measured.items()}
            measured |= {name: own.of_family(family) for name, own in self.demanded.items()}
            estimate, solves = estimate_children(
                family.parent, problem, measured, passes, weights(family)
            )
            records += solves
            if not family.is_settled:
                estimate, moved = self._mended(family, problem, estimate, measured)
                records += moved
            row, column = np.nonzero(estimate)
            rows.append(row + family.start)
            cells.append(problem.cells[column])
            counts.append(estimate[row, column])
        estimates = sparse.csr_array(
            (np.concatenate(counts), (np.concatenate(rows), np.concatenate(cells))),
            shape=(len(self.constraints.geocode), self.universe.schema.n_cells),
            dtype=np.int64,
        )
        self.write(estimates, records)
        return tuple(records)

    def _mended(
        self, family: Family, problem: SiblingProblem, estimate: np.ndarray, measured: Measurements
    ) -> tuple[np.ndarray, list[SolveRecord]]:
        """An estimate `(c, k)` after moves of records among the children, and a record of them."""
        siblings, steps = Siblings(problem, estimate, measured), {}
        is_last = self.shard.geolevel == self.universe.spine.names[-1]
        if self.universe.settings.avoids_ghosts and is_last:
            # The discrete Laplace of epsilon has the variance 8 / epsilon^2; see `precisions`.
            avoid_ghosts(siblings, 1.0 / 8.0 if self.universe.budget.is_pure else 1.0)
            steps["empty areas"] = siblings.moves
        if self.companions is not None:
            rule = self.companions.of_family(family.start, family.stop, problem.cells)
            before = siblings.moves
            accompany(siblings, rule, family.parent)
            steps["companions"] = siblings.moves - before
        c, k = siblings.x.shape
        return siblings.x, [
            SolveRecord(family.parent, stage, "moves", n_children=c, n_cells=k, iterations=moves)
            for stage, moves in steps.items()
            if moves
        ]

    def write(self, estimates: sparse.csr_array, records: Sequence[SolveRecord]) -> None:
        """Write the estimates `(n, n_cells)` of the shard, after the records of its solves."""
        run, place = self.universe.run, (self.universe.name, self.shard.geolevel, self.shard.name)
        if records:
            solves = pa.Table.from_pylist([vars(record) for record in records])
            write_parquet(solves_file(run, *place), solves, compression="zstd")
        write_estimates(run.estimates(*place), self.constraints.geocode, estimates)


def _problem(family: Family, constraints: ShardConstraints) -> SiblingProblem:
    """Constraints on the children of a parent."""
    type_of_cell = constraints.type_of_cell
    order = np.lexsort((family.support, type_of_cell[family.support]))
    support = family.support[order].astype(np.int64)
    return SiblingProblem(
        constraints.geocode[family.start : family.stop],
        support,
        type_of_cell[support],
        None if family.counts is None else family.counts[order],
        constraints.lower[family.start : family.stop],
        constraints.upper[family.start : family.stop],
        constraints.totals(family.start, family.stop),
        constraints.linear_rows(family.start, family.stop, support),
    )


def _companions(universe: RunUniverse, shard: Shard) -> Companions | None:
    """The condition on records that must be accompanied, with a shard's geounits."""
    one = universe.declared.accompanied
    if one is None:
        return None
    dependants, companions = map(universe.schema.cells_where, (one.where, one.of))
    return Companions(dependants, companions, one.most, geounits_to_units(universe, shard))


def passes_of(universe: RunUniverse, geolevel: str, queries: Sequence[str] | None = None) -> Passes:
    """The passes in the settings for a geolevel, with the rounder's queries built; all
    queries are `queries`, by default the measured ones.
    """
    chosen = universe.settings.passes_of(universe.name, geolevel, queries)
    build = partial(marginal_query, universe.schema)
    rounder = tuple(tuple(map(build, names)) for names in chosen.rounder)
    return Passes(chosen.least_squares, rounder, chosen.interleaved)


def by_query(
    answers: Mapping[str, Answers], schema: Schema
) -> Iterator[tuple[MarginalQuery, Answers]]:
    """Answers by the query that their name in a file of measurements denotes."""
    for name, own in answers.items():
        yield marginal_query(schema, name.removesuffix(DPQUERY_SUFFIX)), own


def precisions(budget: Budget, answers: NoisyAnswers | DemandedAnswers) -> np.ndarray:
    """Weights of answers (n,), up to a common factor, from their requested noise.

    1 / sigma^2 of the discrete Gaussian is the plb itself, 1 / sigma^2 of the discrete Laplace is
    proportional to its square, so that siblings' precisions keep one common ratio for all queries.
    Without noise all answers weigh the same.
    """
    if budget.infinite:
        return np.isfinite(answers.variance).astype(np.float64)
    distinct, code = np.unique(answers.plb.astype(str), return_inverse=True)
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

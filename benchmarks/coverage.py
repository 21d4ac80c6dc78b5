"""How often intervals hold the truth: the noise drawn again and again, in memory.

For studies on data that are not confidential. A run that `replicate.measure` made says what is
measured and declared; each replicate draws the noise of all its answers anew, by the code of the
flow, and gets the best linear unbiased estimates and the intervals of a run, without a file being
written and without anything being solved.

    replicates = NoiseReplicates.of(measured, settings, "persons")
    frame = replicates.coverage(seed=1, queries=queries, levels=(0.9, 0.95), areas=areas)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.special import ndtri
from scipy.stats import t as student
from spineflow.tasks.answers.noisy import DPQUERY_SUFFIX
from spineflow.tasks.census.queries import MarginalQuery, marginal_query
from spineflow.tasks.ledger.charging import UnchargedNoise
from spineflow.tasks.noise.distributions import SeededRandom
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.topdown.estimation.problem import QueryMeasurement
from spineflow.tasks.topdown.intervals.answers import ProductAnswers, covariances_of, estimates_of
from spineflow.tasks.topdown.intervals.areas import BlockAreas, area_covariances, area_estimates
from spineflow.tasks.topdown.intervals.intervals import intervals_of
from spineflow.tasks.topdown.intervals.run_posterior import LevelBounds, RunPosterior
from spineflow.tasks.topdown.measurement.measure import (
    ConfidentialShard,
    noisy_answers,
    shard_histograms,
    true_answers,
)
from spineflow.tasks.topdown.paths import spine_folder
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import read_shards

ESTIMATE, WHOLE, BOUNDED = "estimate", "whole", "bounded"
"""The kinds of interval: the estimate and its normal quantile on either side, the whole numbers
that are given for it, and those with what is known of the counts."""


@dataclass(frozen=True, eq=False)
class NoiseReplicates:
    """A universe whose noise is drawn again and again; `truth` has its geolevels, root first."""

    settings: TopdownSettings
    universe: str
    levels: RunPosterior
    truth: tuple[ConfidentialShard, ...]

    @classmethod
    def of(cls, run: RunDirectory, settings: TopdownSettings, universe: str) -> NoiseReplicates:
        """From a measured run. Raises InputRefused for confidential input."""
        if settings.input.confidential:
            raise InputRefused(
                "Replicates would spend privacy that no ledger records; set input.confidential = "
                "false if these data may be disclosed."
            )
        levels = RunPosterior.read(run, settings, universe)
        shards = read_shards(spine_folder(run, universe))
        n_cells = settings.schema_of(universe).n_cells
        truth = []
        for geolevel in levels.spine.geolevels:
            parts = [
                shard_histograms(run, universe, levels.spine, shard, n_cells)
                for shard in shards
                if shard.geolevel == geolevel.name
            ]
            truth.append(
                ConfidentialShard(
                    geolevel.name,
                    sparse.csr_array(sparse.vstack(parts)),
                    geolevel.geocode,
                    geolevel.plb_shares,
                    geolevel.plb_share_code,
                )
            )
        return cls(settings, universe, levels, tuple(truth))

    def queries(self, names: Sequence[str]) -> tuple[MarginalQuery, ...]:
        """Queries by name."""
        schema = self.settings.schema_of(self.universe)
        return tuple(marginal_query(schema, name) for name in names)

    def posterior(self, seed: int) -> RunPosterior:
        """What the noise of this seed lets one know."""
        levels = []
        for level, exact in zip(self.levels.levels, self.truth, strict=True):
            source = SeededRandom(seed, self.universe, exact.geolevel)
            drawn = self._draw(exact, UnchargedNoise(source))
            levels.append(replace(level, measured=partial(_whole, len(exact.geocode), drawn)))
        return replace(self.levels, levels=tuple(levels))

    def _draw(self, exact: ConfidentialShard, noise: UnchargedNoise) -> dict[str, QueryMeasurement]:
        """Noisy answers of a geolevel, with a precision of 0 for geounits that are bypassed."""
        schema = self.settings.schema_of(self.universe)
        position = pd.Index(exact.geocode)
        found: dict[str, QueryMeasurement] = {}
        for group in noisy_answers(exact, self.settings.budget_of(self.universe), schema, noise):
            for answers in group:
                query = marginal_query(schema, answers.query_name.removesuffix(DPQUERY_SUFFIX))
                if query.name not in found:
                    n = len(exact.geocode)
                    nothing = np.zeros((n, query.n_rows), dtype=np.int64)
                    found[query.name] = QueryMeasurement(query, nothing, np.zeros(n))
                rows = position.get_indexer(answers.geocode)
                found[query.name].values[rows] = answers.values
                found[query.name].precision[rows] = 1.0 / answers.variance
        return found

    def coverage(
        self,
        seed: int,
        queries: Sequence[MarginalQuery],
        levels: Sequence[float],
        areas: Mapping[str, BlockAreas],
    ) -> pd.DataFrame:
        """One replicate: for each geolevel and kind of area, query, level and kind of interval, how
        many `answers` are not known exactly, and which share of their intervals is `covered`.

        Columns: where, query, level, kind, answers, covered; mean std_dev and length, in records.
        """
        found = self.posterior(seed)
        rows: list[dict[str, object]] = []
        for depth, estimates in found.posterior.down():
            every = np.arange(len(estimates.type_is_possible))
            for query in queries:
                answers = ProductAnswers.of(estimates.algebra, query.matrix)
                variances = covariances_of(estimates, answers, every).variances()
                values = estimates_of(estimates, answers, every)
                truth = true_answers(self.truth[depth].histograms, query)
                given = _Answered(values, variances, truth, found.bounds[depth])
                where = found.spine.names[depth]
                rows += self._rows(found, where, query, given, levels)
        blocks = estimates
        for where, part in areas.items():
            bounds = found.bounds[-1].summed(part)
            for query in queries:
                answers = ProductAnswers.of(found.posterior.algebra, query.matrix)
                variances = area_covariances(found.posterior, answers, part).variances()
                values = area_estimates(blocks, answers, part)
                truth = part.sums(true_answers(self.truth[-1].histograms, query))
                given = _Answered(values, variances, truth, bounds)
                rows += self._rows(found, where, query, given, levels)
        return pd.DataFrame(rows).assign(seed=seed)

    def _rows(
        self,
        found: RunPosterior,
        where: str,
        query: MarginalQuery,
        given: _Answered,
        levels: Sequence[float],
    ) -> Iterator[dict[str, object]]:
        is_open = given.variances > 0
        if not is_open.any():
            return
        bounds = found.bounds_of(given.bounds, query.matrix)
        for level in levels:
            mechanism = found.mechanism
            ends = intervals_of(given.estimates, given.variances, level, *bounds, mechanism)
            reach = ndtri(0.5 + level / 2) * np.sqrt(given.variances)
            for kind, lower, upper in (
                (ESTIMATE, given.estimates - reach, given.estimates + reach),
                (WHOLE, ends.lower, ends.upper),
                (BOUNDED, ends.bounded_lower, ends.bounded_upper),
            ):
                covers = (lower <= given.truth) & (given.truth <= upper)
                yield {
                    "where": where,
                    "query": query.name,
                    "level": level,
                    "kind": kind,
                    "answers": int(is_open.sum()),
                    "covered": float(covers[is_open].mean()),
                    "std_dev": float(np.sqrt(given.variances[is_open]).mean()),
                    "length": float((upper - lower)[is_open].mean()),
                }


@dataclass(frozen=True, eq=False)
class _Answered:
    """Estimates, variances and true answers (n, a) of geounits or areas, and their bounds."""

    estimates: np.ndarray
    variances: np.ndarray
    truth: np.ndarray
    bounds: LevelBounds


def coverage_table(replicates: pd.DataFrame) -> pd.DataFrame:
    """Mean coverage over replicates, beside a Bonferroni band.

    Of K rows, each is farther than `band` from its expected coverage with probability 0.05 / K,
    by Student's distribution of a mean over replicates. Their standard deviation is at least that
    of independent answers, since it says little where few answers are almost always covered.
    """
    keys = ["where", "query", "level", "kind"]
    groups = replicates.groupby(keys, sort=False)
    table = groups.agg(
        answers=("answers", "first"),
        replicates=("seed", "size"),
        covered=("covered", "mean"),
        spread=("covered", "std"),
        std_dev=("std_dev", "mean"),
        length=("length", "mean"),
    ).reset_index()
    far = student.ppf(1.0 - 0.05 / (2.0 * len(table)), table["replicates"] - 1)
    independent = np.sqrt(table["level"] * (1.0 - table["level"]) / table["answers"])
    spread = np.maximum(table["spread"], independent)
    table["band"] = far * spread / np.sqrt(table["replicates"])
    return table.drop(columns="spread")


def _whole(
    n: int, measured: Mapping[str, QueryMeasurement]
) -> Iterator[tuple[int, int, Mapping[str, QueryMeasurement]]]:
    yield 0, n, measured

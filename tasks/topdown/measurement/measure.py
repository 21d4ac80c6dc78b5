"""Measuring: noisy answers to a geolevel's queries, shard by shard.

Geounit g at geolevel l, query q with 0/1 matrix Q: the answer is Q x plus independent noise, the
discrete Gaussian with sigma^2 = 1 / (rho share(g) share(q, l)) or the discrete Laplace with scale
2 / (epsilon share(g) share(q, l)). Geounits with a share of 0 are not measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from scipy import sparse

from ....geography.levels import Spine
from ...answers.noisy import DPQUERIES_SCHEMA, DPQUERY_SUFFIX, NoisyAnswers, measured_batches
from ...census.histograms import sum_histogram
from ...census.queries import MarginalQuery, marginal_query
from ...census.schema import Schema
from ...ledger.charging import FileDraw, single_draw
from ...noise.draws import NoiseDraws, sum_that_fits
from ...runs.directory import RunDirectory
from ..settings import TopdownSettings
from ..spine.files import spine_of
from ..spine.shards import Shard
from ..workload.budget import Budget

ANSWERS_PER_ROW_GROUP = 1 << 21
"""Answers held in memory at a time, 16 MiB of them."""


@dataclass(frozen=True)
class ConfidentialShard:
    """The geounits of a shard of one geolevel.

    `histograms` (n, n_cells) int64, `geocode` (n,), and geounit i's share of the budget
    `plb_shares[plb_share_code[i]]`.
    """

    geolevel: str
    histograms: sparse.csr_array
    geocode: np.ndarray
    plb_shares: Sequence[Fraction]
    plb_share_code: np.ndarray

    @classmethod
    def read(
        cls, run: RunDirectory, universe: str, spine: Spine, shard: Shard, n_cells: int
    ) -> ConfidentialShard:
        """From the confidential histograms of the run."""
        level = spine.geolevel(shard.geolevel)
        part = slice(shard.start, shard.stop)
        return cls(
            shard.geolevel,
            shard_histograms(run, universe, spine, shard, n_cells),
            level.geocode[part],
            level.plb_shares,
            level.plb_share_code[part],
        )

    @property
    def is_measured(self) -> np.ndarray:
        """(n,) whether a geounit has a share."""
        has_share = np.array([share > 0 for share in self.plb_shares], dtype=bool)
        return has_share[np.asarray(self.plb_share_code)]

    def part(self, rows: np.ndarray) -> ConfidentialShard:
        """Some of the geounits."""
        return replace(
            self,
            histograms=self.histograms[rows],
            geocode=np.asarray(self.geocode)[rows],
            plb_share_code=np.asarray(self.plb_share_code)[rows],
        )


def part_of(geolevel: str, query: str) -> str:
    """Name of what a query's noise at a geolevel is charged as."""
    return f"{geolevel}/{query}"


def queries_of_shard(
    shard: ConfidentialShard, budget: Budget, schema: Schema
) -> dict[MarginalQuery, Fraction]:
    """The queries that are measured at a shard's geolevel, with their shares."""
    shares = budget.query_shares[shard.geolevel]
    return {marginal_query(schema, name): share for name, share in shares.items() if share > 0}


def noisy_answers(
    shard: ConfidentialShard, budget: Budget, schema: Schema, draws: NoiseDraws
) -> Iterator[list[NoisyAnswers]]:
    """Draw the noisy answers of a shard: lists of all queries on some successive geounits.

    An infinite budget gives exact answers, with variance 0 and plb `inf`. Raises OverflowError if
    an answer does not fit 64 bits.
    """
    queries = queries_of_shard(shard, budget, schema)
    n_answers = sum(query.n_rows for query in queries)
    if not n_answers:
        return
    measured = np.flatnonzero(shard.is_measured)
    step = max(1, ANSWERS_PER_ROW_GROUP // n_answers)
    for start in range(0, measured.size, step):
        part = shard.part(measured[start : start + step])
        yield [
            _measure_query(part, query, share, budget, draws) for query, share in queries.items()
        ]


def true_answers(histograms: sparse.csr_array, query: MarginalQuery) -> np.ndarray:
    """Q x of sparse histograms (n, n_cells), shape `(n, n_rows)`, int64."""
    answers = np.zeros((histograms.shape[0], query.n_rows), dtype=np.int64)
    geounit = np.repeat(np.arange(len(answers)), np.diff(histograms.indptr))
    np.add.at(answers, (geounit, query.row_of_cell[histograms.indices]), histograms.data)
    return answers


def _measure_query(
    shard: ConfidentialShard,
    query: MarginalQuery,
    query_share: Fraction,
    budget: Budget,
    draws: NoiseDraws,
) -> NoisyAnswers:
    """Answers of one query; the noise is one vector for each share among the geounits."""
    values = true_answers(shard.histograms, query)
    variance = np.zeros(len(values))
    plb = np.full(len(values), "inf", dtype=object)
    part = part_of(shard.geolevel, query.name)
    shares = shard.plb_shares, shard.plb_share_code
    for members, noise, spent in budget.noises(*shares, query_share):
        drawn = draws.draw(part, noise, members.size * query.n_rows).reshape(members.size, -1)
        if members.size == len(values):  # As a rule they are all, and need not be copied twice.
            values = sum_that_fits(values, drawn)
        else:
            values[members] = sum_that_fits(values[members], drawn)
        variance[members], plb[members] = noise.variance, spent
    return NoisyAnswers(query.name + DPQUERY_SUFFIX, shard.geocode, values, variance, plb)


def measure_once(run: RunDirectory, settings: TopdownSettings, universe: str, shard: Shard) -> None:
    """Measure and publish one shard, from the system's randomness unless the settings fix a seed.

    If the file stands, it is kept and nothing is drawn. Memory is bounded by
    `ANSWERS_PER_ROW_GROUP` beside the histograms. Raises as `single_draw`.
    """
    path = run.dpqueries(universe, shard.geolevel, shard.name)
    spine = spine_of(run, universe)
    schema = settings.schema_of(universe)
    with drawing_of(run, settings, universe, shard, path) as drawing:
        confidential = ConfidentialShard.read(run, universe, spine, shard, schema.n_cells)
        answers = noisy_answers(confidential, settings.budget_of(universe), schema, drawing.noise)
        drawing.publish(DPQUERIES_SCHEMA, measured_batches(answers))


def drawing_of(
    run: RunDirectory, settings: TopdownSettings, universe: str, shard: Shard, path: Path
) -> AbstractContextManager[FileDraw]:
    """The draw of a shard's file, under the universe's charge; see `single_draw`."""
    seeds = (universe, shard.geolevel, shard.name)
    truth = [run.histogram(universe)]
    return single_draw(run, settings, path, universe, truth=truth, seeds=seeds)


def shard_histograms(
    run: RunDirectory, universe: str, spine: Spine, shard: Shard, n_cells: int
) -> sparse.csr_array:
    """Histograms of a shard's geounits, shape `(n_geounits, n_cells)`.

    Of the block histograms only the row groups with blocks of the shard are read. Raises ValueError
    if a block with records is not on the spine, when the root is asked for.
    """
    blocks = spine.blocks_below(shard.geolevel, shard.start, shard.stop)
    return sum_histogram(
        run.histogram(universe),
        spine.block_geocode[blocks],
        spine.ancestors(shard.geolevel, blocks) - shard.start,
        n_groups=shard.stop - shard.start,
        n_cells=n_cells,
        among_others=blocks.stop - blocks.start < spine.n_blocks,
    )

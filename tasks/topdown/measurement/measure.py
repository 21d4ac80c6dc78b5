"""Measuring: noisy answers to a geolevel's queries, shard by shard.

Geounit g at geolevel l, query q with 0/1 matrix Q: the answer is Q x plus independent noise, the
discrete Gaussian with sigma^2 = 1 / (rho share(g) share(q, l)) or the discrete Laplace with scale
2 / (epsilon share(g) share(q, l)). Geounits with a share of 0 are not measured.

Measurement on demand: noise only for the answers that can matter.

A cell that is empty in a parent's estimate is empty in every child's, and the TopDown estimate of
the children reads no row of a query that counts only empty cells. So once the parent has been
estimated, noise is drawn for the rows that count a cell of its support, and for no row where an
only child or an empty parent leaves no choice. Noise is independent from row to row, and the rows
to draw follow from the noisy answers of upper geolevels and public facts alone. Hence the estimates
have exactly the distribution of full measurement, and an observer of the answers sees a part of the
full mechanism's output, chosen by other visible answers. The loss of the full mechanism is charged.
See `docs/measurement_on_demand.md`.

The plan of a topdown run: its measurements and their cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from ....geography.levels import Geolevel, Spine
from ....validation.topdown.spine import unbalanced_paths
from ...answers.noisy import (
    DEMANDED_SCHEMA,
    DPQUERIES_SCHEMA,
    DPQUERY_SUFFIX,
    DemandedAnswers,
    NoisyAnswers,
    demanded_batches,
    measured_batches,
)
from ...census.histograms import sum_histogram
from ...census.queries import MarginalQuery, Schema, marginal_query
from ...ledger.charging import single_draw
from ...ledger.plan import UniversePlan
from ...noise.distributions import NoiseDraws, sum_that_fits
from ...products.plan import Plan
from ...runs.directory import RunDirectory
from ...runs.errors import BudgetRefused, InputRefused
from ..paths import (
    demanded_file,
    geography_file,
    held_file,
    invariants_file,
    spine_folder,
    state_totals_file,
)
from ..settings import TopdownSettings
from ..spine.files import (
    ARRAYS,
    BLOCKS,
    GEOUNITS,
    SHARDS,
    Family,
    RunUniverse,
    Shard,
    families_of_shard,
    shards_of,
    spine_of,
)
from ..workload.budget import Budget
from ..workload.costs import cost_of, measures_of, part_of, universe_plan
from ..workload.exact_loss import exact_curve, exact_epsilon, paths_of
from ..workload.privacy_curve import curves_of_run
from ..workload.statement import exact_of, statement_of
from .public_answers import refuse_unheld_invariants

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
    def read(cls, universe: RunUniverse, shard: Shard) -> ConfidentialShard:
        """The geounits from the confidential histograms of the run."""
        run, spine, n_cells = universe.run, universe.spine, universe.schema.n_cells
        level, part = spine.geolevel(shard.geolevel), slice(shard.start, shard.stop)
        return cls(
            shard.geolevel,
            shard_histograms(run, universe.name, spine, shard, n_cells),
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
    """Answers of one query; geounits of equal budget share draw their noise as one vector."""
    values = true_answers(shard.histograms, query)
    variance = np.zeros(len(values))
    plb = np.full(len(values), "inf", dtype=object)
    part = part_of(shard.geolevel, query.name)
    shares = shard.plb_shares, shard.plb_share_code
    for members, noise, spent in budget.noises(*shares, query_share):
        drawn = draws.draw(part, noise, members.size * query.n_rows).reshape(members.size, -1)
        if members.size == len(values):  # Usually all geounits: no second copy is needed.
            values = sum_that_fits(values, drawn)
        else:
            values[members] = sum_that_fits(values[members], drawn)
        variance[members], plb[members] = noise.variance, spent
    return NoisyAnswers(query.name + DPQUERY_SUFFIX, shard.geocode, values, variance, plb)


def measurement_file(universe: RunUniverse, shard: Shard) -> Path:
    """The file of noisy measurements of a shard, existing or not."""
    is_on_demand = universe.settings.is_on_demand(universe.name)
    file = demanded_file if is_on_demand else RunDirectory.dpqueries
    return file(universe.run, universe.name, shard.geolevel, shard.name)


def measure_once(universe: RunUniverse, shard: Shard) -> None:
    """Measure and publish one shard, from the system's randomness unless the settings fix a seed:
    on demand, the answers that the estimates of the shard's parents demand.

    If the file exists, it is kept and nothing is drawn. Memory is bounded by
    `ANSWERS_PER_ROW_GROUP` and the histograms. Raises as `single_draw`.
    """
    run, settings, name = universe.run, universe.settings, universe.name
    path, schema, budget = measurement_file(universe, shard), universe.schema, universe.budget
    families = None
    if settings.is_on_demand(name):
        families = list(families_of_shard(universe, shard))
    seeds, truth = (name, shard.geolevel, shard.name), [run.histogram(name)]
    with single_draw(run, settings, path, name, truth=truth, seeds=seeds) as drawing:
        confidential = ConfidentialShard.read(universe, shard)
        if families is None:
            answers = noisy_answers(confidential, budget, schema, drawing.noise)
            drawing.publish(DPQUERIES_SCHEMA, measured_batches(answers))
        else:
            demanded = demanded_answers(confidential, families, budget, schema, drawing.noise)
            drawing.publish(DEMANDED_SCHEMA, demanded_batches(demanded))


def shard_histograms(
    run: RunDirectory, universe: str, spine: Spine, shard: Shard, n_cells: int
) -> sparse.csr_array:
    """Histograms of a shard's geounits, shape `(n_geounits, n_cells)`.

    Only row groups with blocks of the shard are read from the block histograms. Raises ValueError
    if the shard is the root's and a block with records is not on the spine.
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


def demanded_rows(query: MarginalQuery, family: Family) -> np.ndarray:
    """Rows of the query, ascending, that can matter to the estimate of a family's children."""
    if family.is_settled:
        return np.zeros(0, dtype=np.int64)
    return query.rows_of(family.support)


def demanded_answers(
    shard: ConfidentialShard,
    families: Sequence[Family],
    budget: Budget,
    schema: Schema,
    draws: NoiseDraws,
) -> Iterator[list[DemandedAnswers]]:
    """Draw the noisy answers of a shard on demand: lists of all queries on successive families.

    An infinite budget gives exact answers, with variance 0 and plb `inf`. Raises OverflowError if
    an answer does not fit 64 bits.
    """
    queries, is_measured = queries_of_shard(shard, budget, schema), shard.is_measured
    for batch in _demands(families, list(queries)):
        first, last = batch[0][0].start, batch[-1][0].stop
        family_of_child = np.repeat(
            np.arange(len(batch)), [family.stop - family.start for family, _ in batch]
        )
        has_share = is_measured[first:last]
        geounits, family = np.arange(first, last)[has_share], family_of_child[has_share]
        if geounits.size:
            part, rows = shard.part(geounits), zip(*(rows for _, rows in batch), strict=True)
            yield [
                _measure_rows(part, family, query, query_rows, budget, draws, share)
                for (query, share), query_rows in zip(queries.items(), rows, strict=True)
            ]


def _demands(
    families: Sequence[Family], queries: Sequence[MarginalQuery]
) -> Iterator[list[tuple[Family, list[np.ndarray]]]]:
    """Batches of successive families with about `ANSWERS_PER_ROW_GROUP` answers each; for each
    family, the rows of every query to measure for its children."""
    batch: list[tuple[Family, list[np.ndarray]]] = []
    n_answers = 0
    for number, family in enumerate(families, 1):
        rows = [demanded_rows(query, family) for query in queries]
        batch.append((family, rows))
        n_answers += sum(query_rows.size for query_rows in rows) * (family.stop - family.start)
        if n_answers >= ANSWERS_PER_ROW_GROUP or number == len(families):
            yield batch
            batch, n_answers = [], 0


def _measure_rows(
    shard: ConfidentialShard,
    family: np.ndarray,
    query: MarginalQuery,
    rows_of_family: Sequence[np.ndarray],
    budget: Budget,
    draws: NoiseDraws,
    query_share: Fraction,
) -> DemandedAnswers:
    """Noisy answers of one query in the geounits of a shard, each measured in the rows of its
    family (n,); geounits of equal budget share draw their noise as one vector."""
    sizes = np.array([rows.size for rows in rows_of_family])[family]
    starts = np.append(0, np.cumsum(sizes))
    rows = np.concatenate([rows_of_family[number] for number in family])
    geounit = np.repeat(np.arange(len(family)), sizes)
    values = _answers(shard.histograms, query, geounit, rows)
    variance = np.zeros(len(family))
    plb = np.full(len(family), "inf", dtype=object)
    shares = shard.plb_shares, shard.plb_share_code
    for members, noise, spent in budget.noises(*shares, query_share):
        entries = np.flatnonzero(np.isin(geounit, members))
        drawn = draws.draw(part_of(shard.geolevel, query.name), noise, entries.size)
        values[entries] = sum_that_fits(values[entries], drawn)
        variance[members], plb[members] = noise.variance, spent
    name = query.name + DPQUERY_SUFFIX
    return DemandedAnswers(name, shard.geocode, starts, rows, values, variance, plb)


def _answers(
    histograms: sparse.csr_array, query: MarginalQuery, geounit: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """True answers (k,) of a query's `rows` (k,) in the geounits `geounit` (k,) of `histograms`
    (n, n_cells). The pairs of geounit and row ascend."""
    demanded = geounit * query.n_rows + rows
    owner = np.repeat(np.arange(histograms.shape[0]), np.diff(histograms.indptr))
    counted = owner * query.n_rows + query.row_of_cell[histograms.indices]
    place = np.searchsorted(demanded, counted)
    # A search past the last demanded answer meets -1, which equals no answer.
    is_demanded = np.append(demanded, -1)[place] == counted
    values = np.zeros(rows.size, dtype=np.int64)
    np.add.at(values, place[is_demanded], histograms.data[is_demanded])
    return values


def measurement_files(run: RunDirectory, settings: TopdownSettings) -> list[Path]:
    """The files of noisy measurements that the run publishes, existing or not."""
    return [
        measurement_file(RunUniverse(run, settings, universe), shard)
        for universe in settings.run.universes
        for shard in shards_of(run, universe)
    ]


def plan_of_run(run: RunDirectory, settings: TopdownSettings) -> Plan:
    """The plan of a run, after checking that the measurements cost the declared amount.

    The shares are recomputed along every path from the stored spines, and every record must be
    counted once in each geolevel. Raises BudgetRefused before any noise is drawn, and InputRefused
    where bypassed geounits make the exact epsilon larger than the declared one.
    """
    refuse_unheld_invariants(run, settings)
    universes = []
    for universe in settings.run.universes:
        budget, spine = settings.budget_of(universe), spine_of(run, universe)
        check_shares_of_spine(spine, universe)
        check_cuts_of_spine(spine, shards_of(run, universe), universe)
        refuse_larger_epsilon(settings, universe, spine)
        universes.append(universe_plan_of(budget, settings.schema_of(universe), spine))
    plan = public_plan(settings, universes)
    counts = [run.histogram(universe) for universe in settings.run.universes]
    return plan.decided_by(run, deciding_files(run, settings), counts)


def public_plan(settings: TopdownSettings, universes: Sequence[UniversePlan] | None = None) -> Plan:
    """The plan by settings alone, where no geounit is bypassed; `universes` come from spines."""
    return Plan.of(
        settings,
        [cost_of(settings, universe) for universe in settings.run.universes],
        statement_of(settings),
        exact_of(settings),
        universes,
        curves=partial(curves_of_run, settings),
    )


def deciding_files(run: RunDirectory, settings: TopdownSettings) -> list[Path]:
    """The public files that, with the settings, determine the measurements and their noise."""
    spines = [
        spine_folder(run, universe) / name
        for universe in settings.run.universes
        for name in (GEOUNITS, BLOCKS, ARRAYS, SHARDS)
    ]
    held = [held_file(run)] if settings.is_held else []
    return [geography_file(run), invariants_file(run), state_totals_file(run), *held, *spines]


def refuse_larger_epsilon(settings: TopdownSettings, universe: str, spine: Spine) -> None:
    """Raise InputRefused if a declared epsilon under exact accounting is not met on every path."""
    guarantee, budget = settings.budget[universe].guarantee, settings.budget_of(universe)
    if guarantee is None or budget.infinite:
        return
    epsilon, delta = guarantee
    found = exact_epsilon(budget, delta, paths_of(spine))
    if found is None:
        raise InputRefused(
            f"budget.{universe}.accounting: the spine has more kinds of paths than are compared; "
            "set geography.bypass = false, or give rho alone."
        )
    if Fraction(found) > epsilon:
        raise InputRefused(
            f"budget.{universe}.epsilon is {float(epsilon)}, but on the paths of this "
            f"spine the exact epsilon is {found}; set geography.bypass = false, or add "
            f"budget.{universe}.rho, smaller than {budget.total}."
        )


def universe_plan_of(budget: Budget, schema: Schema, spine: Spine) -> UniversePlan:
    """The measurements of a universe on a spine, and the curve over the paths of the spine."""
    geounits = {}
    for level in spine.geolevels:
        numbers = np.bincount(level.plb_share_code, minlength=len(level.plb_shares)).tolist()
        of_shares = zip(level.plb_shares, numbers, strict=True)
        geounits[level.name] = {share: n for share, n in of_shares if n}
    measures = [
        replace(own, answers=marginal_query(schema, own.query).n_rows * (own.areas or 0))
        for own in measures_of(budget, geounits)
    ]
    curve = None if budget.infinite else exact_curve(budget, paths_of(spine))
    return replace(universe_plan(budget, tuple(measures)), curve=curve)


def check_shares_of_spine(spine: Spine, universe: str) -> None:
    """Raise BudgetRefused unless the shares along every path add to exactly 1."""
    wrong = unbalanced_blocks(spine.geolevels)
    if wrong.size:
        raise BudgetRefused(
            f"The shares on the path to {spine.names[-1]} {spine.block_geocode[wrong[0]]} of the "
            f"{universe} spine, and to {wrong.size - 1} others, do not add to 1; build the spine "
            "again in a new run directory."
        )


def unbalanced_blocks(geolevels: Sequence[Geolevel]) -> np.ndarray:
    """Positions of the blocks along whose paths the shares do not add to exactly 1, ascending."""
    names = ("parent", "plb_shares", "plb_share_code")
    return unbalanced_paths(*([getattr(level, name) for level in geolevels] for name in names))


def check_cuts_of_spine(spine: Spine, shards: Sequence[Shard], universe: str) -> None:
    """Raise BudgetRefused unless every block, and every geounit of a shard, occurs once.

    A record in two geounits of a geolevel, or a geounit in two shards, would be measured twice and
    charged once.
    """
    blocks = pa.array(spine.block_geocode, pa.string())
    is_once = pc.count_distinct(blocks).as_py() == len(blocks)
    for level in spine.geolevels:
        is_once &= bool((np.diff(level.parent) >= 0).all())
        own = [(shard.start, shard.stop) for shard in shards if shard.geolevel == level.name]
        ends = [0, *(stop for _, stop in own)]
        is_once &= [start for start, _ in own] == ends[:-1] and ends[-1] == len(level)
    if not is_once:
        raise BudgetRefused(
            f"The stored {universe} spine or its shards have a {spine.names[-1]} or a geounit "
            "twice, or lack one; build the spine again in a new run directory."
        )

"""Measurement on demand: noise for the answers that can matter, and for no others.

A cell that is empty in a parent's estimate is empty in every child's, and the TopDown estimate of
the children reads no row of a query that counts empty cells alone. So once the parent has been
estimated, noise is drawn for the rows that count a cell of its support, and for none where an only
child or an empty parent leaves no choice. Noise is independent from row to row, and which rows are
drawn depends on noise of upper geolevels alone; hence the estimates have exactly the distribution
that they have when everything is measured, and whoever sees the answers sees a part, chosen by what
else is seen, of what the full mechanism gives. The loss is that of the full mechanism, which is
what is charged. See `docs/measurement_on_demand.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from scipy import sparse

from ...answers.demanded import DEMANDED_SCHEMA, DemandedAnswers, demanded_batches
from ...answers.noisy import DPQUERY_SUFFIX
from ...census.queries import MarginalQuery
from ...census.schema import Schema
from ...noise.draws import NoiseDraws, sum_that_fits
from ...runs.directory import RunDirectory
from ..paths import demanded_file
from ..settings import TopdownSettings
from ..spine.files import spine_of
from ..spine.shards import Family, Shard, families_of_shard
from ..workload.budget import Budget
from .measure import ANSWERS_PER_ROW_GROUP, ConfidentialShard, drawing_of, part_of, queries_of_shard


def demanded_rows(query: MarginalQuery, family: Family) -> np.ndarray:
    """Rows of the query, ascending, that can matter to the estimate of a family's children."""
    if family.is_settled:
        return np.zeros(0, dtype=np.int64)
    return query.rows_of(family.support)


def measure_on_demand_once(
    run: RunDirectory, settings: TopdownSettings, universe: str, shard: Shard
) -> None:
    """Measure what the estimates of a shard's parents demand, and publish it.

    Raises as `single_draw`.
    """
    path = demanded_file(run, universe, shard.geolevel, shard.name)
    spine = spine_of(run, universe)
    schema = settings.schema_of(universe)
    families = list(families_of_shard(run, settings, universe, spine, shard))
    with drawing_of(run, settings, universe, shard, path) as drawing:
        confidential = ConfidentialShard.read(run, universe, spine, shard, schema.n_cells)
        budget = settings.budget_of(universe)
        answers = demanded_answers(confidential, families, budget, schema, drawing.noise)
        drawing.publish(DEMANDED_SCHEMA, demanded_batches(answers))


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
    for run in _demands(families, list(queries)):
        first, last = run[0][0].start, run[-1][0].stop
        family_of_child = np.repeat(
            np.arange(len(run)), [family.stop - family.start for family, _ in run]
        )
        kept = is_measured[first:last]
        geounits, family = np.arange(first, last)[kept], family_of_child[kept]
        if geounits.size:
            part, rows = shard.part(geounits), zip(*(rows for _, rows in run), strict=True)
            yield [
                _measure_rows(part, family, query, of_query, budget, draws, share)
                for (query, share), of_query in zip(queries.items(), rows, strict=True)
            ]


def _demands(
    families: Sequence[Family], queries: Sequence[MarginalQuery]
) -> Iterator[list[tuple[Family, list[np.ndarray]]]]:
    """Runs of families with about `ANSWERS_PER_ROW_GROUP` answers each, and the rows of every query
    that are measured on a family's children."""
    run: list[tuple[Family, list[np.ndarray]]] = []
    n_answers = 0
    for number, family in enumerate(families, 1):
        rows = [demanded_rows(query, family) for query in queries]
        run.append((family, rows))
        n_answers += sum(of_query.size for of_query in rows) * (family.stop - family.start)
        if n_answers >= ANSWERS_PER_ROW_GROUP or number == len(families):
            yield run
            run, n_answers = [], 0


def _measure_rows(
    shard: ConfidentialShard,
    family: np.ndarray,
    query: MarginalQuery,
    rows_of_family: Sequence[np.ndarray],
    budget: Budget,
    draws: NoiseDraws,
    query_share: Fraction,
) -> DemandedAnswers:
    """Answers of one query to the geounits of a shard, by the rows of the family (n,) of each; the
    noise is one vector for each share among them."""
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
    """Answers (k,) of some rows of a query to geounits, which ascend by both, from the records
    (n, n_cells) of all."""
    demanded = geounit * query.n_rows + rows
    owner = np.repeat(np.arange(histograms.shape[0]), np.diff(histograms.indptr))
    counted = owner * query.n_rows + query.row_of_cell[histograms.indices]
    place = np.searchsorted(demanded, counted)
    # Behind the last stands what no record is counted in.
    is_demanded = np.append(demanded, -1)[place] == counted
    values = np.zeros(rows.size, dtype=np.int64)
    np.add.at(values, place[is_demanded], histograms.data[is_demanded])
    return values

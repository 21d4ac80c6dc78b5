"""Accuracy of the estimates against the confidential truth; the result is confidential too."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import sparse

from .....geography.levels import Spine
from ....answers.estimates import read_estimates
from ....census.histograms import read_histogram
from ....census.queries import marginal_query
from ....runs.directory import RunDirectory
from ...measurement.measure import shard_histograms
from ...settings import TopdownSettings
from ...spine.files import spine_of
from ...spine.shards import shards_of

QuerySums = dict[tuple[str, str], tuple[int, int, int]]
"""By geolevel and query, of all answers: absolute errors and errors added up, and the largest."""


def has_truth(run: RunDirectory, settings: TopdownSettings) -> bool:
    """Whether the confidential histograms are still there to compare with."""
    return all(run.histogram(universe).exists() for universe in settings.run.universes)


def records_by_block(run: RunDirectory, settings: TopdownSettings) -> dict[str, pd.Series] | None:
    """True number of records of every block by universe, by block geocode; confidential.

    None for a run without geometry, whose report has no map, and where the histograms are gone.
    """
    if settings.input.geometry is None or not has_truth(run, settings):
        return None
    found = {}
    for universe in settings.run.universes:
        blocks = spine_of(run, universe).block_geocode
        n_cells = settings.schema_of(universe).n_cells
        counts = read_histogram(run.histogram(universe), blocks, n_cells=n_cells)
        found[universe] = pd.Series(np.asarray(counts.sum(axis=1)).ravel(), index=blocks)
    return found


def errors_of_universe(run: RunDirectory, settings: TopdownSettings, universe: str) -> list[dict]:
    """The rows of `rows_of_sums` for one universe, from its estimates and its histograms."""
    return rows_of_sums(run, settings, universe, sums_of_shards(run, settings, universe))


def sums_of_shards(
    run: RunDirectory, settings: TopdownSettings, universe: str, number: int = 0, of: int = 1
) -> QuerySums:
    """The errors of a universe, or of share `number` of `of` of its shards, added up."""
    spine = spine_of(run, universe)
    schema = settings.schema_of(universe)
    queries = {name: marginal_query(schema, name) for name in _names(settings, universe, spine)}
    shards = shards_of(run, universe)
    sums: QuerySums = {}
    for shard in shards[len(shards) * number // of : len(shards) * (number + 1) // of]:
        truth = shard_histograms(run, universe, spine, shard, schema.n_cells)
        estimate = read_estimates(
            [run.estimates(universe, shard.geolevel, shard.name)],
            spine.geolevel(shard.geolevel).geocode[shard.start : shard.stop],
            schema.n_cells,
        )
        difference = sparse.csr_array(estimate - truth)
        for name, query in queries.items():
            error = (difference @ query.matrix.T).data
            absolute = np.abs(error)
            own = (int(absolute.sum()), int(error.sum()), int(absolute.max(initial=0)))
            add_sums(sums, {(shard.geolevel, name): own})
    return sums


def add_sums(sums: QuerySums, others: QuerySums) -> None:
    """Add the sums of other shards."""
    for key, (absolute, signed, largest) in others.items():
        before = sums.get(key, (0, 0, 0))
        sums[key] = before[0] + absolute, before[1] + signed, max(before[2], largest)


def rows_of_sums(
    run: RunDirectory, settings: TopdownSettings, universe: str, sums: QuerySums
) -> list[dict]:
    """The errors of one universe, from the sums of all its shards: one row a geolevel and query.

    Columns: universe, geolevel, query, geounits, answers (answers per geounit),
    mean_absolute_error (per answer), mean_error, largest_error.
    """
    spine, schema = spine_of(run, universe), settings.schema_of(universe)
    rows = []
    for level in spine.geolevels:
        for name in _names(settings, universe, spine):
            n_answers = marginal_query(schema, name).n_rows
            absolute, signed, largest = sums[level.name, name]
            rows.append(
                {
                    "universe": universe,
                    "geolevel": level.name,
                    "query": name,
                    "geounits": len(level),
                    "answers": n_answers,
                    "mean_absolute_error": absolute / (len(level) * n_answers),
                    "mean_error": signed / (len(level) * n_answers),
                    "largest_error": largest,
                }
            )
    return rows


def _names(settings: TopdownSettings, universe: str, spine: Spine) -> list[str]:
    asked = settings.budget_of(universe).query_shares[spine.names[-1]]
    return list(dict.fromkeys(("total", *asked)))

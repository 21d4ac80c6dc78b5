"""Accuracy of the estimates against the confidential truth; the result is confidential too."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse
from spineflow.tasks.answers.estimates import read_estimates
from spineflow.tasks.census.histograms import sum_histogram
from spineflow.tasks.census.queries import MarginalQuery, marginal_query
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.files import replacing
from spineflow.tasks.topdown.measurement.measure import shard_histograms
from spineflow.tasks.topdown.paths import spine_folder
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import read_spine
from spineflow.tasks.topdown.spine.shards import read_shards

ACCURACY = "accuracy.parquet"
"""Errors of a run, in its confidential folder."""


def has_truth(run: RunDirectory, settings: TopdownSettings) -> bool:
    """Whether the confidential histograms are still there to compare with."""
    return all(run.histogram(universe).exists() for universe in settings.run.universes)


def write_accuracy(run: RunDirectory, settings: TopdownSettings) -> None:
    """Write the errors of every universe to the confidential folder of the run."""
    rows = [
        row
        for universe in settings.run.universes
        for row in errors_of_universe(run, settings, universe)
    ]
    table = pa.Table.from_pandas(pd.DataFrame(rows), preserve_index=False)
    with replacing(run.confidential / ACCURACY) as part:
        pq.write_table(table, part)


def read_accuracy(run: RunDirectory) -> pd.DataFrame | None:
    """What `write_accuracy` wrote, None if it is gone: one row a universe, geolevel and query.

    Columns: universe, geolevel, query, geounits, answers (answers per geounit),
    mean_absolute_error (per answer), mean_error, largest_error.
    """
    path = run.confidential / ACCURACY
    return pq.read_table(path).to_pandas() if path.exists() else None


def records_by_block(run: RunDirectory, settings: TopdownSettings) -> dict[str, pd.Series] | None:
    """True number of records of every block by universe, by block geocode; confidential.

    None for a run without geometry, whose report has no map, and where the histograms are gone.
    """
    if settings.input.geometry is None or not has_truth(run, settings):
        return None
    found = {}
    for universe in settings.run.universes:
        blocks = read_spine(spine_folder(run, universe)).block_geocode
        sums = sum_histogram(
            run.histogram(universe),
            blocks,
            np.arange(len(blocks)),
            n_groups=len(blocks),
            n_cells=settings.schema_of(universe).n_cells,
        )
        found[universe] = pd.Series(np.asarray(sums.sum(axis=1)).ravel(), index=blocks)
    return found


def errors_of_universe(
    run: RunDirectory, settings: TopdownSettings, universe: str
) -> Iterator[dict]:
    """The rows of `read_accuracy` for one universe, from its estimates and its histograms."""
    spine = read_spine(spine_folder(run, universe))
    schema = settings.schema_of(universe)
    asked = settings.budget_of(universe).query_shares[spine.names[-1]]
    names = list(dict.fromkeys(("total", *asked)))
    shards = read_shards(spine_folder(run, universe))
    for geolevel in spine.names:
        sums = {name: np.zeros(2) for name in names}
        largest = dict.fromkeys(names, 0)
        level = spine.geolevel(geolevel)
        for shard in (shard for shard in shards if shard.geolevel == geolevel):
            truth = shard_histograms(run, universe, spine, shard, schema.n_cells)
            estimate = read_estimates(
                [run.estimates(universe, geolevel, shard.name)],
                level.geocode[shard.start : shard.stop],
                schema.n_cells,
            )
            difference = sparse.csr_array(estimate - truth)
            for name in names:
                error = _answers(difference, marginal_query(schema, name)).data
                sums[name] += np.abs(error).sum(), error.sum()
                largest[name] = max(largest[name], int(np.abs(error).max(initial=0)))
        for name in names:
            n_answers = marginal_query(schema, name).n_rows
            absolute, signed = sums[name] / (len(level) * n_answers)
            yield {
                "universe": universe,
                "geolevel": geolevel,
                "query": name,
                "geounits": len(level),
                "answers": n_answers,
                "mean_absolute_error": absolute,
                "mean_error": signed,
                "largest_error": largest[name],
            }


def _answers(counts: sparse.csr_array, query: MarginalQuery) -> sparse.csr_array:
    """Answers `(n, n_rows)` to a query, without those that count nothing."""
    answers = sparse.csr_array(
        (counts.data.copy(), query.row_of_cell[counts.indices], counts.indptr.copy()),
        shape=(counts.shape[0], query.n_rows),
    )
    answers.sum_duplicates()
    return answers

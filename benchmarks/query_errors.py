"""Errors of the measured queries of a topdown run, at every level, beside those of its accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd


def query_errors(run: Any, settings: Any) -> pd.DataFrame:
    """The errors of every universe's queries; a row for each level (`levels_of_run`) and query.

    Columns: universe, geolevel, query, geounits, answers (answers per geounit),
    mean_absolute_error (per answer), mean_error, largest_error.
    """
    from spineflow.tasks.census.histograms import read_histogram
    from spineflow.tasks.census.queries import incidence, marginal_query
    from spineflow.tasks.topdown.spine.build import areas_of_level, levels_of_run
    from spineflow.tasks.topdown.spine.files import RunUniverse

    rows = []
    for universe in settings.run.universes:
        own = RunUniverse(run, settings, universe)
        spine, n_cells = own.spine, own.schema.n_cells
        blocks = spine.geolevels[-1]
        truth = read_histogram(run.histogram(universe), spine.block_geocode, n_cells=n_cells)
        difference = own.released(blocks) - truth
        names = dict.fromkeys(("total", *own.budget.query_shares[spine.names[-1]]))
        for level in levels_of_run(run, settings, spine):
            source, units = areas_of_level(run, settings, spine, level)
            number = spine.ancestors(source) if units is None else units.number
            n = int(number.max()) + 1
            of_areas = incidence(number, n) @ difference
            for query in (marginal_query(own.schema, name) for name in names):
                error = np.asarray((of_areas @ query.matrix.T).data)
                n_answers = n * query.n_rows
                rows.append(
                    {
                        "universe": universe,
                        "geolevel": level,
                        "query": query.name,
                        "geounits": n,
                        "answers": query.n_rows,
                        "mean_absolute_error": np.abs(error).sum() / n_answers,
                        "mean_error": error.sum() / n_answers,
                        "largest_error": np.abs(error).max(initial=0),
                    }
                )
    return pd.DataFrame(rows)

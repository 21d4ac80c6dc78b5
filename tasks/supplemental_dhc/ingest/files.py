"""Where a run of the supplemental tables keeps its areas, its plan and its confidential counts."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq

from ...census.histograms import read_histogram
from ...runs.directory import RunDirectory
from ...runs.files import read_values
from ..paths import UNIVERSE, areas_file, plan_file
from ..workload.measures import N_COLUMNS
from ..workload.plan import Plan
from .areas import Areas, areas_of_rows


def read_areas(run: RunDirectory) -> Areas:
    """The areas of a run."""
    return areas_of_rows(pq.read_table(areas_file(run)).to_pandas().astype(object))


def read_plan(run: RunDirectory) -> Plan:
    """The plan of a run."""
    return read_values(plan_file(run), Plan)


def true_counts(run: RunDirectory, areas: Areas, level: str) -> np.ndarray:
    """Confidential counts `(n_regions, N_COLUMNS)` of the regions of a level, after truncation."""
    found = read_histogram(run.histogram(UNIVERSE), areas.names, n_cells=N_COLUMNS)
    return areas.summed(level, found.toarray())

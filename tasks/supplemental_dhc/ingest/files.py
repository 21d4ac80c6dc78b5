"""Where a run of the supplemental tables keeps its areas and its confidential counts."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq

from ...census.histograms import read_histogram
from ...runs.directory import RunDirectory
from ...runs.settings_files import frozen_settings
from ..paths import UNIVERSE, areas_file
from ..settings import SupplementalDhcSettings
from ..workload.measures import N_COLUMNS
from ..workload.plan import Plan, make_plan
from .areas import Areas, areas_of_rows


def read_areas(run: RunDirectory) -> Areas:
    """The areas of a run."""
    return areas_of_rows(pq.read_table(areas_file(run)).to_pandas().astype(object))


def read_plan(run: RunDirectory) -> Plan:
    """The plan of a run, by its settings and areas."""
    return plan_of(frozen_settings(SupplementalDhcSettings, run.settings), read_areas(run))


def plan_of(settings: SupplementalDhcSettings, areas: Areas) -> Plan:
    """The plan by settings and areas."""
    return make_plan(
        settings.rhos, settings.mechanism.taus, areas.n_regions, infinite=settings.privacy.infinite
    )


def true_counts(run: RunDirectory, areas: Areas, level: str) -> np.ndarray:
    """Confidential counts `(n_regions, N_COLUMNS)` of the regions of a level, after truncation."""
    found = read_histogram(run.histogram(UNIVERSE), areas.names, n_cells=N_COLUMNS)
    return areas.summed(level, found.toarray())

"""Where a group-sizes run keeps its hierarchy, its plan and its confidential counts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...census.histograms import read_histogram
from ...runs.directory import RunDirectory
from ...runs.files import read_values, while_unchanged
from ...runs.stamps import write_parquet
from ..paths import UNIVERSE, exact_groups_file, plan_file, regions_file
from ..workload.plan import Plan
from ..workload.regions import RegionHierarchy
from .hierarchy import sorted_hierarchy


@while_unchanged(regions_file, at_most=1)
def read_regions(run: RunDirectory) -> RegionHierarchy:
    """The hierarchy of a run, which is not to be changed."""
    rows = pq.read_table(regions_file(run)).to_pandas()
    return sorted_hierarchy(rows, list(dict.fromkeys(rows["level"])))


def read_plan(run: RunDirectory) -> Plan:
    """The plan of a run; one of version 0.1.0 has fewer keys."""
    return read_values(plan_file(run), Plan)


def write_exact_groups(run: RunDirectory, regions: np.ndarray, groups: np.ndarray) -> None:
    """Write the public numbers of groups of the regions of a level."""
    table = pa.table({"region": pa.array(regions, pa.string()), "groups": pa.array(groups)})
    write_parquet(exact_groups_file(run), table)


def exact_groups(run: RunDirectory, plan: Plan, hierarchy: RegionHierarchy) -> np.ndarray | None:
    """The public numbers of groups in the order of the regions; None if only the total is."""
    if plan.exact_level is None:
        return None
    table = pq.read_table(exact_groups_file(run)).to_pandas().set_index("region")
    level = hierarchy.levels[hierarchy.names.index(plan.exact_level)]
    return table["groups"].reindex(level.codes).to_numpy(dtype=np.int64)


def true_counts(run: RunDirectory, hierarchy: RegionHierarchy, plan: Plan) -> list[np.ndarray]:
    """Confidential counts (n, n_sizes) of every level, root first."""
    finest = read_histogram(
        run.histogram(UNIVERSE), hierarchy.levels[-1].codes, n_cells=plan.n_sizes
    )
    return hierarchy.sum_up(finest.toarray())

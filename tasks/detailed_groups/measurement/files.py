"""Files of noisy counts of population groups: Parquet, one row a group, published once.

`measurements/detailed_groups/<us|pr>/<region type>/<level>/<shard>.parquet`: `region_type`,
`region_id`, `iteration_code` (strings), `table` (int8: 0 total, 1 to 3 sex by age in 4, 9 and 23
bins), `total_only` (bool), `value` (list<int64>, row-major sex by age), `variance` (double, of each
count), `plb` (the part of the level's budget spent on these counts, as `p/q`). Rows are in the
order of region ids, then of iteration codes; every group of the universe has one.

`measurements/detailed_groups_stage_1/...`, in files of these names: `region_id`, `iteration_code`,
`value` (int64, the noisy total), `variance`, `plb`, without the groups that are measured by a total
only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...runs.stamps import INTEGER_LIST
from ..workload.budgets import LevelNoise, StageNoise
from ..workload.tabulations import NOT_MEASURED
from .stages import MeasuredCounts

ROWS_PER_ROW_GROUP = 1 << 18

MEASURED_SCHEMA = pa.schema(
    [
        pa.field("region_type", pa.string(), nullable=False),
        pa.field("region_id", pa.string(), nullable=False),
        pa.field("iteration_code", pa.string(), nullable=False),
        pa.field("table", pa.int8(), nullable=False),
        pa.field("total_only", pa.bool_(), nullable=False),
        pa.field("value", INTEGER_LIST, nullable=False),
        pa.field("variance", pa.float64(), nullable=False),
        pa.field("plb", pa.string(), nullable=False),
    ]
)
STAGE_1_SCHEMA = pa.schema(
    [
        pa.field("region_id", pa.string(), nullable=False),
        pa.field("iteration_code", pa.string(), nullable=False),
        pa.field("value", pa.int64(), nullable=False),
        pa.field("variance", pa.float64(), nullable=False),
        pa.field("plb", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True)
class GroupNames:
    """Names of a shard's groups: every region with every iteration.

    `region_ids` (n_regions,) and `iteration_codes` (n_iterations,) are texts; `total_only` is the
    mask of the iterations measured by a total only.
    """

    region_type: str
    region_ids: np.ndarray
    iteration_codes: np.ndarray
    total_only: np.ndarray

    @property
    def positions(self) -> np.ndarray:
        """Position of each group's region, and of its iteration, shape (2, n_groups), int32."""
        shape = len(self.region_ids), len(self.iteration_codes)
        return np.indices(shape, dtype=np.int32).reshape(2, -1)


def total_rows(names: GroupNames, noise: StageNoise, totals: np.ndarray) -> pa.RecordBatch:
    """Noisy totals (n,) of the groups that are not measured by a total only, with the columns
    `STAGE_1_SCHEMA`.
    """
    region, iteration = names.positions
    rows = np.flatnonzero(~names.total_only[iteration])
    columns = [
        _texts(region[rows], names.region_ids),
        _texts(iteration[rows], names.iteration_codes),
        pa.array(totals),
        pa.array(np.full(rows.size, noise.variance)),
        _texts(np.zeros(rows.size, dtype=np.int32), [noise.plb]),
    ]
    return pa.record_batch(columns, schema=STAGE_1_SCHEMA)


def table_rows(names: GroupNames, noise: LevelNoise, measured: MeasuredCounts) -> pa.RecordBatch:
    """Noisy counts of all groups, with the columns `MEASURED_SCHEMA`; groups of the table
    `NOT_MEASURED`, which occur for households, have no row.
    """
    region, iteration = names.positions
    rows = np.flatnonzero(measured.table != NOT_MEASURED)
    is_total_only = names.total_only[iteration[rows]]
    # Groups between them have no counts, so the rows' counts are contiguous.
    offsets = np.append(measured.offsets[rows], measured.offsets[-1])
    values = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(measured.values), type=INTEGER_LIST
    )
    variance = np.where(is_total_only, noise.total_only.variance, noise.stage_2.variance)
    columns = [
        _texts(np.zeros(rows.size, dtype=np.int32), [names.region_type]),
        _texts(region[rows], names.region_ids),
        _texts(iteration[rows], names.iteration_codes),
        pa.array(measured.table[rows]),
        pa.array(is_total_only),
        values,
        pa.array(variance),
        _texts(is_total_only.astype(np.int32), [noise.stage_2.plb, noise.total_only.plb]),
    ]
    return pa.record_batch(columns, schema=MEASURED_SCHEMA)


def read_totals(path: Path) -> np.ndarray:
    """The noisy totals of a shard, in the order of its groups, shape (n,), int64."""
    return pq.read_table(path, columns=["value"])["value"].to_numpy()


def _texts(codes: np.ndarray, names: Sequence[str] | np.ndarray) -> pa.Array:
    return pa.array(list(names), pa.string()).take(pa.array(codes))

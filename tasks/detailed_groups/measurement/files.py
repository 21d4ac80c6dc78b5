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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...runs.stamps import INTEGER_LIST, stamp, write_parquet_once
from ...runs.writing import Recording
from ..workload.tabulations import NOT_MEASURED
from .stages import LevelNoise, MeasuredCounts, StageNoise

ROWS_PER_ROW_GROUP = 1 << 18

_MEASURED_SCHEMA = pa.schema(
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
_STAGE_1_SCHEMA = pa.schema(
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
    def region(self) -> np.ndarray:
        """Position of each group's region, shape (n_groups,), int32."""
        n_regions, n_iterations = len(self.region_ids), len(self.iteration_codes)
        return np.repeat(np.arange(n_regions, dtype=np.int32), n_iterations)

    @property
    def iteration(self) -> np.ndarray:
        """Position of each group's iteration, shape (n_groups,), int32."""
        n_regions, n_iterations = len(self.region_ids), len(self.iteration_codes)
        return np.tile(np.arange(n_iterations, dtype=np.int32), n_regions)


def write_noisy_totals(
    path: Path,
    names: GroupNames,
    noise: StageNoise,
    draw: Callable[[], np.ndarray],
    *,
    is_private: bool,
    recording: Recording | None,
) -> Path:
    """Write the noisy totals that `draw` gives; if the file stands, it is kept, nothing drawn.

    `recording` sees to it that the file is recorded before others can read it.
    """

    def columns() -> list[pa.Array]:
        rows = np.flatnonzero(~names.total_only[names.iteration])
        return [
            _texts(names.region[rows], names.region_ids),
            _texts(names.iteration[rows], names.iteration_codes),
            pa.array(draw()),
            pa.array(np.full(rows.size, noise.variance)),
            _texts(np.zeros(rows.size, dtype=np.int32), [noise.plb]),
        ]

    return _published(path, _STAGE_1_SCHEMA, columns, is_private, recording)


def write_noisy_tables(
    path: Path,
    names: GroupNames,
    noise: LevelNoise,
    draw: Callable[[], MeasuredCounts],
    *,
    is_private: bool,
    recording: Recording | None,
) -> Path:
    """Write the counts that `draw` gives; if the file stands, it is kept, nothing drawn. Groups of
    the table `NOT_MEASURED`, of which tables of households have some, have no row.

    `recording` sees to it that the file is recorded before others can read it.
    """

    def columns() -> list[pa.Array]:
        measured = draw()
        rows = np.flatnonzero(measured.table != NOT_MEASURED)
        iteration = names.iteration[rows]
        is_total_only = names.total_only[iteration]
        # Groups between them have no counts, so that those of the rows follow each other.
        offsets = np.append(measured.offsets[rows], measured.offsets[-1])
        values = pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()), pa.array(measured.values), type=INTEGER_LIST
        )
        variance = np.where(is_total_only, noise.total_only.variance, noise.stage_2.variance)
        return [
            _texts(np.zeros(rows.size, dtype=np.int32), [names.region_type]),
            _texts(names.region[rows], names.region_ids),
            _texts(iteration, names.iteration_codes),
            pa.array(measured.table[rows]),
            pa.array(is_total_only),
            values,
            pa.array(variance),
            _texts(is_total_only.astype(np.int32), [noise.stage_2.plb, noise.total_only.plb]),
        ]

    return _published(path, _MEASURED_SCHEMA, columns, is_private, recording)


def _published(
    path: Path,
    schema: pa.Schema,
    columns: Callable[[], list[pa.Array]],
    is_private: bool,
    recording: Recording | None,
) -> Path:
    """Write the columns; where the file stands, they are not asked for."""
    return write_parquet_once(
        path,
        schema,
        (pa.record_batch(make(), schema=schema) for make in (columns,)),
        stamp(is_private=is_private),
        recording=recording,
        row_group_size=ROWS_PER_ROW_GROUP,
    )


def read_totals(path: Path) -> np.ndarray:
    """The noisy totals of a shard, in the order of its groups, shape (n,), int64."""
    return pq.read_table(path, columns=["value"])["value"].to_numpy()


def _texts(codes: np.ndarray, names: Sequence[str] | np.ndarray) -> pa.Array:
    return pa.array(list(names), pa.string()).take(pa.array(codes))

"""Measurements on demand have the rows that can matter, and no others.

A row of a query can matter to a geounit if it counts a cell that its parent's estimate does not
have empty, or at the root one that is no structural zero. None can where the geounit is an only
child, or its parent has no records: its counts are then settled. The file of a run says which rows
were measured; here they are told anew from the estimates.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..outcome import Failures
from .cells import spelled
from .conservation import LevelEstimates
from .privacy_loss import DPQUERY_SUFFIX
from .run_files import ExpectedUniverse, SpineLevel, lengths_of_lists, read_batches

ROWS_PER_BATCH = 1 << 12


def check_demanded(
    run_directory: Path,
    expected: ExpectedUniverse,
    level: SpineLevel,
    above: LevelEstimates | None,
    failures: Failures,
) -> None:
    """Check the rows of a geolevel's measurements, or of a part of one with whole families.

    above : estimates of the geolevel above, whose geounits the level's `parent` numbers; None at
        the root.

    Raises UnusableRunFile for a file of another layout.
    """
    parent = np.zeros(level.n, dtype=np.int64) if above is None else level.parent
    demands: dict[str, np.ndarray] = {}
    for name in expected.query_shares[level.name]:
        margin = expected.cells.margin(name)
        if above is None:
            demanded = np.zeros(margin.n_rows, dtype=bool)
            demanded[margin.row_of_cell[expected.possible]] = True
            keys = np.flatnonzero(demanded)
        else:
            has_choice = np.bincount(parent, minlength=int(above.geounit.max(initial=0)) + 1) > 1
            entries = has_choice[above.geounit]
            rows = margin.row_of_cell[above.cell[entries]]
            keys = np.unique(above.geounit[entries] * margin.n_rows + rows)
        demands[spelled(name) + DPQUERY_SUFFIX] = keys
    for batch in read_batches(
        run_directory / "measurements" / expected.cells.universe / level.name / "on_demand",
        ("geocode", "query_name", "row", "value"),
        as_dictionary=["query_name"],
        level=level,
        rows_per_batch=ROWS_PER_BATCH,
    ):
        geounit = level.positions(batch.column("geocode"))
        name = batch.column("query_name").cast(pa.string())
        for query, demanded in demands.items():
            chosen = np.asarray(pc.equal(name, query)) & (geounit >= 0)
            part = batch.filter(pa.array(chosen))
            n_rows = expected.cells.margin(query.removesuffix(DPQUERY_SUFFIX)).n_rows
            wrong = _other_rows(part, parent[geounit[chosen]], demanded, n_rows)
            _add_wrong(failures, level, geounit[chosen], wrong)


def _add_wrong(
    failures: Failures, level: SpineLevel, geounit: np.ndarray, wrong: np.ndarray
) -> None:
    failures.add_each(
        wrong,
        lambda i: (
            f"{level.describe(geounit[i])} was measured in other rows than its parent demands"
        ),
    )


def _other_rows(
    part: pa.RecordBatch, parent: np.ndarray, demanded: np.ndarray, n_rows: int
) -> np.ndarray:
    """Whether measurements (n,) of one query have other rows than the keys `demanded` of their
    parents, parent * n_rows + row, say; these ascend."""
    row, value = part.column("row"), part.column("value")
    lengths = [
        lengths_of_lists(
            column,
            "the rows and values of measurements are no lists of integers",
            "a row or value of a measurement is missing",
        )
        for column in (row, value)
    ]
    rows = row.flatten().to_numpy()
    geounit = np.repeat(np.arange(len(parent)), lengths[0])
    keys = parent[geounit] * n_rows + rows
    place = np.searchsorted(demanded, keys)
    is_demanded = np.zeros(keys.size, dtype=bool)
    inside = (place < demanded.size) & (rows >= 0) & (rows < n_rows)
    is_demanded[inside] = demanded[place[inside]] == keys[inside]
    first = np.searchsorted(demanded, [parent * n_rows, (parent + 1) * n_rows])
    wrong = (lengths[0] != lengths[1]) | (lengths[0] != first[1] - first[0])
    wrong[geounit[~is_demanded]] = True
    falls = np.flatnonzero((np.diff(rows) <= 0) & (np.diff(geounit) == 0))
    wrong[geounit[falls]] = True
    return wrong

"""True counts of population groups, on their support: confidential, one file a level.

A level's file has a row for each cell of the finest table that is not zero: `region` and
`iteration` (positions in the region domain and in the iteration universe), `cell`, `count`, sorted
in that order, so that the counts of some regions are read without the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...runs.files import replacing
from ...runs.stamps import stamp_at, stamped, write_parquet
from ..workload.iterations import FINEST_TABLE, N_CELLS
from ..workload.mapping import IterationUniverse, iterations_of
from ..workload.regions import NO_REGION
from .persons import CountedPersons

CELLS = N_CELLS[FINEST_TABLE]
ROWS_AT_A_TIME = 1 << 20
"""Rows of persons that are expanded into iterations at a time."""

_SCHEMA = pa.schema(
    [
        ("region", pa.int32()),
        ("iteration", pa.int16()),
        ("cell", pa.int8()),
        ("count", pa.int64()),
    ]
)
_PERSONS_SCHEMA = pa.schema(
    [
        ("area", pa.int32()),
        ("combination", pa.int32()),
        ("cell", pa.int8()),
        ("count", pa.int64()),
    ]
)


@dataclass(frozen=True)
class GroupCounts:
    """Counts of some groups that are not zero; arrays of shape (n,), sorted."""

    region: np.ndarray
    iteration: np.ndarray
    cell: np.ndarray
    count: np.ndarray


def count_groups(
    persons: CountedPersons, region_of_area: np.ndarray, universe: IterationUniverse
) -> Iterator[GroupCounts]:
    """Counts of one population group level, in consecutive parts of some regions each.

    `region_of_area` is the position of each area's region, `NO_REGION` for none. A person counts
    once in each iteration. Memory is bounded by `ROWS_AT_A_TIME` and the largest region's counts.
    """
    region = region_of_area[persons.area]
    rows = np.flatnonzero(region != NO_REGION)
    if rows.size and (np.diff(region[rows]) < 0).any():
        rows = rows[np.argsort(region[rows], kind="stable")]
    iteration, start = _iterations_of_combinations(persons, universe)
    n_iterations = len(universe)
    held = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    for first in range(0, rows.size, ROWS_AT_A_TIME):
        part = rows[first : first + ROWS_AT_A_TIME]
        combination = persons.combination[part]
        n_each = start[combination + 1] - start[combination]
        within = np.arange(n_each.sum()) - np.repeat(np.cumsum(n_each) - n_each, n_each)
        which = iteration[np.repeat(start[combination], n_each) + within]
        key = np.repeat(region[part].astype(np.int64) * n_iterations, n_each) + which
        key = key * CELLS + np.repeat(persons.cell[part], n_each)
        count = np.repeat(persons.count[part], n_each)
        key, count = _summed(np.append(held[0], key), np.append(held[1], count))
        # The last region of this part may go on in the next.
        is_last = first + ROWS_AT_A_TIME >= rows.size
        open_region = int(region[part[-1]]) * n_iterations * CELLS
        end = key.size if is_last else int(np.searchsorted(key, open_region))
        held = key[end:], count[end:]
        if end:
            yield _unpacked(key[:end], count[:end], n_iterations)


def write_counts(path: Path, parts: Iterator[GroupCounts]) -> None:
    """Write the counts of a level; the file is confidential."""
    schema = stamped(_SCHEMA, stamp_at(path))
    with replacing(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for part in parts:
            writer.write_table(
                pa.table([getattr(part, name) for name in schema.names], schema=schema)
            )


def read_counts(path: Path, start: int, stop: int) -> GroupCounts:
    """The counts of the regions from `start` to before `stop`."""
    table = pq.read_table(path, filters=[("region", ">=", start), ("region", "<", stop)])
    return GroupCounts(*(table[name].to_numpy() for name in _SCHEMA.names))


def write_persons(path: Path, persons: CountedPersons) -> None:
    """Write persons by area and combination of codes; the two files are confidential."""
    codes = [*persons.race_codes.T, persons.ethnicity_code]
    named = {f"code_{i}": of_person for i, of_person in enumerate(codes)}
    write_parquet(combinations_file(path), pa.table(named), compression="zstd")
    columns = [getattr(persons, name) for name in _PERSONS_SCHEMA.names]
    write_parquet(path, pa.table(columns, schema=_PERSONS_SCHEMA), compression="zstd")


def read_persons(path: Path) -> CountedPersons:
    """What `write_persons` wrote."""
    codes = pq.read_table(combinations_file(path))
    codes = np.stack([column.to_numpy() for column in codes.columns], axis=1)
    table = pq.read_table(path)
    columns = {name: table[name].to_numpy() for name in _PERSONS_SCHEMA.names}
    return CountedPersons(codes[:, :-1], codes[:, -1], **columns)


def combinations_file(path: Path) -> Path:
    """The file of the combinations beside that of the persons."""
    return path.with_name(f"{path.stem}_codes{path.suffix}")


def _iterations_of_combinations(
    persons: CountedPersons, universe: IterationUniverse
) -> tuple[np.ndarray, np.ndarray]:
    parts, starts, offset = [], [np.zeros(1, dtype=np.int64)], 0
    for first in range(0, len(persons.ethnicity_code), ROWS_AT_A_TIME):
        rows = slice(first, first + ROWS_AT_A_TIME)
        found, start = iterations_of(
            universe, persons.race_codes[rows], persons.ethnicity_code[rows]
        )
        parts.append(found)
        starts.append(start[1:] + offset)
        offset += found.size
    return np.concatenate(parts), np.concatenate(starts)


def _summed(key: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct keys in ascending order and the sums of their counts.

    Where key and count fit into one word they are sorted together, which is several times faster
    than sorting one by the other.
    """
    if not key.size:
        return key, count
    bits = int(count.max()).bit_length()
    low = int(key.min())
    if (int(key.max()) - low).bit_length() + bits < 64:
        packed = (key - low) << bits | count
        packed.sort()
        key, count = (packed >> bits) + low, packed & (1 << bits) - 1
    else:
        order = np.argsort(key)
        key, count = key[order], count[order]
    start = np.flatnonzero(np.diff(key, prepend=-1))
    return key[start], np.add.reduceat(count, start)


def _unpacked(key: np.ndarray, count: np.ndarray, n_iterations: int) -> GroupCounts:
    group, cell = np.divmod(key, CELLS)
    region, iteration = np.divmod(group, n_iterations)
    return GroupCounts(
        region.astype(np.int32), iteration.astype(np.int16), cell.astype(np.int8), count
    )

"""Persons or householders as arrays, and the true counts of population groups: confidential.

Persons are counted by joins on distinct combinations of race and ethnicity codes: the groups of a
combination are determined once. A person is kept as a few small integers until the end of the file,
so that memory grows by some twenty bytes a person.

The file of a level's counts has a row for each cell of the finest table that is not zero: `region`
and `iteration` (positions in the region domain and in the iteration universe), `cell`, `count`,
sorted in that order, so that the counts of some regions are read without the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ....geography.hierarchy import first_rows
from ....validation.rules import ETHNICITY_COLUMN, NO_CODE, RACE_COLUMNS, unknown_code
from ...census.cef_2020 import recode_of
from ...runs.files import replacing
from ...runs.stamps import stamped
from ...tables.columns import CodedColumn
from ...tables.value_tallies import ValueTally
from ..workload.regions import NO_REGION
from ..workload.specification import NONE, IterationUniverse, iterations_of
from ..workload.tabulations import FINEST_TABLE, N_CELLS, finest_cell

ATTRIBUTES = ("sex", "age", "cenrace")
RECODES = {name: recode_of("persons", name) for name in ATTRIBUTES}
ATTRIBUTE_COLUMNS = tuple(recode.columns[0] for recode in RECODES.values())

N_AGES, N_CENRACES = 116, 63


@dataclass(frozen=True)
class PersonBatch:
    """Some persons; arrays have shape (n,).

    `block` is a position in the geography frame, `sex` 0 or 1, `age` in years, `cenrace` CENRACE
    less one. `race_codes`, of shape (n, 8), and `ethnicity_code` are numbers of codes, `NONE` for
    none. Where households are counted, `household` is the cell of a householder's household, `NONE`
    for other persons.
    """

    block: np.ndarray
    sex: np.ndarray
    age: np.ndarray
    cenrace: np.ndarray
    race_codes: np.ndarray
    ethnicity_code: np.ndarray
    household: np.ndarray | None = None


@dataclass(frozen=True)
class CountedPersons:
    """Persons, or householders, by area, combination of codes and cell; confidential.

    `race_codes`, of shape (n_combinations, max_race_codes), ascending with `NONE` last, and
    `ethnicity_code` are the distinct combinations. `area`, `combination`, `cell` (of the finest
    table, or of households) and `count` are the rows that are not zero, sorted by area, then
    combination, then cell.
    """

    race_codes: np.ndarray
    ethnicity_code: np.ndarray
    area: np.ndarray
    combination: np.ndarray
    cell: np.ndarray
    count: np.ndarray


@dataclass(frozen=True)
class Identity:
    """Persons by block, age and CENRACE less one, not zero; see `IDENTITY_COLUMNS`."""

    block: np.ndarray
    age: np.ndarray
    cenrace: np.ndarray
    count: np.ndarray


def person_evidence(
    columns: Mapping[str, CodedColumn],
    codes: Mapping[str, int],
    evidence: ValueTally,
    *,
    file: int = 0,
) -> None:
    """Add the columns common to both layouts to the evidence, for the file at this position."""

    def is_unknown(value: str | None) -> bool:
        return _is_code(value) and value not in codes

    for name in (*ATTRIBUTE_COLUMNS, *RACE_COLUMNS, ETHNICITY_COLUMN):
        evidence.add("persons", name, columns[name].counts(), file=file)
    for name in (*RACE_COLUMNS, ETHNICITY_COLUMN):
        mask = columns[name].lookup(is_unknown, bool)
        evidence.add_mask("cross_table", unknown_code(name), mask, file=file)
    has_code = [columns[name].lookup(_is_code, bool) for name in RACE_COLUMNS]
    after_none = np.zeros(has_code[0].size, dtype=bool)
    for before, after in zip(has_code[1:], has_code[2:], strict=False):
        after_none |= after & ~before
    evidence.add_mask("cross_table", "race_code_after_none", after_none, file=file)


def coded_persons(
    columns: Mapping[str, CodedColumn],
    block: np.ndarray,
    codes: Mapping[str, int],
    household: np.ndarray | None = None,
) -> PersonBatch:
    """The persons of a batch whose block, attributes, first race and ethnicity are known.

    For `household` see `PersonBatch`.
    """

    def code_of(value: str | None) -> int:
        return NONE if value is None else codes.get(value, NONE)

    levels = {name: recode.evaluate(columns, 0) for name, recode in RECODES.items()}
    race_codes = np.stack(
        [columns[name].lookup(code_of, np.int16) for name in RACE_COLUMNS], axis=1
    )
    ethnicity_code = columns[ETHNICITY_COLUMN].lookup(code_of, np.int16)
    is_known = (block >= 0) & (race_codes[:, 0] != NONE) & (ethnicity_code != NONE)
    for level in levels.values():
        is_known &= level >= 0
    rows = slice(None) if is_known.all() else is_known
    return PersonBatch(
        block[rows],
        **{name: level[rows] for name, level in levels.items()},
        race_codes=race_codes[rows],
        ethnicity_code=ethnicity_code[rows],
        household=None if household is None else household[rows],
    )


@dataclass
class PersonTally:
    """Gathers batches of persons; only the first `max_race_codes` race codes count.

    From batches with households, householders are counted, but all persons enter the identity.
    `area_of_block` gives the area of every block of the geography frame.
    """

    area_of_block: np.ndarray
    max_race_codes: int
    _combinations: list[np.ndarray] = field(default_factory=list)
    _persons: list[tuple[np.ndarray, ...]] = field(default_factory=list)

    def add(self, batch: PersonBatch) -> None:
        """Add a batch."""
        columns = [batch.race_codes[:, i] for i in range(self.max_race_codes)]
        columns.append(batch.ethnicity_code)
        first, combination = distinct_rows(columns)
        distinct = np.stack([column[first] for column in columns], axis=1)
        distinct[:, :-1] = _sort_distinct_codes(distinct[:, :-1])
        cell = batch.household
        if cell is None:
            cell = finest_cell(batch.sex.astype(np.int8), batch.age)
        self._persons.append(
            (
                batch.block.astype(np.int32),
                (combination + sum(map(len, self._combinations))).astype(np.int32),
                cell.astype(np.int8),
                batch.age.astype(np.int8),
                batch.cenrace.astype(np.int8),
            )
        )
        self._combinations.append(distinct)

    def finish(self) -> tuple[CountedPersons, Identity]:
        """Sum the batches; the tally is empty afterwards."""
        block, combination, cell, age, cenrace = (
            np.concatenate(parts) for parts in zip(*self._persons, strict=True)
        )
        self._persons.clear()
        found = np.concatenate(self._combinations)
        self._combinations.clear()
        first, position = distinct_rows(list(found.T))
        # A key of area, combination and cell sorts like the rows.
        own = slice(None) if cell.min() >= 0 else cell >= 0
        key = self.area_of_block[block[own]].astype(np.int64) << 38
        key |= position[combination[own]].astype(np.int64) << 6
        key |= cell[own]
        key, count = _count_keys(key)
        counted = CountedPersons(
            race_codes=found[first][:, :-1],
            ethnicity_code=found[first][:, -1],
            area=(key >> 38).astype(np.int32),
            combination=(key >> 6 & (1 << 32) - 1).astype(np.int32),
            cell=(key & (1 << 6) - 1).astype(np.int8),
            count=count,
        )
        key = (block.astype(np.int64) * N_AGES + age) * N_CENRACES + cenrace
        key, count = _count_keys(key)
        block, rest = np.divmod(key, N_AGES * N_CENRACES)
        return counted, Identity(block, *np.divmod(rest, N_CENRACES), count)


def distinct_rows(columns: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """First occurrences of the distinct rows of some integer columns, and each row's distinct one.

    >>> distinct_rows([np.array([1, 1, 0]), np.array([5, 5, 5])])[1].tolist()
    [0, 0, 1]
    """
    code = np.zeros(columns[0].size, dtype=np.int64)
    n_codes = 1
    for column in columns:
        low, high = int(column.min()), int(column.max())
        if low < high:
            combined = code * (high - low + 1) + (column.astype(np.int64) - low)
            code, values = pd.factorize(combined)
            n_codes = len(values)
    return first_rows(code, n_codes), code


def _sort_distinct_codes(race_codes: np.ndarray) -> np.ndarray:
    """Each row's codes once, ascending, `NONE` last."""
    largest = np.iinfo(race_codes.dtype).max
    codes = np.sort(np.where(race_codes == NONE, largest, race_codes), axis=1)
    codes[:, 1:][codes[:, 1:] == codes[:, :-1]] = largest
    codes.sort(axis=1)
    codes[codes == largest] = NONE
    return codes


def _count_keys(key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distinct keys in ascending order, and how often each occurs; `key` is sorted in place."""
    key.sort()
    start = np.flatnonzero(np.diff(key, prepend=-1))
    return key[start], np.diff(start, append=key.size)


def _is_code(value: str | None) -> bool:
    return value is not None and value != NO_CODE


CELLS = N_CELLS[FINEST_TABLE]
ROWS_AT_A_TIME = 1 << 20
"""Rows of persons expanded into iterations at a time."""

_SCHEMA = pa.schema(
    [
        ("region", pa.int32()),
        ("iteration", pa.int16()),  # Their codes have four digits: there are at most 10,000.
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
        key, count = _sum_keys(np.append(held[0], key), np.append(held[1], count))
        # The last region of this part may continue in the next.
        is_last = first + ROWS_AT_A_TIME >= rows.size
        open_region = int(region[part[-1]]) * n_iterations * CELLS
        end = key.size if is_last else int(np.searchsorted(key, open_region))
        held = key[end:], count[end:]
        if end:
            yield _unpack_keys(key[:end], count[:end], n_iterations)


def write_counts(path: Path, parts: Iterator[GroupCounts]) -> None:
    """Write the counts of a level; the file is confidential."""
    schema = stamped(_SCHEMA, path)
    with replacing(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for part in parts:
            writer.write_table(pa.table(vars(part), schema=schema))


def read_counts(path: Path, start: int, stop: int) -> GroupCounts:
    """The counts of the regions from `start` to before `stop`."""
    table = pq.read_table(path, filters=[("region", ">=", start), ("region", "<", stop)])
    return GroupCounts(*(table[name].to_numpy() for name in _SCHEMA.names))


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


def _sum_keys(key: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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


def _unpack_keys(key: np.ndarray, count: np.ndarray, n_iterations: int) -> GroupCounts:
    group, cell = np.divmod(key, CELLS)
    region, iteration = np.divmod(group, n_iterations)
    return GroupCounts(
        region.astype(np.int32), iteration.astype(np.int16), cell.astype(np.int8), count
    )

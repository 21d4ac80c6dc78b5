"""The records of a declared universe, streamed: counted by area and cell, and held to rules.

Files pass through in batches; what stays are sums, and of tables that others refer to their keys,
areas and referred columns. Every condition on a record is worked out once for each distinct value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from scipy import sparse

from ..tables.columns import CodedColumn, KeyIndex, canonical_keys, is_blank_key
from ..tables.readers import Batch, Selection, read_partitions
from ..tables.sources import InputFile
from .areas import AreaIndex, Areas, text_layout
from .census import Universe
from .declarations import Step
from .evidence import EvidenceTally
from .histograms import HistogramSum
from .raw_columns import RawColumns, identity_columns
from .recodes import FIRST_REFUSED, UNKNOWN, CodeSet, whole_number
from .schema import Schema

NUMBER = "number"
"""Column of occupants that says how many there are."""

Files = Mapping[str, Sequence[InputFile]]
"""Files of every input table."""


@dataclass(frozen=True, eq=False)
class JoinedTable:
    """A table on the way to the area: keys, the area of each row (-1 if unknown), and the columns
    that recodes read of it and of those behind it, by `table.column`.
    """

    index: KeyIndex
    area: np.ndarray
    columns: Mapping[str, CodedColumn]


def count_universe(
    files: Files,
    universe: Universe,
    schema: Schema,
    areas: Areas,
    evidence: EvidenceTally,
    raw: RawColumns,
) -> sparse.csr_array:
    """Records by area and cell `(n_areas, n_cells)`, in the order of the areas.

    `raw` gets the columns by which the ledger recognises them (`identity_columns`). Records whose
    area, count or level cannot be told are left out; the evidence then holds the rule that they
    break.
    """
    declared, name, steps = universe.declared, universe.name, universe.steps
    place = _placing(files, universe, areas, evidence)
    recodes = [universe.recodes[attribute] for attribute in schema.attributes]
    asked = [column for recode in recodes for column in recode.columns] + list(universe.rows)
    asked += identity_columns(universe, schema)
    occupants = [load_occupants(files, universe, entry, evidence) for entry in declared.occupants]
    told = {f"{entry}." for entry in declared.occupants} | {f"{step.table}." for step in steps}
    own = tuple(dict.fromkeys(column for column in asked if not column.startswith(tuple(told))))
    counted = (declared.count,) if declared.count else ()
    texts = tuple(dict.fromkeys((*own, *place.area_columns, *counted)))
    zeros = [(zero.name, schema.cells_where(zero.where)) for zero in universe.zeros]
    sums = HistogramSum(len(areas), schema.n_cells)
    keys = tuple(dict.fromkeys((*place.keys, *(one.key for one in occupants))))
    told_by: dict[str, list[pa.Array]] = {one.key: [] for one in occupants}
    referring = place.references()
    for batch in _batches(files[declared.table], texts, keys, evidence):
        columns = _coded(batch, texts)
        n_rows = len(next(iter(batch.values())))
        placed = place.of(batch, columns, evidence)
        for key, part in told_by.items():
            part.append(batch[key])
        for one in occupants:
            columns |= one.of(batch[one.key])
        is_member = np.ones(n_rows, dtype=bool)
        for column, codes in universe.rows.items():
            is_member &= columns[column].lookup(codes.holds, bool)
        if not steps:
            evidence.add_mask(name, "unknown_area", (placed.area < 0)[is_member])
        count = np.ones(n_rows, dtype=np.int64)
        if declared.count:
            count = columns[declared.count].lookup(_count, np.int64)
            evidence.add_mask(name, "unknown_count", (count < 0)[is_member])
            if declared.largest_count is not None:
                evidence.add_mask(name, "large_count", count > declared.largest_count)
        raw.add(columns, placed.area, np.where(is_member, count, 0))
        referring += np.bincount(
            placed.row[placed.row >= 0], np.maximum(count, 1)[placed.row >= 0], len(referring)
        )
        is_known = is_member & (placed.area >= 0) & (count >= 0)
        levels = {}
        for recode in recodes:
            level = recode.evaluate(columns, n_rows)
            is_told = is_member.copy()
            if any(_is_joined(column, steps) for column in recode.columns):
                is_told &= placed.row >= 0
            for number in range(len(recode.refused)):
                is_refused = level[is_told] == FIRST_REFUSED - number
                evidence.add_mask(name, f"refused_{recode.attribute}_{number}", is_refused)
            evidence.add_mask(name, f"unknown_{recode.attribute}", level[is_told] == UNKNOWN)
            is_known &= level >= 0
            levels[recode.attribute] = level
        cell = schema.cells({n: level[is_known] for n, level in levels.items()})
        is_counted = count[is_known] > 0
        for zero, mask in zeros:
            evidence.add_mask(name, f"in_{zero}", mask[cell] & is_counted)
        area = placed.area[is_known][is_counted]
        sums.add(area, cell[is_counted], count[is_known][is_counted])
    if steps:
        _tally_references(universe, 0, referring, evidence)
    for entry, occupant in declared.occupants.items():
        numbers = _numbers_of_alike(_whole(told_by[occupant.key]))
        evidence.add_mask(name, f"shared_key_of_{entry}", numbers > occupant.records_per_key)
    _tally_contributions(files, universe, evidence)
    return sums.total()


def _tally_references(
    universe: Universe, depth: int, referring: np.ndarray, evidence: EvidenceTally
) -> None:
    """Add to the evidence whether rows of the table of a step are referred to by too many
    `(n_rows,)` records, or rows of the table before it.
    """
    step = universe.steps[depth]
    if step.records_per_row is not None:
        evidence.add_mask(
            universe.name, f"crowded_row_of_{step.table}", referring > step.records_per_row
        )


def _tally_contributions(files: Files, universe: Universe, evidence: EvidenceTally) -> None:
    """Add to the evidence whether a person has too many records in a table that a universe reads.

    In the universe's own table, a row counts for the records that it stands for.
    """
    declared = universe.declared
    for reach in universe.reaches:
        told = universe.contributions.get(reach.table)
        if told is None or reach.table not in files:
            continue
        is_counted = reach.table == declared.table and declared.count is not None
        texts = (declared.count,) if is_counted and declared.count else ()
        persons: list[pa.Array] = []
        weights = [np.empty(0, dtype=np.int64)]
        for batch in _batches(files[reach.table], texts, (told.person,), evidence):
            persons.append(batch[told.person])
            weights += [column.lookup(_count, np.int64) for column in _coded(batch, texts).values()]
        person = _whole(persons)
        rows = np.maximum(np.concatenate(weights), 1) if is_counted else None
        evidence.add_mask(universe.name, f"blank_person_of_{reach.table}", is_blank_key(person))
        evidence.add_mask(
            universe.name,
            f"crowded_person_of_{reach.table}",
            _numbers_of_alike(person, rows) > told.records_per_person,
        )


def _numbers_of_alike(keys: pa.Array, weights: np.ndarray | None = None) -> np.ndarray:
    """How many rows have the key of a row, or the sum of their weights, `(n_rows,)`; 0 if blank."""
    keys = canonical_keys(keys)
    first = KeyIndex(keys).positions(keys)
    is_told = first >= 0
    weights = None if weights is None else weights[is_told]
    numbers = np.bincount(first[is_told], weights, minlength=len(first))
    return np.where(is_told, numbers[first], 0) if len(first) else numbers


@dataclass(frozen=True, eq=False)
class _Placed:
    """Of a batch's records: their areas `(n_rows,)`, -1 for none, and their rows `(n_rows,)` in
    the table on the way to the area, -1 for none.
    """

    area: np.ndarray
    row: np.ndarray


@dataclass(frozen=True, eq=False)
class _OwnColumns:
    """Records find their areas by columns of their own."""

    area_columns: tuple[str, ...]
    index: AreaIndex
    keys: tuple[str, ...] = ()

    def of(self, batch: Batch, columns: dict[str, CodedColumn], evidence: EvidenceTally) -> _Placed:
        """The areas of a batch's records."""
        area = self.index.positions([columns[column] for column in self.area_columns])
        return _Placed(area, np.full(len(area), -1))

    def references(self) -> np.ndarray:
        """No table is referred to."""
        return np.zeros(0)


@dataclass(frozen=True, eq=False)
class _ByTable:
    """Records find their areas by a table that the first of `keys` refers to."""

    universe: str
    keys: tuple[str, ...]
    joined: JoinedTable
    area_columns: tuple[str, ...] = ()

    def of(self, batch: Batch, columns: dict[str, CodedColumn], evidence: EvidenceTally) -> _Placed:
        """The areas of a batch's records; `columns` gets those of the table."""
        reference = batch[self.keys[0]]
        row = self.joined.index.positions(reference)
        for column, values in self.joined.columns.items():
            columns[column] = _taken(values, row)
        is_blank = is_blank_key(reference)
        evidence.add_mask(self.universe, f"blank_{self.keys[0]}", is_blank)
        evidence.add_mask(self.universe, f"unknown_{self.keys[0]}", (row < 0) & ~is_blank)
        return _Placed(np.where(row >= 0, self.joined.area[row], -1), row)

    def references(self) -> np.ndarray:
        """None yet, of every row of the table."""
        return np.zeros(len(self.joined.area))


def _placing(
    files: Files, universe: Universe, areas: Areas, evidence: EvidenceTally
) -> _OwnColumns | _ByTable:
    """How the records of a universe find their areas; the tables on the way are read."""
    if universe.steps:
        joined = load_joined(files, universe, areas, evidence)
        return _ByTable(universe.name, (universe.steps[0].column,), joined)
    columns = universe.area_columns
    return _OwnColumns(columns, AreaIndex(areas, len(columns)))


def load_joined(
    files: Files, universe: Universe, areas: Areas, evidence: EvidenceTally, depth: int = 0
) -> JoinedTable:
    """The table of a step on a universe's way to the area, with what it takes from those behind
    it, which are read before it.
    """
    step, behind = universe.steps[depth], None
    reference: tuple[str, ...] = ()
    area_columns = universe.area_columns
    if depth + 1 < len(universe.steps):
        behind = load_joined(files, universe, areas, evidence, depth + 1)
        reference, area_columns = (universe.steps[depth + 1].column,), ()
    table = step.table
    wanted = _columns_of(universe, table)
    texts = tuple(dict.fromkeys((*wanted, *area_columns)))
    keys = tuple(dict.fromkeys((step.key, *reference)))
    parts: dict[str, list] = {name: [] for name in (*texts, *keys)}
    for batch in _batches(files[table], texts, keys, evidence):
        for name, part in parts.items():
            part.append(batch[name])
    arrays = {name: _whole(part) for name, part in parts.items()}
    columns = _coded(arrays, texts)
    index = KeyIndex(arrays[step.key])
    evidence.add_mask(universe.name, f"blank_key_of_{table}", index.is_blank)
    evidence.add_mask(universe.name, f"repeated_key_of_{table}", index.is_repeated)
    carried = {f"{table}.{column}": columns[column] for column in wanted}
    if behind is None:
        coded = [columns[column] for column in area_columns]
        area = AreaIndex(areas, len(area_columns)).positions(coded)
        evidence.add_mask(universe.name, "unknown_area", area < 0)
        return JoinedTable(index, area, carried)
    row = behind.index.positions(arrays[reference[0]])
    evidence.add_mask(universe.name, f"unknown_{reference[0]}_of_{table}", row < 0)
    referring = np.bincount(row[row >= 0], minlength=len(behind.area))
    _tally_references(universe, depth + 1, referring, evidence)
    carried |= {name: _taken(column, row) for name, column in behind.columns.items()}
    return JoinedTable(index, np.where(row >= 0, behind.area[row], -1), carried)


@dataclass(frozen=True, eq=False)
class Occupants:
    """What rows of another table tell of the records that they belong to, by `<name>.column`.

    key : column of the records that `index`, of the rows' references, is asked for.
    number : by row, how many have its reference.
    """

    key: str
    index: KeyIndex
    columns: Mapping[str, CodedColumn]
    number_name: str
    number: np.ndarray

    def of(self, keys: pa.Array) -> dict[str, CodedColumn]:
        """The columns of records with these keys."""
        row = self.index.positions(canonical_keys(keys))
        found = {name: _taken(column, row) for name, column in self.columns.items()}
        number = np.where(row >= 0, self.number[row], 0) if len(self.number) else np.zeros_like(row)
        texts = tuple(str(n) for n in range(int(number.max(initial=0)) + 1))
        return found | {self.number_name: CodedColumn(number, texts)}


def load_occupants(
    files: Files, universe: Universe, name: str, evidence: EvidenceTally
) -> Occupants:
    """The rows of a universe's occupants.

    Evidence: rows that are not alone of one record, where attributes read their columns.
    """
    declared = universe.declared.occupants[name]
    conditions = {column: CodeSet.of(codes) for column, codes in declared.where.items()}
    wanted = tuple(column for column in _columns_of(universe, name) if column != NUMBER)
    texts, keys = tuple(dict.fromkeys((*wanted, *conditions))), (declared.column,)
    parts: dict[str, list] = {column: [] for column in (*wanted, *keys)}
    for batch in _batches(files[declared.table], texts, keys, evidence):
        columns = _coded(batch, texts)
        fits = np.ones(len(batch[declared.column]), dtype=bool)
        for column, codes in conditions.items():
            fits &= columns[column].lookup(codes.holds, bool)
        for column, part in parts.items():
            part.append(batch[column].filter(pa.array(fits)))
    arrays = {column: _whole(part) for column, part in parts.items()}
    references = canonical_keys(arrays[declared.column])
    index = KeyIndex(references)
    if wanted:
        evidence.add_mask(universe.name, f"repeated_{name}", index.is_repeated)
    first = index.positions(references)
    number = np.bincount(first[first >= 0], minlength=len(first))
    told = {f"{name}.{column}": values for column, values in _coded(arrays, wanted).items()}
    return Occupants(declared.key, index, told, f"{name}.{NUMBER}", number)


def _is_joined(column: str, steps: Sequence[Step]) -> bool:
    """Whether a column is of a table on the way to the area."""
    return any(column.startswith(f"{step.table}.") for step in steps)


def _columns_of(universe: Universe, table: str) -> tuple[str, ...]:
    """Columns of a table, or of occupants, that the universe's recodes and conditions read."""
    names = [column for recode in universe.recodes.values() for column in recode.columns]
    names += universe.rows
    prefix = f"{table}."
    return tuple(
        dict.fromkeys(name.removeprefix(prefix) for name in names if name.startswith(prefix))
    )


def _batches(
    files: Sequence[InputFile],
    texts: Sequence[str],
    keys: Sequence[str],
    evidence: EvidenceTally,
) -> Iterator[Batch]:
    """Batches of some columns of a table; the evidence gets how its files are written."""
    layout = text_layout(files[0].table, texts, keys)
    shaped = [replace(file, layout=layout) for file in files]
    evidence.add_formats(shaped)
    for _, batch in read_partitions(shaped, Selection(tuple(dict.fromkeys((*texts, *keys))))):
        yield batch


def _coded(batch: Batch, names: Sequence[str]) -> dict[str, CodedColumn]:
    layout = text_layout("", names)
    return {name: CodedColumn.from_arrow(batch[name], layout.field(name)) for name in names}


def _taken(column: CodedColumn, rows: np.ndarray) -> CodedColumn:
    """The column at some rows; blank where there is no row."""
    values = column.values if None in column.values else (*column.values, None)
    blank = values.index(None)
    return CodedColumn(np.where(rows >= 0, column.codes[rows], blank), values)


def _whole(parts: Sequence[pa.Array]) -> pa.Array:
    """All batches of a column as one array."""
    column = pa.chunked_array(list(parts)).unify_dictionaries()
    if pa.types.is_string(column.type):
        # The texts of one array of this type end at 2 GiB.
        column = column.cast(pa.large_string())
    return column.combine_chunks()


def _count(value: str | None) -> int:
    """The count that a text spells; -1 for what is no whole number."""
    number = whole_number(value)
    return -1 if number is None else number

"""Microdata: one row a person, a housing unit or a group-quarters facility.

The rows follow from the block estimates alone: a cell with count n in a block gives n equal rows.
They are written as Parquet and as pipe-delimited text with a header, with the columns of the
Microdata Detail File. All columns are text codes, as in that file, except EPNUM, an integer.

Rows are ordered by block geocode, then cell number, with a block's facilities after its housing
units, so that equal estimates give equal files. Memory is that of the block estimates plus one
batch of rows. The text file appears last, so that where it is both files are whole.

A run that is not private is stamped: the Parquet metadata has the key `spineflow` with the value
`NOT PRIVATE`, and the text file starts with the line `# NOT PRIVATE` before the header (readers
skip it with `comment="#"` or `skiprows=1`). A private run's files carry neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from tasks.files import NOT_PRIVATE, STAMP_KEY, replacing
from tasks.workload.schema import Schema

SCHEMA_BUILD_ID = "1.1.0"
ADULT_AGE = 18
BLOCK_GEOCODE_DIGITS = 16

_GEOGRAPHY_COLUMNS = {
    "TABBLKST": (0, 2),
    "TABBLKCOU": (2, 5),
    "TABTRACTCE": (5, 11),
    "TABBLKGRPCE": (11, 12),
    "TABBLK": (12, 16),
}
"""Digits of the block geocode in each column, end exclusive."""

_PERSON_COLUMNS: Sequence[tuple[str, str, Callable[[int], str]]] = (
    ("RTYPE", "hhgq", lambda level: "3" if level == 0 else "5"),
    ("GQTYPE_PL", "hhgq", str),
    ("VOTING_AGE", "votingage", lambda level: str(level + 1)),
    ("VOTING_AGE", "age", lambda level: "2" if level >= ADULT_AGE else "1"),
    ("CENHISP", "hispanic", lambda level: str(level + 1)),
    ("CENRACE", "cenrace", lambda level: f"{level + 1:02d}"),
)
"""Column, the attribute that fills it, and the code of each level; of two rules for one column
the first whose attribute is in the schema applies."""

_FURTHER_COLUMNS: dict[str, tuple[str, Callable[[int], str]]] = {
    "sex": ("QSEX", lambda level: str(level + 1)),
    "age": ("QAGE", str),
}
"""Columns appended for attributes that the redistricting product does not have; an attribute that
is not here gets a column of its own name in capitals with the number of the level."""


@dataclass(frozen=True)
class MicrodataFiles:
    """The two files of one universe's microdata and their number of rows."""

    parquet: Path
    csv: Path
    n_rows: int


@dataclass(frozen=True)
class _CodedColumn:
    """A text column: `values[code[i]]`, where i is a row's block or its cell."""

    name: str
    values: pa.Array
    code: np.ndarray
    is_geography: bool


@dataclass(frozen=True)
class _Counts:
    """Counts in the order of the rows: block number, cell and number of equal rows."""

    block_geocode: pa.Array
    block: np.ndarray
    cell: np.ndarray
    count: np.ndarray


def read_block_estimates(run_directory: Path, universe: str) -> pa.Table:
    """The block estimates of a run with 16-digit block geocodes: block_geocode, cell, count.

    A block's geocode on any spine ends with its 16-digit geocode.
    """
    folder = run_directory / "estimates" / universe / "Block"
    tables = [
        pq.read_table(path, columns=["geocode", "cell", "count"])
        for path in sorted(folder.glob("*.parquet"))
    ]
    if not tables:
        raise FileNotFoundError(f"no block estimates of {universe}: {folder} has no Parquet file")
    table = pa.concat_tables(tables, promote_options="permissive")
    block_geocode = pc.utf8_slice_codeunits(table["geocode"], start=-BLOCK_GEOCODE_DIGITS)
    return table.set_column(0, "block_geocode", block_geocode)


def write_persons(
    block_estimates: pa.Table,
    schema: Schema,
    directory: Path,
    *,
    is_private: bool = True,
    rows_per_batch: int = 1 << 18,
) -> MicrodataFiles:
    """Write `mdf_persons.parquet` and `mdf_persons.csv`, one row a person.

    Columns: SCHEMA_TYPE_CODE (MPD), SCHEMA_BUILD_ID, TABBLKST, TABBLKCOU, TABTRACTCE,
    TABBLKGRPCE, TABBLK, EPNUM (0 to n - 1 in row order), RTYPE (3 household, 5 group quarters),
    GQTYPE_PL (0-7), VOTING_AGE (1 under 18, 2 adult), CENHISP (1, 2), CENRACE (01-63). A column
    whose attribute the schema lacks is left out; attributes without a column here are appended
    (sex as QSEX, age as QAGE).

    `block_estimates` has the columns block_geocode (16 digits), cell and count, one row a
    non-zero cell, in any order. Raises ValueError for geocodes of another length, cells outside
    the schema, counts below 1 or a cell of a block given twice.
    """
    counts = _ordered_counts(block_estimates, schema.n_cells)
    columns = [
        *_constant_columns("MPD", schema.n_cells),
        *_geography_columns(counts.block_geocode),
        "EPNUM",
        *_attribute_columns(schema),
    ]
    return _write(counts, columns, directory / "mdf_persons", is_private, rows_per_batch)


def write_units(
    block_estimates: pa.Table,
    invariants: pd.DataFrame,
    schema: Schema,
    directory: Path,
    *,
    is_private: bool = True,
    rows_per_batch: int = 1 << 18,
) -> MicrodataFiles:
    """Write `mdf_units.parquet` and `mdf_units.csv`, one row a housing unit or facility.

    Columns: SCHEMA_TYPE_CODE (MUD), SCHEMA_BUILD_ID, the five of the block, RTYPE (2 housing
    unit, 4 group-quarters facility), HH_STATUS (1 occupied, 2 vacant; 0 for a facility), the
    latter left out if the schema has no occupancy.

    `block_estimates` as for `write_persons`; `invariants` has the columns block_geocode and
    facilities_1, facilities_2, ...: the public number of facilities of each type in each block.
    Raises ValueError as `write_persons` does.
    """
    facility_cell = schema.n_cells
    facilities = invariants.filter(regex=r"^facilities_\d+$").sum(axis=1).to_numpy(np.int64)
    has_facility = facilities > 0
    facility_counts = pa.table(
        {
            "block_geocode": pa.array(invariants["block_geocode"][has_facility], pa.string()),
            "cell": np.full(has_facility.sum(), facility_cell),
            "count": facilities[has_facility],
        }
    )
    if pc.any(pc.greater_equal(block_estimates["cell"], facility_cell)).as_py():
        raise ValueError(f"block estimates have a cell outside the schema of {schema.universe}")
    together = pa.concat_tables([_with_plain_types(block_estimates), facility_counts])
    counts = _ordered_counts(together, schema.n_cells + 1)
    columns = [
        *_constant_columns("MUD", schema.n_cells + 1),
        *_geography_columns(counts.block_geocode),
        _cell_column("RTYPE", ["2"] * schema.n_cells + ["4"]),
    ]
    if "occupancy" in schema.attributes:
        statuses = ["1" if occupied else "2" for occupied in schema.levels("occupancy")]
        columns.append(_cell_column("HH_STATUS", [*statuses, "0"]))
    return _write(counts, columns, directory / "mdf_units", is_private, rows_per_batch)


def _with_plain_types(block_estimates: pa.Table) -> pa.Table:
    types = {"block_geocode": pa.string(), "cell": pa.int64(), "count": pa.int64()}
    return block_estimates.select(list(types)).cast(pa.schema(types))


def _ordered_counts(block_estimates: pa.Table, n_cells: int) -> _Counts:
    """Check the estimates and put them into the order of the rows."""
    table = _with_plain_types(block_estimates)
    encoded = table["block_geocode"].combine_chunks().dictionary_encode()
    digits = pc.match_substring_regex(encoded.dictionary, f"^[0-9]{{{BLOCK_GEOCODE_DIGITS}}}$")
    cell = table["cell"].to_numpy()
    count = table["count"].to_numpy()
    if encoded.null_count or not pc.all(digits, min_count=0).as_py():
        raise ValueError(f"a block geocode does not have {BLOCK_GEOCODE_DIGITS} digits")
    if cell.size and (cell.min() < 0 or cell.max() >= n_cells):
        raise ValueError(f"a cell is not between 0 and {n_cells - 1}")
    if count.size and count.min() < 1:
        raise ValueError("a count is below 1; block estimates hold the non-zero cells")

    alphabetical = pc.sort_indices(encoded.dictionary)
    rank = np.empty(len(alphabetical), dtype=np.int64)
    rank[alphabetical.to_numpy()] = np.arange(len(alphabetical))
    key = rank[encoded.indices.to_numpy()] * n_cells + cell
    order = np.argsort(key, kind="stable")
    key = key[order]
    if (key[1:] == key[:-1]).any():
        raise ValueError("a cell of a block is given twice")
    return _Counts(
        block_geocode=encoded.dictionary.take(alphabetical),
        block=(key // n_cells).astype(np.int32),
        cell=(key % n_cells).astype(np.int32),
        count=count[order],
    )


def _cell_column(name: str, codes: Sequence[str]) -> _CodedColumn:
    encoded = pa.array(codes, pa.string()).dictionary_encode()
    return _CodedColumn(name, encoded.dictionary, encoded.indices.to_numpy(), False)


def _constant_columns(type_code: str, n_cells: int) -> list[_CodedColumn]:
    return [
        _cell_column("SCHEMA_TYPE_CODE", [type_code] * n_cells),
        _cell_column("SCHEMA_BUILD_ID", [SCHEMA_BUILD_ID] * n_cells),
    ]


def _geography_columns(block_geocode: pa.Array) -> list[_CodedColumn]:
    columns = []
    for name, (start, stop) in _GEOGRAPHY_COLUMNS.items():
        part = pc.utf8_slice_codeunits(block_geocode, start, stop).dictionary_encode()
        columns.append(_CodedColumn(name, part.dictionary, part.indices.to_numpy(), True))
    return columns


def _attribute_columns(schema: Schema) -> list[_CodedColumn]:
    rules: dict[str, tuple[str, Callable[[int], str]]] = {}
    for name, attribute, code in _PERSON_COLUMNS:
        if attribute in schema.attributes:
            rules.setdefault(name, (attribute, code))
    with_a_column = {attribute for _, attribute, _ in _PERSON_COLUMNS} - _FURTHER_COLUMNS.keys()
    for attribute in schema.attributes:
        if attribute not in with_a_column:
            name, code = _FURTHER_COLUMNS.get(attribute, (attribute.upper(), str))
            rules[name] = (attribute, code)
    return [
        _cell_column(name, [code(int(level)) for level in schema.levels(attribute)])
        for name, (attribute, code) in rules.items()
    ]


def _write(
    counts: _Counts,
    columns: Sequence[_CodedColumn | str],
    stem: Path,
    is_private: bool,
    rows_per_batch: int,
) -> MicrodataFiles:
    names = [column if isinstance(column, str) else column.name for column in columns]
    files = MicrodataFiles(
        parquet=stem.with_suffix(".parquet"),
        csv=stem.with_suffix(".csv"),
        n_rows=int(counts.count.sum()),
    )
    # Dictionary arrays reach both writers as they are, which is what makes them fast; without the
    # stored Arrow schema a reader gets plain strings.
    dictionary = pa.dictionary(pa.int32(), pa.string())
    arrow_schema = pa.schema(
        [(c, pa.int64()) if isinstance(c, str) else (c.name, dictionary) for c in columns]
    )
    csv_options = pyarrow.csv.WriteOptions(
        include_header=False, delimiter="|", quoting_style="none"
    )
    with (
        replacing(files.csv) as csv_path,
        csv_path.open("wb") as csv_file,
        replacing(files.parquet) as parquet_path,
    ):
        if not is_private:
            csv_file.write(f"# {NOT_PRIVATE}\n".encode())
        csv_file.write(("|".join(names) + "\n").encode())
        with (
            pq.ParquetWriter(
                parquet_path,
                arrow_schema,
                use_dictionary=[name for name in names if name != "EPNUM"],
                store_schema=False,
            ) as parquet_writer,
            pyarrow.csv.CSVWriter(csv_file, arrow_schema, write_options=csv_options) as csv_writer,
        ):
            if not is_private:
                parquet_writer.add_key_value_metadata({STAMP_KEY: NOT_PRIVATE})
            for batch in _batches(counts, columns, arrow_schema, rows_per_batch):
                parquet_writer.write_batch(batch)
                csv_writer.write_batch(batch)
    return files


def _batches(
    counts: _Counts,
    columns: Sequence[_CodedColumn | str],
    arrow_schema: pa.Schema,
    rows_per_batch: int,
) -> Iterator[pa.RecordBatch]:
    """Rows of the microdata, `rows_per_batch` at a time; a column given by name numbers them."""
    end = np.cumsum(counts.count)
    n_rows = int(end[-1]) if end.size else 0
    for start in range(0, n_rows, rows_per_batch):
        stop = min(start + rows_per_batch, n_rows)
        first = np.searchsorted(end, start, side="right")
        last = np.searchsorted(end, stop, side="left") + 1
        within = np.minimum(end[first:last], stop) - np.maximum(
            end[first:last] - counts.count[first:last], start
        )
        block = np.repeat(counts.block[first:last], within)
        cell = np.repeat(counts.cell[first:last], within)
        arrays = [
            pa.array(np.arange(start, stop, dtype=np.int64))
            if isinstance(column, str)
            else pa.DictionaryArray.from_arrays(
                column.code[block if column.is_geography else cell], column.values, safe=False
            )
            for column in columns
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=arrow_schema)

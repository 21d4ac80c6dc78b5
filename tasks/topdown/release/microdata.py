"""Microdata: one row a person, a housing unit or a group-quarters facility.

The rows follow from the block estimates alone: a cell with count n in a block gives n equal rows.
They are written as Parquet and as pipe-delimited text with a header, with the columns of the
Microdata Detail File. All columns are text codes, as in that file, except EPNUM, an integer.

Rows are ordered by block geocode, then cell number, with a block's facilities after its housing
units, so that equal estimates give equal files. Memory is that of the estimates of some ten
thousand blocks plus one batch of rows, however large the country. The text file appears last, so
that where it is both files are whole.

A run that is not private is stamped: the Parquet metadata has the key `spineflow` with the value
`NOT PRIVATE`, and the text file starts with the line `# NOT PRIVATE` before the header (readers
skip it with `comment="#"` or `skiprows=1`). A private run's files carry neither.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from spineflow.tasks.census.invariants import read_invariants
from spineflow.tasks.census.schema import Schema
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.files import NOT_PRIVATE, STAMP_KEY, replacing
from spineflow.tasks.topdown.paths import invariants_file, spine_folder
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import read_spine
from spineflow.tasks.topdown.spine.shards import read_shards

SCHEMA_BUILD_ID = "1.1.0"
ADULT_AGE = 18
BLOCK_GEOCODE_DIGITS = 16

BLOCKS_PER_PART = 1 << 16
"""Blocks whose estimates are in memory at a time."""

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
    """Counts of a part in the order of its rows: block number, cell and number of equal rows."""

    block_geocode: pa.Array
    block: np.ndarray
    cell: np.ndarray
    count: np.ndarray


_NO_COUNTS = _Counts(pa.array([], pa.string()), *np.zeros((3, 0), dtype=np.int64))


def read_block_estimates(run_directory: Path, universe: str) -> pa.Table:
    """The block estimates of a run with 16-digit block geocodes: block_geocode, cell, count.

    A block's geocode on any spine ends with its 16-digit geocode.
    """
    folder = run_directory / "estimates" / universe / "Block"
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise FileNotFoundError(f"no block estimates of {universe}: {folder} has no Parquet file")
    return _block_estimates(files)


def _block_estimates(files: Iterable[Path]) -> pa.Table:
    tables = [pq.read_table(path, columns=["geocode", "cell", "count"]) for path in files]
    table = pa.concat_tables(tables, promote_options="permissive")
    block_geocode = pc.utf8_slice_codeunits(table["geocode"], start=-BLOCK_GEOCODE_DIGITS)
    return table.set_column(0, "block_geocode", block_geocode)


def block_estimate_parts(
    run: RunDirectory, universe: str, *, blocks_per_part: int = BLOCKS_PER_PART
) -> Iterator[pa.Table]:
    """What `read_block_estimates` reads, some blocks at a time in the order of their geocodes.

    Only the files of shards with blocks of the part are read for it.
    """
    spine = read_spine(spine_folder(run, universe))
    shards = [s for s in read_shards(spine_folder(run, universe)) if s.geolevel == spine.names[-1]]
    starts = np.array([shard.start for shard in shards])
    by_geocode = np.argsort(spine.block_row)
    for first in range(0, spine.n_blocks, blocks_per_part):
        blocks = by_geocode[first : first + blocks_per_part]
        held = np.unique(np.searchsorted(starts, blocks, side="right") - 1)
        files = [run.estimates(universe, spine.names[-1], shards[i].name) for i in held]
        table = _block_estimates(files)
        low, high = spine.block_geocode[blocks[[0, -1]]]
        code = table["block_geocode"]
        yield table.filter(pc.and_(pc.greater_equal(code, low), pc.less_equal(code, high)))


def write_universe(run: RunDirectory, settings: TopdownSettings, universe: str) -> MicrodataFiles:
    """Write the microdata of a universe beside what else is to be checked before its release."""
    estimates = block_estimate_parts(run, universe)
    schema, folder = settings.schema_of(universe), run.unchecked_release
    folder.mkdir(exist_ok=True)
    if universe == "persons":
        return write_persons(estimates, schema, folder, is_private=settings.is_private)
    invariants = read_invariants(invariants_file(run))
    return write_units(estimates, invariants, schema, folder, is_private=settings.is_private)


def write_persons(
    block_estimates: pa.Table | Iterable[pa.Table],
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
    non-zero cell, in any order; or it is several such tables, every block in one of them and the
    blocks of each after those of the one before. Raises ValueError for geocodes of another length,
    cells outside the schema, counts below 1, a cell of a block given twice or tables out of order.
    """
    attributes = _attribute_columns(schema)

    def columns(counts: _Counts) -> list[_CodedColumn | str]:
        return [
            *_constant_columns("MPD", schema.n_cells),
            *_geography_columns(counts.block_geocode),
            "EPNUM",
            *attributes,
        ]

    parts = _ordered_parts(block_estimates, schema.n_cells)
    return _write(parts, columns, directory / "mdf_persons", is_private, rows_per_batch)


def write_units(
    block_estimates: pa.Table | Iterable[pa.Table],
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
    own = [_cell_column("RTYPE", ["2"] * schema.n_cells + ["4"])]
    if "occupancy" in schema.attributes:
        statuses = ["1" if occupied else "2" for occupied in schema.levels("occupancy")]
        own.append(_cell_column("HH_STATUS", [*statuses, "0"]))

    def columns(counts: _Counts) -> list[_CodedColumn | str]:
        return [
            *_constant_columns("MUD", schema.n_cells + 1),
            *_geography_columns(counts.block_geocode),
            *own,
        ]

    facilities = _facility_counts(invariants, facility_cell)
    parts = _with_facilities(_tables(block_estimates), facilities, schema)
    parts = _ordered_parts(parts, schema.n_cells + 1)
    return _write(parts, columns, directory / "mdf_units", is_private, rows_per_batch)


def _facility_counts(invariants: pd.DataFrame, facility_cell: int) -> pa.Table:
    """Facilities as counts in a cell of their own, in the order of the blocks' geocodes."""
    facilities = invariants.filter(regex=r"^facilities_\d+$").sum(axis=1).to_numpy(np.int64)
    has_facility = facilities > 0
    table = pa.table(
        {
            "block_geocode": pa.array(invariants["block_geocode"][has_facility], pa.string()),
            "cell": np.full(has_facility.sum(), facility_cell),
            "count": facilities[has_facility],
        }
    )
    return table.sort_by("block_geocode")


def _with_facilities(
    parts: Iterable[pa.Table], facilities: pa.Table, schema: Schema
) -> Iterator[pa.Table]:
    """The parts, each with the facilities of blocks up to its last block; the last has the rest."""
    codes = facilities["block_geocode"].to_pylist()
    following = chain(parts, [None])
    part, done = next(following), 0
    while part is not None:
        if pc.any(pc.greater_equal(part["cell"], schema.n_cells)).as_py():
            raise ValueError(f"block estimates have a cell outside the schema of {schema.universe}")
        after = next(following)
        last = pc.max(part["block_geocode"]).as_py() or ""
        end = len(codes) if after is None else max(done, bisect_right(codes, last))
        yield pa.concat_tables([_with_plain_types(part), facilities.slice(done, end - done)])
        part, done = after, end


def _tables(block_estimates: pa.Table | Iterable[pa.Table]) -> Iterable[pa.Table]:
    return [block_estimates] if isinstance(block_estimates, pa.Table) else block_estimates


def _ordered_parts(
    block_estimates: pa.Table | Iterable[pa.Table], n_cells: int
) -> Iterator[_Counts]:
    """The counts of each table that has any, checked to follow those before."""
    last = ""
    for table in _tables(block_estimates):
        counts = _ordered_counts(table, n_cells)
        if not counts.count.size:
            continue
        if counts.block_geocode[0].as_py() <= last:
            raise ValueError("the tables of block estimates are not in the order of their blocks")
        last = counts.block_geocode[-1].as_py()
        yield counts


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
    parts: Iterable[_Counts],
    columns: Callable[[_Counts], Sequence[_CodedColumn | str]],
    stem: Path,
    is_private: bool,
    rows_per_batch: int,
) -> MicrodataFiles:
    names = [column if isinstance(column, str) else column.name for column in columns(_NO_COUNTS)]
    parquet, csv = stem.with_suffix(".parquet"), stem.with_suffix(".csv")
    # Dictionary arrays reach both writers as they are, which is what makes them fast; without the
    # stored Arrow schema a reader gets plain strings.
    dictionary = pa.dictionary(pa.int32(), pa.string())
    arrow_schema = pa.schema([(n, pa.int64() if n == "EPNUM" else dictionary) for n in names])
    csv_options = pyarrow.csv.WriteOptions(
        include_header=False, delimiter="|", quoting_style="none"
    )
    n_rows = 0
    with (
        replacing(csv) as csv_path,
        csv_path.open("wb") as csv_file,
        replacing(parquet) as parquet_path,
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
            for counts in parts:
                for batch in _batches(
                    counts, columns(counts), arrow_schema, n_rows, rows_per_batch
                ):
                    parquet_writer.write_batch(batch)
                    csv_writer.write_batch(batch)
                    n_rows += batch.num_rows
    return MicrodataFiles(parquet, csv, n_rows)


def _batches(
    counts: _Counts,
    columns: Sequence[_CodedColumn | str],
    arrow_schema: pa.Schema,
    first_number: int,
    rows_per_batch: int,
) -> Iterator[pa.RecordBatch]:
    """Rows of the microdata, `rows_per_batch` at a time; a column given by name numbers them, from
    `first_number` on."""
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
            pa.array(np.arange(first_number + start, first_number + stop, dtype=np.int64))
            if isinstance(column, str)
            else pa.DictionaryArray.from_arrays(
                column.code[block if column.is_geography else cell], column.values, safe=False
            )
            for column in columns
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=arrow_schema)

"""Microdata in a declared layout: one row a record.

The rows follow from the block estimates alone: a cell with count n in a block gives n equal rows.
They are written as Parquet and as pipe-delimited text with a header. All columns are text codes,
except one that numbers the rows, an integer.

Rows are ordered by block geocode, then cell number, with a block's further records after its own,
so that equal estimates give equal files. Memory is that of the estimates of some ten
thousand blocks plus one batch of rows, however large the country. The text file appears last, so
that where it is both files are whole.

A run that is not private is stamped: the Parquet metadata has the key `spineflow` with the value
`NOT PRIVATE`, and the text file starts with the line `# NOT PRIVATE` before the header (readers
skip it with `comment="#"` or `skiprows=1`). A private run's files carry neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from ...census.cef_2020 import CENSUS
from ...census.census import Census
from ...census.declarations import MicrodataColumn, MicrodataDeclaration
from ...census.microdata import codes_of, layout_of
from ...census.queries import marginal_query, tells
from ...census.schema import Schema
from ...runs.directory import RunDirectory
from ...runs.stamps import RowsForm, WrittenFiles, write_rows
from ..measurement.public_answers import released_counts
from ..spine.files import spine_of
from .declared_files import ROWS_PER_BATCH

BLOCK_GEOCODE_DIGITS = 16
_GEOCODE = f"^[0-9]{{{BLOCK_GEOCODE_DIGITS}}}$"
SEPARATOR = "|"
"""Between the columns of the text."""

BLOCKS_PER_PART = 1 << 16
"""Blocks whose estimates are in memory at a time."""

Coded = Mapping[str, tuple[Sequence[str], np.ndarray]]
"""By column, codes and which of them each cell has, or what else records have a number of."""

_Column = tuple[pa.Array, np.ndarray]
"""Texts of a column, and which of them each block or cell has."""


@dataclass(frozen=True, eq=False)
class BlockCounts:
    """Records of some blocks: their geocodes, ascending, and counts `(n_blocks, n_cells)`."""

    block_geocode: pa.Array
    counts: sparse.csr_array


def block_estimate_parts(
    run: RunDirectory, universe: str, n_cells: int, *, blocks_per_part: int = BLOCKS_PER_PART
) -> Iterator[BlockCounts]:
    """The block estimates of a run, some blocks at a time in the order of their geocodes.

    Only the files of shards with blocks of the part are read for it.
    """
    spine = spine_of(run, universe)
    # In the path of a declared area points stand between the parts of the code.
    codes = pc.replace_substring(pa.array(spine.block_geocode, pa.string()), ".", "")
    by_geocode = pc.sort_indices(codes).to_numpy()
    for first in range(0, len(by_geocode), blocks_per_part):
        blocks = by_geocode[first : first + blocks_per_part]
        counts = released_counts(run, universe, spine.geolevels[-1], n_cells, blocks)
        yield BlockCounts(codes.take(pa.array(blocks)), counts)


def write_microdata(
    parts: Iterable[BlockCounts],
    schema: Schema,
    directory: Path,
    invariants: pd.DataFrame | None = None,
    *,
    census: Census = CENSUS,
    is_private: bool = True,
    rows_per_batch: int = ROWS_PER_BATCH,
) -> WrittenFiles:
    """Write `mdf_<universe>.parquet` and `.csv`, a row for each record, in the declared layout.

    Columns of attributes that the schema lacks are left out. Those of attributes that the universe
    has besides come after the others, in the order of the schema; an attribute without a column
    gets one of its own name in capitals with the number of the level.

    Where the layout has rows of further records, `invariants` must have the columns block_geocode
    and facilities_1, facilities_2, ...: their public numbers in each block.

    The blocks of each of the `parts` come after those of the one before. Raises ValueError for
    geocodes of another length than 16 digits.
    """
    layout = layout_of(schema.universe, census)
    own = census.universes[schema.universe].declared.attributes
    declared = present_columns(layout, schema, own)
    n_further = 0
    further: Mapping[str, str] = {}
    if layout.further is not None and invariants is not None:
        further = layout.further.values
        parts, n_further = _with_facilities(parts, invariants), 1
    coded = {}
    for column in declared:
        codes: Sequence[str] = [column.constant or ""]
        of_cell = np.zeros(schema.n_cells, dtype=np.int64)
        if column.attribute is not None:
            codes, of_cell = coded_cells(column, schema)
        elif column.constant is None:
            continue
        rest = further.get(column.name, column.constant or "")
        of_rest = np.full(n_further, len(codes), dtype=np.int64)
        coded[column.name] = [*codes, rest], np.concatenate([of_cell, of_rest])
    stem = directory / f"mdf_{schema.universe}"
    return _write(parts, declared, coded, stem, is_private, rows_per_batch)


def write_coded(
    records: BlockCounts,
    columns: Coded,
    layout: MicrodataDeclaration,
    stem: Path,
    *,
    is_private: bool = True,
) -> WrittenFiles:
    """Write microdata as `write_microdata` does, of records that have numbers in place of cells.

    `columns` has, by name, codes and which of them records of a number have, `(n_numbers,)`: of the
    layout's columns of attributes, and of those that follow the layout's own.
    """
    nothing = np.zeros(records.counts.shape[1], dtype=np.int64)
    constants = {c.name: ([c.constant], nothing) for c in layout.columns if c.constant is not None}
    coded = constants | dict(columns)
    return _write([records], layout.columns, coded, stem, is_private, ROWS_PER_BATCH)


def coded_cells(column: MicrodataColumn, schema: Schema) -> tuple[Sequence[str], np.ndarray]:
    """Codes of a column of attributes, and which of them each cell has, `(n_cells,)`."""
    query = marginal_query(schema, column.attribute or "")
    return codes_of(column, query.n_rows), query.row_of_cell


def present_columns(
    layout: MicrodataDeclaration, schema: Schema, own: Sequence[str]
) -> list[MicrodataColumn]:
    """The columns of a file in their order, with those of attributes that have none."""
    by_attribute = {c.attribute: c for c in layout.columns if c.attribute in schema.attributes}
    further = [name for name in schema.attributes if name not in own]
    first = [
        column
        for column in layout.columns
        if column.attribute is None
        or (column.attribute not in further and tells(schema, (column.attribute,)))
    ]
    last = [
        by_attribute.get(name, MicrodataColumn(name=name.upper(), attribute=name, first=0))
        for name in schema.attributes
        if name in further or name not in by_attribute
    ]
    return first + last


def present_attributes(schema: Schema) -> tuple[str, ...]:
    """The universe's own attributes among those of a schema that its microdata tell."""
    in_layout = {column.attribute for column in layout_of(schema.universe).columns}
    own = CENSUS.universes[schema.universe].declared.attributes
    return tuple(name for name in own if name in in_layout and name in schema.attributes)


def _geography_column(digits: tuple[int, int], block_geocode: pa.Array) -> _Column:
    part = pc.utf8_slice_codeunits(block_geocode, *digits).dictionary_encode()
    return part.dictionary, part.indices.to_numpy()


def _with_facilities(
    parts: Iterable[BlockCounts], invariants: pd.DataFrame
) -> Iterator[BlockCounts]:
    """The parts with a further cell, whose records are the facilities of the blocks."""
    facilities = invariants.filter(regex=r"^facilities_\d+$").sum(axis=1).to_numpy(np.int64)
    of_block = pd.Series(facilities, index=invariants["block_geocode"])[facilities > 0]
    for part in parts:
        here = of_block.reindex(part.block_geocode.to_pylist(), fill_value=0).to_numpy()
        yield replace(part, counts=sparse.hstack([part.counts, here[:, None]], format="csr"))


def _cell_column(name: str, codes: Sequence[str], of_cell: np.ndarray) -> _Column:
    """A column with one of some codes in each cell; its dictionary has them as cells come.

    A schema may have millions of cells, and few codes. Raises ValueError for a code that cannot
    stand in a row of text.
    """
    if any(mark in code for code in codes for mark in f'{SEPARATOR}"\r\n'):
        raise ValueError(f"a code of {name} cannot stand between separators")
    seen = pd.unique(of_cell)
    encoded = pa.array([codes[i] for i in seen.tolist()], pa.string()).dictionary_encode()
    place = np.zeros(len(codes), dtype=np.int32)
    place[seen] = encoded.indices.to_numpy()
    return encoded.dictionary, place[of_cell]


def _write(
    parts: Iterable[BlockCounts],
    declared: Sequence[MicrodataColumn],
    coded: Coded,
    stem: Path,
    is_private: bool,
    rows_per_batch: int,
) -> WrittenFiles:
    """Write the rows of all parts: the declared columns, of which those that cells do not tell are
    made of the geocodes of each part's blocks or number the rows, and further coded ones.
    """
    of_cells = {name: _cell_column(name, *arguments) for name, arguments in coded.items()}
    digits = {c.name: c.digits for c in declared if c.digits is not None and c.name not in coded}
    # Dictionary arrays reach the writer as they are, which is what makes it fast; without the
    # stored Arrow schema a reader gets plain strings.
    dictionary = pa.dictionary(pa.int32(), pa.string())
    texts = [*digits, *of_cells]
    kinds = {
        name: dictionary if name in texts else pa.int64()
        for name in dict.fromkeys([*(column.name for column in declared), *coded])
    }

    def batches() -> Iterator[dict[str, pa.Array]]:
        n_rows = 0
        for part in parts:
            part.counts.sort_indices()
            entries = sparse.coo_array(part.counts)
            # Those without records are in no dictionary.
            seen, block_of_entry = np.unique(entries.row, return_inverse=True)
            geocode = part.block_geocode.take(pa.array(seen))
            if not pc.all(pc.match_substring_regex(geocode, _GEOCODE), min_count=0).as_py():
                raise ValueError(f"a block geocode does not have {BLOCK_GEOCODE_DIGITS} digits")
            of_blocks = {name: _geography_column(own, geocode) for name, own in digits.items()}
            for entry in _batches(entries.data, rows_per_batch):
                block, cell = block_of_entry[entry], entries.col[entry]
                columns = {name: _chosen(column, block) for name, column in of_blocks.items()}
                columns |= {name: _chosen(column, cell) for name, column in of_cells.items()}
                numbers = pa.array(np.arange(n_rows, n_rows + len(block), dtype=np.int64))
                n_rows += len(block)
                yield {name: columns.get(name, numbers) for name in kinds}

    form = RowsForm(SEPARATOR, is_quoted=False, keeps_types=False)
    options = {"compression": "snappy", "use_dictionary": texts}
    return write_rows(stem, pa.schema(kinds), batches(), is_private, form, **options)


def _chosen(column: _Column, rows: np.ndarray) -> pa.DictionaryArray:
    """The texts of the blocks or cells of some rows."""
    texts, code = column
    return pa.DictionaryArray.from_arrays(code[rows], texts, safe=False)


def _batches(count: np.ndarray, rows_per_batch: int) -> Iterator[np.ndarray]:
    """The entry of each row of the microdata, `rows_per_batch` rows at a time."""
    end = np.cumsum(count)
    n_rows = int(end[-1]) if end.size else 0
    for start in range(0, n_rows, rows_per_batch):
        stop = min(start + rows_per_batch, n_rows)
        first = np.searchsorted(end, start, side="right")
        last = np.searchsorted(end, stop, side="left") + 1
        within = np.diff(np.minimum(end[first:last], stop), prepend=start)
        yield np.repeat(np.arange(first, last), within)

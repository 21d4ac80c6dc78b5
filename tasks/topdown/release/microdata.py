"""The microdata of a universe, one writer for all forms: rows that follow from estimates alone.

A universe with a layout (`MicrodataDeclaration`) gets a row a record of text codes, digits of the
area's code, and a number of the row. Without a layout it gets a column for each geolevel that is a
column of the areas and one for each attribute with the label of the level; where its rows have a
count, a row represents all records of an area and cell, and a column counts them. Rows are ordered
by area (in a layout by geocode), then by cell, with an area's further records after its own, so
that equal estimates give equal files.

The records of one universe may be described by another, as households do occupied units. The later
universe is constrained by the earlier one: in every area, each answer to one query counts as many
records of both. Records of one answer are matched one by one, both in the order of their cells, so
that a row has the attributes of both universes, and counts of either agree with its estimates. The
matching of records within an answer carries no information: estimates are counts.

Files are Parquet and pipe-delimited text with a header, of which the text appears last. Memory is
limited to the estimates of some ten thousand blocks plus one batch of rows, however large the
country. Large files are written in parts, a subspine each, and concatenated. A run that is not
private is stamped: the Parquet metadata has the key `spineflow` with the value `NOT PRIVATE`, and
the text file starts with the line `# NOT PRIVATE` before the header (readers skip it with
`comment="#"` or `skiprows=1`). A private run's files carry neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

from ...census.areas import code_columns
from ...census.cef_2020 import CENSUS
from ...census.census import Census, Held, Universe
from ...census.declarations import DescribedByDeclaration, MicrodataColumn, MicrodataDeclaration
from ...census.invariants import read_geography, read_invariants
from ...census.microdata import codes_of, layout_of
from ...census.queries import Schema, has_attributes, marginal_query, rows_that_count
from ...runs.directory import RunDirectory
from ...runs.names import below
from ...runs.stamps import RowsForm, concatenate_rows, write_rows
from ...tables.columns import coded_texts
from ..paths import geography_file, invariants_file
from ..settings import TopdownSettings
from ..spine.files import (
    STATE,
    RunUniverse,
    first_states,
    n_pieces,
    read_areas,
    released_counts,
    spine_of,
    state_codes,
    subspine_of,
)
from .tabulations.tables import LABELLED, of_occupied

BLOCK_GEOCODE_DIGITS = 16
_GEOCODE = f"^[0-9]{{{BLOCK_GEOCODE_DIGITS}}}$"
SEPARATOR = "|"
"""Separator of the columns of the text."""

BLOCKS_PER_PART = 1 << 16
"""Blocks whose estimates are in memory at a time."""
ROWS_PER_BATCH = 1 << 18

_CODED = RowsForm(SEPARATOR, is_quoted=False, keeps_types=False)


@dataclass(frozen=True, eq=False)
class BlockCounts:
    """Records of some blocks: their geocodes, ascending, and counts `(n_blocks, n_cells)`."""

    block_geocode: pa.Array
    counts: sparse.csr_array


def _write_rows(
    stem: Path,
    names: Sequence[str],
    of_cells: Mapping[str, pa.DictionaryArray],
    of_areas: Sequence[str],
    parts: Iterable[tuple[Mapping[str, pa.DictionaryArray], sparse.csr_array]],
    form: RowsForm,
    *,
    count: str | None = None,
    n_before: int = 0,
    **options: Any,
) -> Path:
    """Write the rows of all parts of the records.

    Args:
        names: the columns in their order; one that neither cells nor areas determine has the number
            of the row, from `n_before` on, or of its records.
        of_cells: a text of each cell for the columns that cells determine.
        of_areas: the columns that areas determine.
        parts: these columns of some areas, and the counts `(n_areas, n_cells)` of their records.
        count: the column with the number of records of a row; None for one row a record.
    """
    # Dictionary arrays reach the writer as they are, which makes it fast; without the stored Arrow
    # schema a reader gets plain strings.
    texts = dict.fromkeys([*of_areas, *of_cells], pa.dictionary(pa.int32(), pa.string()))
    kinds = {name: texts.get(name, pa.int64()) for name in names}

    def batches() -> Iterator[dict[str, pa.Array]]:
        n_rows = n_before
        for own, counts in parts:
            counts.sort_indices()
            entries = sparse.coo_array(counts)
            times = np.ones_like(entries.data) if count else entries.data
            for entry in _batches(times):
                area, cell = pa.array(entries.row[entry]), pa.array(entries.col[entry])
                columns = {name: column.take(area) for name, column in own.items()}
                columns |= {name: column.take(cell) for name, column in of_cells.items()}
                numbers = np.arange(n_rows, n_rows + len(entry), dtype=np.int64)
                n_rows += len(entry)
                counted = entries.data[entry] if count else numbers
                yield {name: columns.get(name, pa.array(counted, pa.int64())) for name in kinds}

    return write_rows(stem, pa.schema(kinds), batches(), form, **options)


def write_universe(universe: RunUniverse) -> Path:
    """Write the microdata of a universe next to the other unchecked files: in the layout that the
    census declares, with the attributes that another universe adds to its records, or with labels
    of areas and levels.
    """
    folder = universe.run.unchecked_release
    if universe.declared.declared.microdata is None:
        return _write_labelled(universe)
    described = description(universe.settings, universe.declared)
    if described is not None:
        return _write_described(universe, *described)
    of = n_parts(universe)
    if of == 1:
        return _write_blocks(universe, folder)
    stems = [write_part(universe, number, of) for number in range(of)]
    return concatenate_rows(folder / f"mdf_{universe.name}", stems)


def n_parts(universe: RunUniverse) -> int:
    """Number of parts in which workers write the microdata of a universe, each of a subspine: one
    where areas have no digits, records are described by another universe, or numbers of rows depend
    on more than estimates."""
    layout = universe.declared.declared.microdata
    if layout is None or description(universe.settings, universe.declared) is not None:
        return 1
    if layout.further is not None and any(map(_is_number, layout.columns)):
        return 1
    return n_pieces(universe.run, universe.settings, universe.name)


def _is_number(column: MicrodataColumn) -> bool:
    return column.attribute is None and column.constant is None and column.digits is None


def write_part(universe: RunUniverse, number: int, of: int) -> Path:
    """Write part `number` of `of` of a universe's microdata, unless it exists; returns its path
    without ending."""
    name = f"mdf_{universe.name}"
    folder = universe.run.piece(name, number, of)
    if not (folder / f"{name}.csv").exists():
        _write_blocks(universe, folder, number)
    return folder / name


def _write_blocks(universe: RunUniverse, folder: Path, number: int | None = None) -> Path:
    """Write the microdata of a universe, or of one of its subspines, in the layout that the census
    declares."""
    run, spine, schema = universe.run, universe.spine, universe.schema
    census, n_before = universe.settings.compiled_census, 0
    blocks, file = np.arange(spine.n_blocks), invariants_file(run)
    if number is not None:
        blocks, level = subspine_of(spine, number).blocks, spine.geolevel(STATE)
        is_before = state_codes(level.geocode) < first_states(spine)[number]
        n_before = int(universe.released(level, np.flatnonzero(is_before)).sum())
    invariants = None
    if layout_of(universe.name, census).further is not None:
        invariants = read_invariants(file) if number is None else read_areas(file, spine, number)
    return write_microdata(
        block_estimate_parts(run, universe.name, schema.n_cells, blocks),
        schema,
        folder,
        invariants,
        census=census,
        n_before=n_before,
    )


def _write_labelled(universe: RunUniverse) -> Path:
    """Write the microdata of a universe with labels of areas and levels."""
    run, schema = universe.run, universe.schema
    areas = read_geography(geography_file(run))
    cells, counts = of_occupied(universe.area_counts())
    columns = code_columns(universe.settings.compiled_census.geolevels, areas.columns)
    of_areas = {name: coded_texts(*pd.factorize(areas[name])) for name in columns}
    levels = zip(schema.attributes, np.unravel_index(cells, schema.shape), strict=True)
    of_cells = {name: coded_texts(level, schema.labels(name)) for name, level in levels}
    count = universe.declared.declared.count
    names = [*columns, *schema.attributes, *([count] if count else [])]
    stem = below(run.unchecked_release, f"mdf_{universe.name}")
    parts = [(of_areas, counts)]
    return _write_rows(stem, names, of_cells, columns, parts, LABELLED, count=count)


def block_estimate_parts(
    run: RunDirectory,
    universe: str,
    n_cells: int,
    chosen: np.ndarray,
    *,
    blocks_per_part: int = BLOCKS_PER_PART,
) -> Iterator[BlockCounts]:
    """The estimates of the chosen blocks of a run, some at a time in the order of their geocodes.

    Only the files of shards with blocks of the part are read for it.
    """
    spine = spine_of(run, universe)
    codes = pa.array(spine.block_geocode[chosen], pa.string())
    # In the path of a declared area, points separate the parts of the code.
    codes = pc.replace_substring(codes, ".", "")
    by_geocode = pc.sort_indices(codes).to_numpy()
    for first in range(0, len(by_geocode), blocks_per_part):
        own = by_geocode[first : first + blocks_per_part]
        counts = released_counts(run, universe, spine.geolevels[-1], n_cells, chosen[own])
        yield BlockCounts(codes.take(pa.array(own)), counts)


def write_microdata(
    parts: Iterable[BlockCounts],
    schema: Schema,
    directory: Path,
    invariants: pd.DataFrame | None = None,
    *,
    census: Census = CENSUS,
    n_before: int = 0,
) -> Path:
    """Write `mdf_<universe>.parquet` and `.csv`, a row for each record, in the declared layout.

    Columns of attributes that the schema lacks are left out. Those of attributes that the universe
    has in addition come after the others, in the order of the schema; an attribute without a column
    gets one of its own name in capitals with the number of the level.

    Where the layout has rows of further records, `invariants` must have the columns block_geocode
    and facilities_1, facilities_2, ...: their public numbers in each block.

    The blocks of each of the `parts` follow the blocks of the one before; `n_before` rows are in
    files before this one. Raises ValueError for
    geocodes of another length than 16 digits.
    """
    layout = layout_of(schema.universe, census)
    own = census.universes[schema.universe].declared.attributes
    declared = present_columns(layout, schema, own)
    cells, further = np.arange(schema.n_cells), dict[str, str]()
    if layout.further is not None and invariants is not None:
        further = dict(layout.further.values)
        parts, cells = _with_facilities(parts, invariants), np.append(cells, -1)
    coded = _coded_columns(declared, schema, cells, further)
    stem = directory / f"mdf_{schema.universe}"
    return _write(parts, declared, coded, stem, n_before)


def _coded_columns(
    columns: Sequence[MicrodataColumn],
    schema: Schema,
    cells: np.ndarray,
    otherwise: Mapping[str, str],
) -> dict[str, pa.DictionaryArray]:
    """The columns of attributes and of constants, in some cells (n,); where a cell is -1 they have
    the codes `otherwise`, or their constants."""
    return {
        column.name: _coded(column, schema, cells, otherwise.get(column.name))
        for column in columns
        if column.attribute is not None or column.constant is not None
    }


def _coded(
    column: MicrodataColumn, schema: Schema, cells: np.ndarray, otherwise: str | None
) -> pa.DictionaryArray:
    """A column of `_coded_columns`; its dictionary has the codes that occur.

    Raises ValueError for a code that is invalid in a row of text.
    """
    codes, of_cell = [column.constant or ""], np.zeros(schema.n_cells, dtype=np.int64)
    if column.attribute is not None:
        query = marginal_query(schema, column.attribute)
        codes, of_cell = list(codes_of(column, query.n_rows)), query.row_of_cell
    codes.append((column.constant or "") if otherwise is None else otherwise)
    if any(mark in code for code in codes for mark in f'{SEPARATOR}"\r\n'):
        raise ValueError(f"a code of {column.name} contains a separator, a quote or a line break")
    number, seen = pd.factorize(np.where(cells < 0, len(codes) - 1, of_cell[cells]))
    return coded_texts(number, [codes[code] for code in seen.tolist()])


def present_columns(
    layout: MicrodataDeclaration, schema: Schema, own: Sequence[str]
) -> list[MicrodataColumn]:
    """The columns of a file in their order, with new ones for attributes without a column."""
    by_attribute = {c.attribute: c for c in layout.columns if c.attribute in schema.attributes}
    further = [name for name in schema.attributes if name not in own]
    first = [
        column
        for column in layout.columns
        if column.attribute is None
        or (column.attribute not in further and has_attributes(schema, (column.attribute,)))
    ]
    last = [
        by_attribute.get(name, MicrodataColumn(name=name.upper(), attribute=name, first=0))
        for name in schema.attributes
        if name in further or name not in by_attribute
    ]
    return first + last


def _with_facilities(
    parts: Iterable[BlockCounts], invariants: pd.DataFrame
) -> Iterator[BlockCounts]:
    """The parts with a further cell, whose records are the facilities of the blocks."""
    facilities = invariants.filter(regex=r"^facilities_\d+$").sum(axis=1).to_numpy(np.int64)
    of_block = pd.Series(facilities, index=invariants["block_geocode"])[facilities > 0]
    for part in parts:
        here = of_block.reindex(part.block_geocode.to_pylist(), fill_value=0).to_numpy()
        yield replace(part, counts=sparse.hstack([part.counts, here[:, None]], format="csr"))


def _write(
    parts: Iterable[BlockCounts],
    declared: Sequence[MicrodataColumn],
    of_cells: Mapping[str, pa.DictionaryArray],
    stem: Path,
    n_before: int = 0,
) -> Path:
    """Write the rows of all parts: the declared columns, made of the geocodes of each part's blocks
    or numbering the rows where cells do not determine them, and further columns of cells.
    """
    digits = {c.name: c.digits for c in declared if c.digits is not None and c.name not in of_cells}

    def of_blocks() -> Iterator[tuple[dict[str, pa.DictionaryArray], sparse.csr_array]]:
        for part in parts:
            # Blocks without records are in no dictionary.
            seen = np.flatnonzero(np.diff(part.counts.indptr))
            geocode = part.block_geocode.take(pa.array(seen))
            if not pc.all(pc.match_substring_regex(geocode, _GEOCODE), min_count=0).as_py():
                raise ValueError(f"a block geocode does not have {BLOCK_GEOCODE_DIGITS} digits")
            texts = {name: pc.utf8_slice_codeunits(geocode, *own) for name, own in digits.items()}
            columns = {name: text.dictionary_encode() for name, text in texts.items()}
            yield columns, part.counts[seen]

    names = list(dict.fromkeys([*(c.name for c in declared), *of_cells]))
    return _write_rows(
        stem,
        names,
        of_cells,
        list(digits),
        of_blocks(),
        _CODED,
        n_before=n_before,
        compression="snappy",
        use_dictionary=[*digits, *of_cells],
    )


def _batches(count: np.ndarray) -> Iterator[np.ndarray]:
    """The entry of each row of the microdata, `ROWS_PER_BATCH` rows at a time."""
    end = np.cumsum(count)
    n_rows = int(end[-1]) if end.size else 0
    for start in range(0, n_rows, ROWS_PER_BATCH):
        stop = min(start + ROWS_PER_BATCH, n_rows)
        first = np.searchsorted(end, start, side="right")
        last = np.searchsorted(end, stop, side="left") + 1
        within = np.diff(np.minimum(end[first:last], stop), prepend=start)
        yield np.repeat(np.arange(first, last), within)


def description(
    settings: TopdownSettings, universe: Universe
) -> tuple[DescribedByDeclaration, Held] | None:
    """The description of a universe's records, and the constraint of the later universe."""
    layout = universe.declared.microdata
    if layout is None or layout.described_by is None:
        return None
    declared = layout.described_by
    other = settings.compiled_census.universes[declared.universe]
    return declared, next(
        held for held in other.held_to_universes if held.universe == universe.name
    )


def match_records(
    earlier: sparse.csr_array, later: sparse.csr_array, row: np.ndarray, row_of_later: np.ndarray
) -> pd.DataFrame:
    """Records `(n_areas, n_cells)` of two universes, matched within areas and answers.

    Args:
        row: (n_cells,) of the earlier universe's cells, the answer that counts each, -1 for none.
        row_of_later: (n_cells,) of the later universe's cells.

    Returns:
        `area`, `cell`, `described` (the later universe's cell, -1 for unmatched records), and `n`,
        the number of records, in this order.

    Raises ValueError where an area has different numbers of both in an answer.
    """
    first, second = _order_counts(earlier, row), _order_counts(later, row_of_later)
    alone, first = first[first["row"] < 0], first[first["row"] >= 0]
    sums = [frame.groupby(["area", "row"])["n"].sum() for frame in (first, second)]
    if not sums[0].equals(sums[1]):
        raise ValueError("the records of two universes that are matched are not as many")
    ends = [frame["n"].cumsum().to_numpy() for frame in (first, second)]
    end = np.union1d(*ends)
    at, other = (np.searchsorted(one, end, side="left") for one in ends)
    described = second["cell"].to_numpy()[other]
    matched = first.iloc[at].assign(described=described, n=np.diff(end, prepend=0))
    found = pd.concat([matched, alone.assign(described=-1)])
    keys = ["area", "cell", "described"]
    return found[[*keys, "n"]].sort_values(keys, ignore_index=True)


def _order_counts(counts: sparse.csr_array, row: np.ndarray) -> pd.DataFrame:
    """Counts that are not zero, by area, answer and cell."""
    entries = sparse.coo_array(counts)
    frame = pd.DataFrame(
        {"area": entries.row, "row": row[entries.col], "cell": entries.col, "n": entries.data}
    ).astype(np.int64)
    return frame[frame["n"] > 0].sort_values(["area", "row", "cell"], ignore_index=True)


def _write_described(universe: RunUniverse, declared: DescribedByDeclaration, held: Held) -> Path:
    """Write the microdata of a universe with the attributes that another one adds to its records,
    as `write_microdata` does.
    """
    run, other = universe.run, replace(universe, name=declared.universe)
    areas, schema, later = read_geography(geography_file(run)), universe.schema, other.schema
    records = match_records(
        universe.area_counts(),
        other.area_counts(),
        rows_that_count(later, schema, held.query, held.where, held.of),
        marginal_query(later, held.query).row_of_cell,
    )
    pairs = records.groupby(["cell", "described"])
    cell, described = np.array(list(pairs.groups), dtype=np.int64).reshape(-1, 2).T
    layout = layout_of(universe.name, universe.settings.compiled_census)
    columns = _coded_columns(layout.columns, schema, cell, {})
    columns |= _coded_columns(declared.columns, later, described, declared.otherwise)
    paths = areas["block_geocode"].str.replace(".", "", regex=False)
    geocode = paths.str[-BLOCK_GEOCODE_DIGITS:].to_numpy(dtype=object)
    where = records["area"], pairs.ngroup()
    counts = sparse.csr_array((records["n"], where), shape=(len(areas), cell.size))
    order = np.argsort(geocode)
    ordered = BlockCounts(pa.array(geocode[order], pa.string()), counts[order])
    stem = run.unchecked_release / f"mdf_{universe.name}"
    return _write([ordered], layout.columns, columns, stem)

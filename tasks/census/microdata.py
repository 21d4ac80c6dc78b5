"""Counting released microdata: from rows in a declared layout, or with labels, to histograms.

Files are Parquet, or text with pipes between the fields and a header. They are read in batches;
memory is that of the histograms and one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from scipy import sparse

from ..runs.files import NOT_PRIVATE, STAMP_KEY
from ..tables.columns import CodedColumn
from .areas import AreaIndex, Areas, number_in
from .cef_2020 import CENSUS
from .census import Census
from .declarations import MicrodataColumn, MicrodataDeclaration
from .histograms import HistogramSum
from .queries import Schema

_Rows = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Records of a batch: their area, their cell, and their number, `(n_rows,)`."""

ROWS_PER_BATCH = 1 << 18
_LINES_OF_STAMP = f"# {NOT_PRIVATE}\n".encode()


@dataclass(frozen=True)
class MicrodataFile:
    """A file of released microdata."""

    path: Path

    @property
    def is_parquet(self) -> bool:
        """Whether it is Parquet, by its name; else it is text."""
        return self.path.suffix == ".parquet"

    @cached_property
    def names(self) -> list[str]:
        """Names of the columns."""
        if self.is_parquet:
            with pq.ParquetFile(self.path) as file:
                return file.schema_arrow.names
        with self.path.open("rb") as stream:
            lines = (stream.readline() for _ in range(1 + self.is_stamped))
            return list(lines)[-1].decode().rstrip("\r\n").split("|")

    @cached_property
    def is_stamped(self) -> bool:
        """Whether it has the stamp of a run that is not private."""
        if self.is_parquet:
            metadata = pq.read_metadata(self.path).metadata or {}
            return metadata.get(STAMP_KEY.encode()) == NOT_PRIVATE.encode()
        with self.path.open("rb") as stream:
            return stream.readline() == _LINES_OF_STAMP

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns as dictionaries of texts, batch by batch."""
        if self.is_parquet:
            with pq.ParquetFile(self.path, read_dictionary=list(names)) as file:
                yield from file.iter_batches(batch_size=ROWS_PER_BATCH, columns=list(names))
            return
        texts = pa.dictionary(pa.int32(), pa.string())
        yield from pyarrow.csv.open_csv(
            self.path,
            pyarrow.csv.ReadOptions(skip_rows=int(self.is_stamped)),
            pyarrow.csv.ParseOptions(delimiter="|"),
            pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, texts),
                include_columns=list(names),
                strings_can_be_null=False,
            ),
        )


def layout_of(universe: str, census: Census = CENSUS) -> MicrodataDeclaration:
    """Return the declared layout of a universe's microdata; raise ValueError if there is none."""
    layout = census.universes[universe].declared.microdata
    if layout is None:
        raise ValueError(f"the census declares no microdata of {universe}")
    return layout


def count_microdata(
    path: Path, block_geocode: np.ndarray, universe: str, census: Census = CENSUS
) -> tuple[sparse.csr_array, Schema]:
    """Histograms of a universe's microdata, shape `(n_blocks, n_cells)`, and their schema.

    `block_geocode` are the 16-digit codes of the blocks, ascending. The schema has those of the
    universe's own attributes that the file has, by one column or by several together. Rows of
    further records are skipped. Raises ValueError for a record in another block or of an unknown
    code, and for columns that do not distinguish the levels of an attribute.
    """
    layout, file = layout_of(universe, census), MicrodataFile(path)
    names = file.names
    telling: dict[str, list[MicrodataColumn]] = {}
    for column in layout.columns:
        if column.attribute is not None and column.name in names:
            telling.setdefault(column.attribute, []).append(column)
    own = census.universes[universe].declared.attributes
    schema = census.schema(universe, tuple(name for name in own if name in telling))
    codes = [_code_index(path, telling[name], schema) for name in schema.attributes]
    further = {} if layout.further is None else dict(layout.further.values)
    marks = [(name, value) for name, value in further.items() if name in names]
    digits = {c.name: c.digits for c in layout.columns if c.digits is not None}
    blocks = block_geocode.astype(np.int64)

    def rows(batch: pa.RecordBatch) -> _Rows:
        is_own = np.full(batch.num_rows, not marks)
        for name, value in marks:
            is_own |= _integers(batch, name) != int(value)
        levels = []
        for index in codes:
            given = [_integers(batch, name)[is_own] for name in index.names]
            levels.append(index.get_indexer(pd.MultiIndex.from_arrays(given)))
            if (levels[-1] < 0).any():
                raise _unknown_code(path, " with ".join(index.names))
        geocode = np.zeros(batch.num_rows, dtype=np.int64)
        for name, (start, stop) in digits.items():
            geocode = geocode * 10 ** (stop - start) + _integers(batch, name)
        block = np.searchsorted(blocks, geocode)
        if (blocks[np.minimum(block, len(blocks) - 1)] != geocode).any():
            raise ValueError(f"{path.name} has a row in a block outside the geography")
        cell = np.ravel_multi_index(levels, schema.shape)
        return block[is_own], cell, np.ones(len(cell), dtype=np.int64)

    read = dict.fromkeys([*digits, *(name for index in codes for name in index.names)])
    read |= dict.fromkeys(name for name, _ in marks)
    return _count(file, tuple(read), rows, (len(blocks), schema.n_cells)), schema


def count_labelled_microdata(
    path: Path, areas: Areas, schema: Schema, count: str | None
) -> sparse.csr_array:
    """Histograms `(n_areas, n_cells)` of microdata with a column for each geolevel and the label of
    each attribute's level.

    `count` names the column with the number of records in a row; None for one each. Raises
    ValueError for other columns, a record in another area, or a label of no level.
    """
    file, index = MicrodataFile(path), AreaIndex(areas, len(areas.columns))
    names = [*areas.columns, *schema.attributes, *((count,) if count else ())]
    if file.names != names:
        raise ValueError(
            f"{path.name} has the columns {', '.join(file.names)} and not {', '.join(names)}"
        )

    def rows(batch: pa.RecordBatch) -> _Rows:
        area = index.positions([_coded(batch, name) for name in areas.columns])
        if (area < 0).any():
            raise ValueError(f"{path.name} has a row in an area outside the geography")
        levels = {}
        for name in schema.attributes:
            known = {label: level for level, label in enumerate(schema.labels(name))}
            levels[name] = _coded(batch, name).lookup(partial(number_in, known), np.int64)
            if (levels[name] < 0).any():
                raise _unknown_code(path, name)
        times = np.ones(batch.num_rows, dtype=np.int64)
        return area, schema.cells(levels), _integers(batch, count) if count else times

    return _count(file, names, rows, (len(areas), schema.n_cells))


def _code_index(path: Path, columns: Sequence[MicrodataColumn], schema: Schema) -> pd.MultiIndex:
    """Codes of an attribute's levels in its columns; refuses levels of the same codes."""
    attribute = columns[0].attribute or ""
    n_levels = len(schema.labels(attribute))
    codes = [np.array(codes_of(column, n_levels), dtype=np.int64) for column in columns]
    index = pd.MultiIndex.from_arrays(codes, names=[column.name for column in columns])
    if not index.is_unique:
        raise ValueError(
            f"{path.name} has the levels of {attribute} in {', '.join(index.names)}, in which some "
            "of them have the same codes"
        )
    return index


def codes_of(column: MicrodataColumn, n_levels: int) -> Sequence[str]:
    """Codes in a column of the levels of its attribute or coarsening."""
    if column.codes is not None:
        return column.codes
    first = column.first or 0
    return [f"{first + i:0{column.width}d}" for i in range(n_levels)]


def _unknown_code(path: Path, name: str) -> ValueError:
    return ValueError(f"{path.name} has a code that {name} does not have")


def _count(
    file: MicrodataFile,
    names: Sequence[str],
    rows_of: Callable[[pa.RecordBatch], _Rows],
    shape: tuple[int, int],
) -> sparse.csr_array:
    """Count records by area and cell, as `rows_of` has them of each batch."""
    counts = HistogramSum(*shape)
    for batch in file.batches(names):
        counts.add(*rows_of(batch))
    return counts.total()


def _coded(batch: pa.RecordBatch, name: str) -> CodedColumn:
    column = batch.column(name)
    return CodedColumn(column.indices.to_numpy(), tuple(column.dictionary.to_pylist()))


def _integers(batch: pa.RecordBatch, name: str) -> np.ndarray:
    """The codes of a column as integers."""
    column = batch.column(name)
    if not pa.types.is_dictionary(column.type):
        return column.to_numpy().astype(np.int64)
    values = np.array(column.dictionary.to_pylist(), dtype=np.int64)
    return values[column.indices.to_numpy()]

"""Rows of measurement files, batch by batch, whatever widths their columns have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...runs.errors import InputRefused
from .layout import MeasurementFolder

ROWS_PER_BATCH = 1 << 12
"""Rows in memory at a time; those of the detailed query of persons take 16 KiB each."""

TEXTS = ("geocode", "query_name", "plb", "sign")
LISTS = ("value", "query_shape")


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of one file.

    file : its name in messages.
    table : the columns asked for as far as the file has them. Texts are dictionaries of strings,
        lists have 64-bit integers, variances are doubles.
    """

    file: str
    table: pa.Table

    def texts(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The distinct values of a text column, and the code of each row."""
        column = self.table[name].combine_chunks()
        values = np.asarray(column.dictionary.to_pylist(), dtype=object)
        return values, column.indices.to_numpy(zero_copy_only=False)

    def by_query(self) -> Iterator[tuple[str, Rows]]:
        """The names of queries, and the rows of each."""
        names, code = self.texts("query_name")
        for number, name in enumerate(names.tolist()):
            chosen = np.flatnonzero(code == number)
            if chosen.size:
                yield name, replace(self, table=self.table.take(chosen))

    def numbers(
        self, name: str, width: int, geocode: np.ndarray, what: str, subject: str
    ) -> np.ndarray:
        """The numbers `(m, width)` of the lists of a column; refuses lists of another length as
        `refuse_where` does."""
        column = self.table[name].combine_chunks()
        lengths = pc.list_value_length(column).to_numpy()
        self.refuse_where(lengths != width, geocode, what, subject)
        return column.flatten().to_numpy().reshape(-1, width)

    def refuse_where(
        self, is_wrong: np.ndarray, geocode: np.ndarray, what: str, subject: str = ""
    ) -> None:
        """Raise InputRefused about the first geounit that is wrong, `(m,)` each; `subject`, such as
        "the constraint total_con of ", stands before it and `what` after it."""
        if is_wrong.any():
            geounit = geocode[int(np.argmax(is_wrong))]
            raise InputRefused(f"{self.file}: {subject}geounit {geounit} {what}.")

    def refuse_repeated(
        self, place: np.ndarray, is_seen: np.ndarray, geocode: np.ndarray, what: str
    ) -> None:
        """Refuse geounits at `place` (m,) among `geocode` that stand twice, or were seen before."""
        self.refuse_where(is_seen, geocode[place], what)
        ordered = np.sort(place)
        self.refuse_where(ordered[1:] == ordered[:-1], geocode[ordered[1:]], what)


def read_rows(
    folder: MeasurementFolder,
    path: Path,
    needed: Sequence[str],
    optional: Sequence[str] = (),
    *,
    rows_per_batch: int = ROWS_PER_BATCH,
) -> Iterator[Rows]:
    """The rows of a file in batches, with the columns `needed` and those `optional` ones it has.

    Raises InputRefused, naming the file, for one that is not Parquet, lacks a column or a value, or
    whose column is of another kind.
    """
    name = folder.name(path)
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowInvalid):
        raise InputRefused(
            f"{name} is no Parquet file, or a damaged one; fetch it again."
        ) from None
    with file:
        there = set(file.schema_arrow.names)
        missing = [column for column in needed if column not in there]
        if missing:
            raise InputRefused(f"{name} has no column '{missing[0]}'; fetch the file again.")
        columns = [*needed, *(column for column in optional if column in there)]
        batches = file.iter_batches(batch_size=rows_per_batch, columns=columns)
        while True:
            try:
                batch = next(batches, None)
            except (OSError, pa.ArrowInvalid):
                raise InputRefused(f"{name} is damaged; fetch it again.") from None
            if batch is None:
                return
            yield Rows(name, _normal(name, pa.Table.from_batches([batch]), needed))


def _normal(name: str, table: pa.Table, needed: Sequence[str]) -> pa.Table:
    """The table with the types that `Rows` promises, less optional columns that lack values."""
    arrays: dict[str, pa.ChunkedArray] = {}
    for column in table.column_names:
        array = table[column]
        if array.null_count:
            if column not in needed:
                continue
            raise InputRefused(f"{name} has rows without {column}; fetch the file again.")
        try:
            arrays[column] = _converted(column, array)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            raise InputRefused(
                f"{name}: the column '{column}' is of the type {array.type}, which cannot be read "
                "as that column; fetch the file again."
            ) from None
    return pa.table(arrays)


def _converted(column: str, array: pa.ChunkedArray) -> pa.ChunkedArray:
    if column in LISTS:
        return array.cast(pa.list_(pa.int64()))
    if column == "variance":
        return array.cast(pa.float64())
    if column in TEXTS:
        if pa.types.is_dictionary(array.type):
            array = array.cast(array.type.value_type)
        return array.cast(pa.string()).dictionary_encode()
    return array

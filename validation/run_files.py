"""Reading a run directory's public files, with what every product's checks need for it.

Each product reads its own layout in its folder; here are the parts of that which they share, and
the one rule on files that cannot be used: they fail the checks that need them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from .outcome import Failures, UnusableRunFile

ROWS_PER_BATCH = 1 << 18
SMALL_FILE, KEPT_BYTES, MOST_KEPT = 1 << 18, 1 << 24, 1 << 9
"""Files up to the first size are kept in memory, so many of them, up to the second size in all: a
check of a small run asks for the same few rows of its many files several times, and each time it
takes longer to find the columns than to read them."""
STAMP = b"NOT PRIVATE"
STAMP_LINE = b"# " + STAMP + b"\n"
"""First line of the texts of a run that is not private."""
_FRACTION = re.compile(r"\d+(/[1-9]\d*)?")

UNUSABLE = (
    pa.ArrowException,
    OSError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
)
"""How a file that is missing, truncated or of other types shows itself where it is first used."""


@contextmanager
def unusable_files_fail(*checks: Failures) -> Iterator[None]:
    """Record a file that cannot be used as a failure of these checks, whatever is wrong with it.

    Only an UnusableRunFile's own words are shown: the messages of Arrow, Python and the system may
    quote contents and paths.
    """
    try:
        yield
    except UnusableRunFile as error:
        for failures in checks:
            failures.add(str(error))
    except UNUSABLE as error:
        for failures in checks:
            failures.add(f"a file cannot be read ({type(error).__name__})")


def positions(values: pa.Array | pa.ChunkedArray, known: pa.StringArray) -> np.ndarray:
    """Position of each text in `known`, -1 where it is not there, as int64."""
    if isinstance(values, pa.DictionaryArray):
        return positions(values.dictionary, known)[values.indices.to_numpy()]
    found = pc.index_in(as_text(values), value_set=known)
    return pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)


def parse_fraction(text: str) -> Fraction:
    """The exact fraction of a text like `104/4099`; raises UnusableRunFile for any other text."""
    if not isinstance(text, str) or not _FRACTION.fullmatch(text):
        raise UnusableRunFile(f"{text!r} is not a fraction p/q")
    return Fraction(text)


def read_json(root: Path, place: Path) -> Any:
    """What a JSON file of a run holds, `place` being its path from the root."""
    try:
        return json.loads((root / place).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UnusableRunFile(f"{place.as_posix()} cannot be read") from None


def as_text(values: pa.Array | pa.ChunkedArray) -> pa.StringArray:
    """The values as one array of plain strings, whatever string type the file was written with."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    return values.cast(pa.string())


def encoded(column: pa.Array) -> pa.DictionaryArray:
    """A column of texts as numbers of its distinct texts."""
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    return coded.cast(pa.dictionary(pa.int32(), pa.string()))


def read_table(path: Path, columns: Sequence[str], as_dictionary: Sequence[str] = ()) -> pa.Table:
    """Columns of a Parquet file; raises UnusableRunFile as `opened` does."""
    small = small_file(path, columns, as_dictionary)
    if small is not None:
        return small.table
    with opened(path, columns, as_dictionary) as file:
        return file.read(columns=list(columns))


@dataclass(frozen=True, eq=False)
class SmallFile:
    """Columns of a small Parquet file, and its footer."""

    table: pa.Table
    footer: pq.FileMetaData
    n_bytes: int

    def row_groups(self, numbers: Sequence[int], rows_per_batch: int) -> Iterator[pa.RecordBatch]:
        """The rows of some row groups, in batches of at most so many."""
        start, chosen = 0, set(numbers)
        for number in range(self.footer.num_row_groups):
            n_rows = self.footer.row_group(number).num_rows
            if number in chosen and n_rows:
                yield from self.table.slice(start, n_rows).to_batches(rows_per_batch)
            start += n_rows


class _Kept:
    """The small files that were read last."""

    def __init__(self) -> None:
        self._files: dict[tuple[object, ...], SmallFile] = {}
        self._n_bytes = 0
        self._lock = Lock()

    def get(self, key: tuple[object, ...]) -> SmallFile | None:
        with self._lock:
            return self._files.get(key)

    def add(self, key: tuple[object, ...], file: SmallFile) -> None:
        with self._lock:
            if key in self._files:
                return
            self._files[key] = file
            self._n_bytes += file.n_bytes
            while self._n_bytes > KEPT_BYTES or len(self._files) > MOST_KEPT:
                self._n_bytes -= self._files.pop(next(iter(self._files))).n_bytes


_kept = _Kept()


def small_file(
    path: Path, columns: Sequence[str], as_dictionary: Sequence[str] = ()
) -> SmallFile | None:
    """Columns of a file of at most `SMALL_FILE` bytes, kept while it stands unchanged; None of a
    larger one. Raises UnusableRunFile as `opened` does.
    """
    try:
        found = path.stat()
    except OSError:
        return None
    if found.st_size > SMALL_FILE:
        return None
    state = found.st_ino, found.st_size, found.st_mtime_ns
    key = path, state, tuple(columns), tuple(as_dictionary)
    kept = _kept.get(key)
    if kept is None:
        with opened(path, columns, as_dictionary) as file:
            # Of hundreds of columns threads cost more than they gain.
            table = file.read(columns=list(columns), use_threads=False)
            kept = SmallFile(table, file.metadata, table.nbytes)
        _kept.add(key, kept)
    return kept


def opened(path: Path, columns: Sequence[str], as_dictionary: Sequence[str] = ()) -> pq.ParquetFile:
    """A Parquet file that has these columns; raises UnusableRunFile if it is none."""
    name_of_file = shown(path)
    try:
        file = pq.ParquetFile(path, read_dictionary=list(as_dictionary))
    except FileNotFoundError:
        raise UnusableRunFile(f"the file {name_of_file} is missing") from None
    except KeyError as error:
        # Of `as_dictionary`, and so of `columns`.
        raise UnusableRunFile(f"{name_of_file} has no column {error.args[0].decode()}") from None
    except (pa.ArrowException, OSError) as error:
        raise UnusableRunFile(f"{name_of_file} is not a Parquet file") from error
    present = set(file.schema_arrow.names)
    lacking = [name for name in columns if name not in present]
    if lacking:
        file.close()
        raise UnusableRunFile(f"{name_of_file} has no column {lacking[0]}")
    return file


def check_answers(
    path: Path,
    regions: Sequence[str],
    queries: Mapping[str, tuple[int, str, float]],
    failures: Failures,
) -> None:
    """The measurements of a level: those of the queries in each of its regions once, in their
    order. Of each query are told how many values an answer has, its loss and its variance.
    """
    columns = ["geocode", "query_name", "value", "variance", "plb"]
    table, level = pq.read_table(path, columns=columns), path.parent.parent.name
    if set(table["query_name"].unique().to_pylist()) != set(queries):
        failures.add(f"level {level} was measured by other queries than those of the plan")
    for name, (n_values, loss, variance) in queries.items():
        rows = table.filter(pc.equal(table["query_name"], name))
        if rows["geocode"].to_pylist() != list(regions):
            failures.add(f"{name} of {level} is not measured once in each region")
        if not pc.all(pc.equal(pc.list_value_length(rows["value"]), n_values)).as_py():
            failures.add(f"{name} of {level} does not have {n_values} values")
        if rows["plb"].unique().to_pylist() != [loss]:
            failures.add(f"{name} of {level} does not cost {loss}")
        if not np.allclose(rows["variance"].to_numpy(), variance, rtol=1e-9, atol=0):
            failures.add(f"{name} of {level} does not have the variance of its noise")


def check_text(release: Path, name: str, *, is_private: bool, failures: Failures) -> pa.Table:
    """A released table, after it was checked that its text holds the rows of its Parquet file, and
    that both have the stamp that they must have. An empty field is null, an empty text is quoted.
    """
    parquet, path = release / f"{name}.parquet", release / f"{name}.csv"
    check_stamp(parquet, is_private=is_private, failures=failures)
    has_stamp = check_stamp(path, is_private=is_private, failures=failures)
    table = pq.read_table(parquet).replace_schema_metadata(None)
    text = pacsv.read_csv(
        path,
        read_options=pacsv.ReadOptions(skip_rows=int(has_stamp)),
        convert_options=pacsv.ConvertOptions(
            column_types={field.name: field.type for field in table.schema},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    if not text.equals(table):
        failures.add(f"{name}.csv does not hold the rows of {name}.parquet")
    return table


def is_stamped(path: Path) -> bool:
    """Whether a Parquet file or a text has the stamp of a run that is not private."""
    if path.suffix == ".parquet":
        return (pq.read_metadata(path).metadata or {}).get(b"spineflow") == STAMP
    with path.open("rb") as text:
        return text.readline().rstrip(b"\r\n") == STAMP_LINE.rstrip()


def check_stamp(path: Path, *, is_private: bool, failures: Failures) -> bool:
    """A file of a run that is not private has the stamp, and no other; whether this one has it."""
    has_stamp = is_stamped(path)
    if has_stamp == is_private:
        due = "without" if is_private else "with"
        failures.add(f"{path.name} should be {due} the stamp {STAMP.decode()}")
    return has_stamp


def head_of_text(path: Path, columns: Sequence[str]) -> bool:
    """Whether a text with pipes between its fields has rows below its header.

    Raises UnusableRunFile for a header that does not name the columns.
    """
    with path.open("rb") as text:
        header = text.readline()
        if header.rstrip(b"\r\n") == STAMP_LINE.rstrip():
            header = text.readline()
        if header.rstrip(b"\r\n") != "|".join(columns).encode():
            raise UnusableRunFile(f"{path.name} does not have its layout's columns")
        return bool(text.read(1))


def opened_text(
    path: Path, types: pa.Schema | Mapping[str, pa.DataType]
) -> pacsv.CSVStreamingReader:
    """The rows of a text with pipes between its fields and no quotes, in batches."""
    return pacsv.open_csv(
        path,
        read_options=pacsv.ReadOptions(skip_rows=int(is_stamped(path)), block_size=1 << 24),
        parse_options=pacsv.ParseOptions(delimiter="|", quote_char=False),
        convert_options=pacsv.ConvertOptions(
            column_types=types, null_values=[], strings_can_be_null=False
        ),
    )


def shown(path: Path) -> str:
    """The path as an outcome names it: without the folders above the run directory's parts."""
    return "/".join(path.parts[-3:])

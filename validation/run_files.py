"""Reading a run directory's public files, for the checks of every product.

Each product reads its own layout in its folder; here are the parts of that which they share, and
the one rule on files that cannot be used: they fail the checks that need them.
"""

from __future__ import annotations

import csv
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from .outcome import Failures, UnusableRunFile

ROWS_PER_BATCH = 1 << 18
BLOCK_OF_TEXT = 1 << 22
"""Bytes of text that are parsed at a time; Arrow holds several such blocks. Larger ones would cost
a check a hundred MiB more, and save no time."""
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
    """Record an unusable file as a failure of these checks.

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


def make_checks(
    failures: Mapping[str, Failures], *checks: tuple[str, Callable[[Failures], None]]
) -> None:
    """Make some checks by name, which a function each records; an unusable file is a failure."""
    for name, check in checks:
        with unusable_files_fail(failures[name]):
            check(failures[name])


def positions(values: pa.Array | pa.ChunkedArray, known: pa.StringArray) -> np.ndarray:
    """Position of each text in `known`, -1 where it is not there, as int64."""
    if isinstance(values, pa.DictionaryArray):
        return positions(values.dictionary, known)[values.indices.to_numpy()]
    found = pc.index_in(to_text(values), value_set=known)
    return pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)


def parse_fraction(text: str) -> Fraction:
    """The exact fraction of a text like `104/4099`; raises UnusableRunFile for any other text."""
    if not isinstance(text, str) or not _FRACTION.fullmatch(text):
        raise UnusableRunFile(f"{text!r} is not a fraction p/q")
    return Fraction(text)


def read_json(root: Path, place: Path) -> Any:
    """Content of a JSON file of a run, `place` being its path from the root."""
    try:
        return json.loads((root / place).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UnusableRunFile(f"{place.as_posix()} cannot be read") from None


def read_settings(root: Path) -> dict[str, Any]:
    """The settings that a run has frozen, all defaults and presets filled in."""
    try:
        return tomllib.loads((root / "settings.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UnusableRunFile("settings.toml cannot be read") from None


def to_text(values: pa.Array | pa.ChunkedArray) -> pa.StringArray:
    """The values as one array of plain strings, for any string type of the file."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    return values.cast(pa.string())


def encode_texts(column: pa.Array) -> pa.DictionaryArray:
    """A column of texts as numbers of its distinct texts."""
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    return coded.cast(pa.dictionary(pa.int32(), pa.string()))


def number_texts(column: pa.Array) -> tuple[list[str], np.ndarray]:
    """The distinct texts of a column, and the number of each row's."""
    coded = encode_texts(column)
    return coded.dictionary.to_pylist(), coded.indices.to_numpy()


def read_table(
    path: Path, columns: Sequence[str] | None = None, as_dictionary: Sequence[str] = ()
) -> pa.Table:
    """A Parquet file, or some columns of it; raises UnusableRunFile as `open_parquet` does."""
    with open_parquet(path, columns or (), as_dictionary) as file:
        return file.read(columns=columns and list(columns))


def open_parquet(
    path: Path, columns: Sequence[str], as_dictionary: Sequence[str] = ()
) -> pq.ParquetFile:
    """Open a Parquet file that has these columns; raise UnusableRunFile for another file."""
    name_of_file = relative_path(path)
    try:
        file = pq.ParquetFile(path, read_dictionary=list(as_dictionary))
    except FileNotFoundError:
        raise UnusableRunFile(f"the file {name_of_file} is missing") from None
    except KeyError as error:
        # One of `as_dictionary`, and so of `columns`.
        raise UnusableRunFile(f"{name_of_file} has no column {error.args[0].decode()}") from None
    except (pa.ArrowException, OSError) as error:
        raise UnusableRunFile(f"{name_of_file} is not a Parquet file") from error
    present = set(file.schema_arrow.names)
    lacking = [name for name in columns if name not in present]
    if lacking:
        file.close()
        raise UnusableRunFile(f"{name_of_file} has no column {lacking[0]}")
    return file


def check_text(
    stem: Path,
    failures: Failures,
    *,
    is_private: bool,
    has_quotes: bool = True,
    delimiter: str = ",",
    names: Sequence[str] | None = None,
    rows_per_batch: int = ROWS_PER_BATCH,
) -> None:
    """Check that a Parquet file, of these columns if they are given, and its text have the same
    rows, and the stamp if it is due; they may be larger than memory.

    Raises UnusableRunFile for a missing file or other columns.
    """
    parquet, text = stem.with_suffix(".parquet"), stem.with_suffix(".csv")
    for path in (parquet, text):
        if not path.is_file():
            raise UnusableRunFile(f"the file {path.name} of the release is missing")
    types = pq.read_schema(parquet).remove_metadata()
    if names is not None and types.names != list(names):
        raise UnusableRunFile(f"{parquet.name} has other columns than {', '.join(names)}")
    refuse_other_header(text, types.names, delimiter)
    for path in (parquet, text):
        check_stamp(path, is_private=is_private, failures=failures)
    # Texts as the file has them, each distinct one once, take half of the time.
    with (
        pq.ParquetFile(parquet, read_dictionary=types.names) as file,
        opened_text(
            text,
            {field.name: field.type for field in types},
            has_quotes=has_quotes,
            delimiter=delimiter,
        ) as lines,
    ):
        for one, other in pairs_of_rows(file.iter_batches(batch_size=rows_per_batch), lines):
            if one is None:
                failures.add(f"{text.name} has too many rows")
                return
            if other is None:
                failures.add(f"{text.name} has too few rows", count=one.num_rows)
                continue
            for column in types.names:
                of_text = other.column(column)
                values = one.column(column).cast(of_text.type)
                if not values.equals(of_text):
                    one_is_missing = pc.xor(values.is_null(), of_text.is_null())
                    wrong = pc.coalesce(pc.not_equal(values, of_text), one_is_missing)
                    failures.add_each(wrong, f"{parquet.name} and {text.name} differ in {column}")


def checked_table(release: Path, name: str, *, is_private: bool, failures: Failures) -> pa.Table:
    """A released table, after `check_text`."""
    check_text(release / name, failures, is_private=is_private)
    return read_table(release / f"{name}.parquet").replace_schema_metadata(None)


def is_stamped(path: Path) -> bool:
    """Whether a Parquet file or a text has the stamp of a run that is not private."""
    if path.suffix == ".parquet":
        return (pq.read_metadata(path).metadata or {}).get(b"spineflow") == STAMP
    with path.open("rb") as text:
        return text.readline().rstrip(b"\r\n") == STAMP_LINE.rstrip()


def check_stamp(path: Path, *, is_private: bool, failures: Failures) -> None:
    """Check that the file has the stamp exactly if the run is not private."""
    if is_stamped(path) == is_private:
        due = "without" if is_private else "with"
        failures.add(f"{path.name} should be {due} the stamp {STAMP.decode()}")


def refuse_other_header(path: Path, columns: Sequence[str], delimiter: str = "|") -> None:
    """Raise UnusableRunFile for a text whose header does not name the columns."""
    with path.open(encoding="utf-8", newline="") as text:
        lines = islice(csv.reader(text, delimiter=delimiter), int(is_stamped(path)), None)
        if next(lines, []) != list(columns):
            raise UnusableRunFile(f"{path.name} does not have its layout's columns")


@contextmanager
def opened_text(
    path: Path,
    types: Mapping[str, pa.DataType],
    *,
    has_quotes: bool = False,
    delimiter: str = "|",
    header: Sequence[str] = (),
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Columns of a text, in batches; fields may have quotes, and then line feeds, and nulls as
    empty fields without, or have none of these. `header` has the names of all columns of a text
    that begins with neither these nor a stamp."""
    with pacsv.open_csv(
        path,
        read_options=pacsv.ReadOptions(
            skip_rows=int(not header and is_stamped(path)),
            block_size=BLOCK_OF_TEXT,
            column_names=list(header),
        ),
        parse_options=pacsv.ParseOptions(
            delimiter=delimiter,
            quote_char='"' if has_quotes else False,
            newlines_in_values=has_quotes,
        ),
        convert_options=pacsv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=[""] if has_quotes else [],
            strings_can_be_null=has_quotes,
            quoted_strings_can_be_null=False,
        ),
    ) as lines:
        yield lines


def read_batches(
    folder: Path,
    columns: Sequence[str],
    as_dictionary: Sequence[str] = (),
    rows_per_batch: int = ROWS_PER_BATCH,
    may_hold: Callable[[str, str], bool] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The columns of all Parquet files of a folder, in batches; none if there is no file.

    With `may_hold`, only row groups that may have requested geocodes, by the lowest and the
    highest. Raises UnusableRunFile for a file that is not Parquet, lacks a column or a value of
    one.
    """
    for path in sorted(folder.glob("*.parquet")):
        with open_parquet(path, columns, as_dictionary) as file:
            groups = None if may_hold is None else row_groups_with(file, "geocode", may_hold)
            for batch in file.iter_batches(
                batch_size=rows_per_batch,
                row_groups=groups,
                columns=list(columns),
                use_threads=file.metadata.num_rows > rows_per_batch,
            ):
                for name in columns:
                    if batch.column(name).null_count:
                        raise UnusableRunFile(f"a {name} in {relative_path(path)} is missing")
                yield batch


def row_groups_with(
    file: pq.ParquetFile, name: str, may_hold: Callable[[str, str], bool]
) -> list[int]:
    """The row groups of a file that may have the requested rows, by the lowest and the highest text
    of a column, where they have these statistics."""
    column, found = file.schema_arrow.names.index(name), []
    for group in range(file.num_row_groups):
        range_ = file.metadata.row_group(group).column(column).statistics
        if range_ is None or not range_.has_min_max or may_hold(range_.min, range_.max):
            found.append(group)
    return found


def rows_between(
    file: pq.ParquetFile,
    rows: range,
    columns: Sequence[str] | None = None,
    rows_per_batch: int = ROWS_PER_BATCH,
    *,
    use_threads: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Some rows of a file in batches; reads only the row groups that have them."""
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    starts = list(accumulate(sizes, initial=0))
    groups = [i for i in range(len(sizes)) if starts[i] < rows.stop and starts[i + 1] > rows.start]
    at = starts[groups[0]] if groups else 0
    for batch in file.iter_batches(rows_per_batch, groups, columns, use_threads=use_threads):
        first, stop = max(0, rows.start - at), min(batch.num_rows, rows.stop - at)
        at += batch.num_rows
        if first < stop:
            yield batch.slice(first, stop - first)


def pairs_of_rows(
    left: Iterator[pa.RecordBatch], right: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch | None, pa.RecordBatch | None]]:
    """Batches of as many rows from both sides, None for the side that has ended before: for every
    batch of the left, or once for the right.
    """
    sides = [(batch for batch in side if batch.num_rows) for side in (left, right)]
    one, other = (next(side, None) for side in sides)
    while one is not None and other is not None:
        n = min(one.num_rows, other.num_rows)
        yield one.slice(0, n), other.slice(0, n)
        one, other = (
            own.slice(n) if n < own.num_rows else next(side, None)
            for own, side in zip((one, other), sides, strict=True)
        )
    if other is not None:
        yield None, other
    while one is not None:
        yield one, None
        one = next(sides[0], None)


def relative_path(path: Path) -> str:
    """The path as an outcome names it: without the folders above the run directory's parts."""
    return "/".join(path.parts[-3:])

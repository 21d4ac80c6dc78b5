"""Readers of the input tables: Parquet, delimited and fixed-width text, databases.

A file's format is recognised from its content. Every reader yields batches of the selected columns
as Arrow arrays (integers, floats, strings, or dictionaries of these), so that a file need not fit
into memory; `tasks.tables.columns` converts all of them to one form. Fixed-width files are sliced
as byte matrices, never line by line.

A file that cannot be read raises `UnreadableInput`, whose message has no byte of the file.

Tables and queries of databases are read through ADBC (PostgreSQL) and in files of DuckDB. An
address consists of the database and, after `#`, the name of a table or a query:

    postgresql://db.office.example/census#public.persons
    duckdb:///data/census.duckdb#SELECT * FROM persons WHERE year = 2020

PostgreSQL takes user and password from the environment of its own clients: PGUSER, PGPASSFILE,
PGSERVICE. Rows come as a stream of Arrow batches, so that a table need not fit into memory.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from io import BufferedReader, BytesIO
from typing import Any
from unicodedata import normalize
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from ..runs.stores import is_url
from .findings import UnreadableInput
from .formats import SEPARATORS, clean_columns
from .layouts import TableLayout
from .sources import (
    PARQUET_MAGIC,
    ByteStream,
    InputFile,
    Share,
    TextStream,
    files_of_share,
    gunzip,
    open_binary,
    open_text,
)

Batch = Mapping[str, pa.Array]
"""Columns of some consecutive rows, by name."""

DELIMITERS = tuple(SEPARATORS)
_DELIMITER_NAMES = "pipes, commas, tabs or semicolons"
_BATCH_ROWS = 1 << 20
_BLOCK_BYTES = 1 << 24
_CODED_TEXT = pa.dictionary(pa.int32(), pa.string())
_FOREIGN = {
    b"PK\x03\x04": "a ZIP archive or a workbook of Excel or LibreOffice",
    b"\xd0\xcf\x11\xe0": "a workbook of an old version of Excel",
    b"ARROW1\x00\x00": "an Arrow or Feather file",
    b"FEA1\x00": "a Feather file",
    b"SQLite format 3\x00": "an SQLite database",
    b"$FL2@": "an SPSS file",
    b"$FL3@": "an SPSS file",
    b"<stata_dta>": "a Stata file",
    b"HEADER RECORD*": "a SAS transport file",
    b"\x00" * 12 + b"\xc2\xea\x81\x60": "a SAS data set",
    b"X\n\x00\x00": "an R data file",
    b"RDX2\n": "an R data file",
    b"RDX3\n": "an R data file",
    b'{"': "a JSON file",
    b"[{": "a JSON file",
}
"""First bytes of unsupported files, plain or gzipped, and their names in messages."""


@dataclass(frozen=True)
class Selection:
    """The requested columns of a table: the required ones, and with `with_others` all others."""

    required: tuple[str, ...]
    with_others: bool = False

    def choose(self, file: InputFile, present: Sequence[str]) -> list[str]:
        """The columns to read of a file, given all that it has; refuses the file if a required one
        is missing or occurs more than once."""
        for name in self.required:
            if name not in present:
                remedy = "add this column, or correct the setting, such as area, that names it"
                if file.layout is None:
                    remedy = f"add it under this name, as the CEF layout of {file.table} has it"
                raise file.unreadable(f"the column {name} is missing", remedy, column=name)
        wanted = list(self.required)
        if self.with_others:
            wanted += [name for name in dict.fromkeys(present) if name and name not in wanted]
        occurrences = Counter(present)
        for name in self.required:
            if occurrences[name] > 1:
                rule = f"the column {name} occurs more than once"
                raise file.unreadable(rule, "keep one of them", column=name)
        return [name for name in wanted if occurrences[name] == 1]


def read_batches(file: InputFile, selection: Selection) -> Iterator[Batch]:
    """Yield the selected columns of a table, batch by batch, at least one row in all.

    Raises `UnreadableInput` for a file that cannot be opened, is empty or damaged, is in no known
    format, or lacks a required column.
    """
    yield from (batch for _, batch in read_partitions([file], selection))


def read_partitions(
    files: Sequence[InputFile], selection: Selection, share: Share | None = None
) -> Iterator[tuple[int, Batch]]:
    """Yield the selected columns of a table in several files, batch by batch.

    Each batch comes with the position of its file in `files`. Single files, and a `share` of the
    table, may have no rows, but not the whole table. Raises `UnreadableInput` as `read_batches`.
    """
    n_rows = 0
    for position, file in enumerate(files) if share is None else files_of_share(files, share):
        for batch in _with_made_columns(file, selection):
            n_rows += len(next(iter(batch.values())))
            yield position, batch
    if share is None:
        refuse_empty(files, n_rows)


def refuse_empty(files: Sequence[InputFile], n_rows: int) -> None:
    """Raise `UnreadableInput` for a table without rows."""
    if not n_rows:
        rule = "the file holds no rows" if len(files) == 1 else "none of its files holds a row"
        raise files[0].unreadable(rule, "give a file that holds the table")


def _with_made_columns(file: InputFile, selection: Selection) -> Iterator[Batch]:
    """The batches of one file, with columns in the names of its folders, and of cells from its
    coordinates."""
    cells = {} if file.format is None else file.format.cells
    made = {name: cells[name] for name in selection.required if name in cells}
    sources = [name for cell in made.values() for name in (cell.x, cell.y)]
    wanted = [name for name in (*selection.required, *sources) if name not in made]
    folders = {n: v for n, v in file.folders if n in wanted or selection.with_others}
    own = tuple(dict.fromkeys(name for name in wanted if name not in folders))
    # The file has a column of its own, by which its rows are counted.
    with_others = selection.with_others or (bool(folders) and not own)
    for batch in _batches_of(file, Selection(own, with_others)):
        n = len(next(iter(batch.values())))
        constant = {name: pa.repeat(pa.scalar(v, pa.string()), n) for name, v in folders.items()}
        if file.format is not None:
            constant = clean_columns(file.format, constant)
        whole = {**batch, **constant}
        yield whole | {name: cell.codes(whole) for name, cell in made.items()}


def _batches_of(file: InputFile, selection: Selection) -> Iterator[Batch]:
    """The batches of the columns that a file itself has; it may have no rows."""
    if is_database(file.path):
        yield from _read_database(file, selection)
        return
    with open_binary(file) as stream:
        head = stream.read(len(PARQUET_MAGIC))
        stream.seek(0)
        if not head:
            raise file.unreadable("the file is empty", "give a file that holds the table")
        unpacked = gunzip(file, stream, max(map(len, _FOREIGN)))
        start = unpacked or stream.read(max(map(len, _FOREIGN)))
        stream.seek(0)
        for magic, kind in _FOREIGN.items():
            if start.startswith(magic):
                remedy = "save the table as Parquet or as CSV in UTF-8"
                raise file.unreadable(f"the file is {kind}, which is not read", remedy)
        if head == PARQUET_MAGIC:
            # From a path, Arrow reads with its own threads; a Python stream would slow these down.
            source = stream if is_url(file.path) else file.path
            batches = _read_parquet(file, source, selection)
        elif unpacked.startswith(PARQUET_MAGIC):
            # Parquet is read from its end, so that a gzipped file must be unpacked as a whole.
            batches = _read_parquet(file, BytesIO(gunzip(file, stream)), selection)
        elif file.path.lower().endswith(".parquet"):
            raise _damaged_parquet(file)
        else:
            batches = _read_text(file, stream, selection)
        yield from batches


def _damaged_parquet(file: InputFile) -> Exception:
    return file.unreadable("the Parquet file is truncated or damaged", "write or copy it again")


def _read_parquet(
    file: InputFile, source: ByteStream | str, selection: Selection
) -> Iterator[Batch]:
    try:
        schema = pq.read_schema(source)
    except (pa.ArrowException, OSError):
        raise _damaged_parquet(file) from None
    stored = _stored_columns(file, schema, selection)
    layout = file.columns
    coded = [own for n, own in stored.items() if layout.field(n).kind in ("number", "code")]
    try:
        with pq.ParquetFile(
            source, read_dictionary=coded, page_checksum_verification=True
        ) as parquet:
            wanted = list(stored.values())
            groups = file.row_groups
            for batch in parquet.iter_batches(_BATCH_ROWS, groups, columns=wanted):
                yield _type_columns(file, stored, batch)
    except (pa.ArrowException, OSError):
        raise _damaged_parquet(file) from None


def _read_database(file: InputFile, selection: Selection) -> Iterator[Batch]:
    with _open_database(file) as (ask, source):
        stored = _stored_columns(file, ask(f"SELECT * FROM {source} LIMIT 0").schema, selection)
        columns = ", ".join(map(_quote_name, stored.values()))
        for batch in ask(f"SELECT {columns} FROM {source}"):
            yield _type_columns(file, stored, batch)


def _stored_columns(file: InputFile, schema: pa.Schema, selection: Selection) -> dict[str, str]:
    """The names that a typed table gives to the columns to read, by the requested names."""
    names = [normalize("NFC", name) for name in schema.names]
    # Bytes, times and booleans are read in required columns alone; shapes, for example, are not.
    readable = {
        name
        for name, kind in zip(names, schema.types, strict=True)
        if _is_one_of(kind, _SUPPORTED)
        or (name in selection.required and _is_one_of(kind, _MADE_TEXT))
    }
    columns = [name for name in selection.choose(file, names) if name in readable]
    for name in selection.required:
        if name not in readable:
            kind = schema.types[names.index(name)]
            rule = f"the column {name} is neither integers nor strings but of type {kind}"
            raise file.unreadable(rule, "write it as one of these types", column=name)
    return {name: schema.names[names.index(name)] for name in columns}


def _type_columns(file: InputFile, stored: Mapping[str, str], batch: pa.RecordBatch) -> Batch:
    """The columns of a batch as integers, floats or texts."""
    found = {name: _to_texts(file, name, batch.column(own)) for name, own in stored.items()}
    for name, column in found.items():
        _check_utf8(file, name, column)
    if file.format is None:
        return {name: _to_integers(file, name, column) for name, column in found.items()}
    return clean_columns(file.format, found)


def _to_texts(file: InputFile, name: str, column: pa.Array) -> pa.Array:
    """Convert dates to text such as 2021-03-21, booleans to True and False, bytes to UTF-8 text,
    and small decimals to large ones; any other column is returned unchanged.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        values = _to_texts(file, name, column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, values)
    if pa.types.is_timestamp(kind):
        # Dates are those of the column's time zone.
        is_utc, fault = kind.tz in (None, "UTC"), "holds times of day"
        try:
            local = column.cast(pa.timestamp(kind.unit)) if is_utc else pc.local_timestamp(column)
        except pa.ArrowInvalid:
            local, fault = None, "names a time zone that is not known here"
        days = None if local is None else local.cast(pa.date32(), safe=False)
        if days is None or pc.all(pc.equal(days.cast(local.type), local)).as_py() is False:
            rule = f"the column {name} is of type {kind} and {fault}"
            raise file.unreadable(rule, "write it as days, or as text", column=name)
        return days.cast(pa.string())
    if pa.types.is_date(kind):
        return column.cast(pa.date32()).cast(pa.string())
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):
        # Arrow casts only decimals of 128 bits or more to integers.
        return column.cast(pa.decimal128(38, kind.scale))
    if pa.types.is_boolean(kind):
        return pc.if_else(column, "True", "False")
    if _is_one_of(kind, _BINARY):
        try:
            return column.cast(pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            raise _not_utf8(file, name) from None
    return column


def _to_integers(file: InputFile, name: str, column: pa.Array) -> pa.Array:
    """Convert decimals, the type of numbers in databases, to integers."""
    if not pa.types.is_decimal(column.type):
        return column
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:  # Its message quotes the value.
        rule = f"the column {name} holds decimals that are not integers of up to 18 digits"
        raise file.unreadable(rule, "write it as integers", column=name) from None


def _check_utf8(file: InputFile, name: str, column: pa.Array) -> None:
    """Refuse text that is not UTF-8, since Arrow does not check the text of Parquet files."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raise _not_utf8(file, name) from None


def _not_utf8(file: InputFile, name: str) -> UnreadableInput:
    rule = f"the column {name} holds bytes that are not UTF-8 text"
    return file.unreadable(rule, "write the file again with UTF-8 texts", column=name)


_BINARY = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
)
_MADE_TEXT = (pa.types.is_date, pa.types.is_timestamp, pa.types.is_boolean, *_BINARY)
"""Types of requested columns that become text."""
_SUPPORTED = (
    *(pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    *(pa.types.is_date32, pa.types.is_null),
)


def _is_one_of(kind: pa.DataType, types: Iterable[Callable[[pa.DataType], bool]]) -> bool:
    """Whether a column's values, or those of its dictionary, are of one of some types."""
    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(is_it(values) for is_it in types)


def _read_text(file: InputFile, stream: ByteStream, selection: Selection) -> Iterator[Batch]:
    layout = file.columns
    text = open_text(file, stream)
    start = text.peek()
    if not start.strip():
        raise file.unreadable("the file is empty", "give a file that holds the table")
    if file.format is not None and file.format.places:
        return _read_fixed_width(file, text, selection)
    first_line = start.split(b"\n", 1)[0]
    has_names = any(name.encode() in first_line for name in layout.names)
    declared = file.format.separator if file.format else None
    has_delimiter = any(
        each.encode() in first_line for each in (declared or "", *DELIMITERS) if each
    )
    if has_names or has_delimiter:
        return _read_delimited(file, text, selection)
    if layout.line_length is None:
        rule = f"the first line is not a header with the {layout.column_names} column names"
        raise file.unreadable(rule, f"add that header, separated by {_DELIMITER_NAMES}")
    return _read_fixed_width(file, text, selection)


def _header(
    file: InputFile, text: BufferedReader[TextStream], layout: TableLayout
) -> tuple[str, list[str]]:
    """The delimiter and the column names of the first line."""
    line = normalize("NFC", _read_line(text))
    declared = file.format.separator if file.format else None
    headers = {
        delimiter: [name.strip().strip('"').strip() for name in line.split(delimiter)]
        for delimiter in ([declared] if declared else DELIMITERS)
    }
    known = set(layout.names)
    delimiter = max(headers, key=lambda each: len(known.intersection(headers[each])))
    if len(headers[delimiter]) < 2 or not known.intersection(headers[delimiter]):
        raise file.unreadable(
            f"the header is not the {layout.column_names} column names separated by "
            f"{_DELIMITER_NAMES if declared is None else SEPARATORS.get(declared, repr(declared))}",
            "write the column names on the first line, separated like the rows",
        )
    return delimiter, headers[delimiter]


def _read_line(text: BufferedReader[TextStream]) -> str:
    """The next line of at most a megabyte, without its end."""
    return text.readline(1 << 20).rstrip(b"\n").decode("utf-8", "replace")


def _read_delimited(
    file: InputFile, text: BufferedReader[TextStream], selection: Selection
) -> Iterator[Batch]:
    layout = file.columns
    delimiter, names = _header(file, text, layout)
    columns = selection.choose(file, names)
    if not text.peek():
        return
    n_ragged = 0

    def skip_ragged(_row: pacsv.InvalidRow) -> str:
        nonlocal n_ragged
        n_ragged += 1
        return "skip"

    # Arrow needs distinct names, but columns that are not read may have none, or the same.
    unique_names = [name if name in columns else f"unread {at}" for at, name in enumerate(names)]
    kinds = {name: layout.field(name).kind for name in columns}
    types = {n: pa.string() if kind == "key" else _CODED_TEXT for n, kind in kinds.items()}
    n_rows = 0
    try:
        reader = pacsv.open_csv(
            text,
            pacsv.ReadOptions(column_names=unique_names, block_size=_BLOCK_BYTES),
            pacsv.ParseOptions(delimiter=delimiter, invalid_row_handler=skip_ragged),
            pacsv.ConvertOptions(include_columns=columns, column_types=types, check_utf8=False),
        )
        for batch in reader:
            n_rows += batch.num_rows
            found = {name: batch.column(name) for name in columns}
            yield found if file.format is None else clean_columns(file.format, found, delimiter)
    except pa.ArrowException:
        rule = "the rows are not delimited text under the header"
        raise file.unreadable(rule, "write the file again as plain delimited text") from None
    if n_ragged:
        rule = "every row must have as many fields as the header, separated by the same character"
        raise file.unreadable(rule, "correct the rows or the header", count=n_ragged)
    if n_rows != text.raw.lines - 1:
        raise file.unreadable(
            "every row must be one line, but a quoted field runs over a line's end",
            "remove the line ends inside fields, and quotation marks that are not closed",
        )


def _read_fixed_width(
    file: InputFile, text: BufferedReader[TextStream], selection: Selection
) -> Iterator[Batch]:
    layout = file.columns
    line_length = layout.line_length
    assert line_length is not None, "a layout without a line length is delimited"
    placed = [field.name for field in layout.fields if field.place]
    columns = selection.choose(file, placed)
    wrong_length = (
        f"every line must have {line_length} characters in the fixed-width CEF layout",
        "correct these lines, or give delimited text with a header of CEF column names",
    )
    not_ascii = "a fixed-width CEF file has digits, letters and spaces only; write it again"
    if file.format is not None:
        wrong_length = (
            f"every line must have {line_length} characters",
            f"correct these lines, or {file.format.key}.columns and line_length",
        )
        not_ascii = "write the table as delimited text, or as Parquet"
    n_wrong = 0
    rest = b""
    at_end = False
    while not at_end:
        chunk = text.read(_BLOCK_BYTES)
        at_end = not chunk
        data = rest + (chunk or (b"\n" if rest else b""))
        if not data.isascii():
            raise file.unreadable("the file holds characters that are not ASCII", not_ascii)
        cut = data.rfind(b"\n") + 1
        if not cut and len(data) > _BLOCK_BYTES:
            raise file.unreadable(*wrong_length)
        rest = data[cut:]
        characters = np.frombuffer(data, dtype=np.uint8, count=cut)
        ends = np.flatnonzero(characters == ord("\n"))
        n_wrong += int((np.diff(ends, prepend=-1) != line_length + 1).sum())
        if cut and not n_wrong:
            lines = characters.reshape(-1, line_length + 1)
            found = {name: _slice(lines, layout, name) for name in columns}
            yield found if file.format is None else clean_columns(file.format, found)
    if n_wrong:
        raise file.unreadable(*wrong_length, count=n_wrong)


def _slice(lines: np.ndarray, layout: TableLayout, name: str) -> pa.Array:
    """One column, as strings, of lines with their ends as bytes `(n_lines, line_length + 1)`."""
    entry = layout.field(name)
    assert entry.place is not None, "only columns with a place are selected"
    start, end = entry.place
    characters = np.ascontiguousarray(lines[:, start:end])
    values = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(end - start), len(characters), [None, pa.py_buffer(characters)]
    )
    if entry.kind == "key":
        return values.cast(pa.string())
    coded = values.dictionary_encode()
    return pa.DictionaryArray.from_arrays(coded.indices, coded.dictionary.cast(pa.string()))


PROTOCOLS = ("postgresql", "duckdb")
_QUERY = re.compile(r"\s*(select|with)\b", re.IGNORECASE)


def is_database(path: str) -> bool:
    """Whether a path is the address of a table of a database."""
    return path.partition("://")[0] in PROTOCOLS


Ask = Callable[[str], pa.RecordBatchReader]
"""The rows of an SQL statement, in the database's order."""


@contextmanager
def _open_database(file: InputFile) -> Iterator[tuple[Ask, str]]:
    """In the block, the database of an address is open: what asks it, and the operand of FROM for
    the table or query of the address.

    Raises UnreadableInput for an address of another form, a driver that is not installed, a
    database that cannot be reached, and a statement that it refuses.
    """
    address, _, asked = file.path.partition("#")
    if not asked:
        rule = "the address of a database names no table"
        raise file.unreadable(rule, "add one after '#', as in postgresql://host/database#persons")
    is_query = _QUERY.match(asked) is not None
    names = [_quote_name(name) for name in asked.split(".")]
    source = f"({asked.rstrip('; ')}) AS asked" if is_query else ".".join(names)
    protocol = address.partition("://")[0]
    with ExitStack() as opened, _refuse_driver_errors(file, protocol):
        connect = _postgresql if protocol == "postgresql" else _duckdb
        yield connect(address, opened), source


def _quote_name(name: str) -> str:
    """A name as SQL spells it, capitals and all."""
    return '"{}"'.format(name.replace('"', '""'))


def _postgresql(address: str, opened: ExitStack) -> Ask:
    from adbc_driver_postgresql import dbapi

    connection = opened.enter_context(closing(dbapi.connect(address)))

    def ask(statement: str) -> pa.RecordBatchReader:
        cursor = opened.enter_context(closing(connection.cursor()))
        cursor.execute(statement)
        return cursor.fetch_record_batch()

    return ask


def _duckdb(address: str, opened: ExitStack) -> Ask:
    import duckdb

    connection = opened.enter_context(closing(duckdb.connect(urlsplit(address).path, True)))

    def ask(statement: str) -> pa.RecordBatchReader:
        return connection.cursor().sql(statement).to_arrow_reader(_BATCH_ROWS)

    return ask


@contextmanager
def _refuse_driver_errors(file: InputFile, protocol: str) -> Iterator[None]:
    """Turn a driver's errors into refusals; their text may quote values, and the address."""
    try:
        yield
    except ImportError:
        rule, extra = f"nothing here reads {protocol} addresses", protocol
        raise file.unreadable(rule, f"install spineflow[{extra}]") from None
    except Exception as error:
        if not type(error).__module__.partition(".")[0].startswith(("adbc", "duckdb", "_duckdb")):
            raise
        raise file.unreadable(
            f"the database did not give the table ({_error_kind(error)})",
            f"correct the address input.{file.table}, the name of the table or the query, or the "
            "user and password in the environment",
        ) from None


def _error_kind(error: Any) -> str:
    """The name of an error, and its code where SQL has one."""
    code = getattr(error, "sqlstate", None)
    return f"{type(error).__name__} {code}" if code else type(error).__name__

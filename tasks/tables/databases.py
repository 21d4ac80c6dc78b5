"""Tables and queries of databases: PostgreSQL through ADBC, and files of DuckDB.

An address consists of the database and, after `#`, the name of a table or a query:

    postgresql://db.office.example/census#public.persons
    duckdb:///data/census.duckdb#SELECT * FROM persons WHERE year = 2020

PostgreSQL takes user and password from the environment of its own clients: PGUSER, PGPASSFILE,
PGSERVICE. Rows come as a stream of Arrow batches, so that a table need not fit into memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from .sources import InputFile

PROTOCOLS = ("postgresql", "duckdb")
ROWS_OF_BATCH = 1 << 20
_QUERY = re.compile(r"\s*(select|with)\b", re.IGNORECASE)


def is_database(path: str) -> bool:
    """Whether a path is the address of a table of a database."""
    return path.partition("://")[0] in PROTOCOLS


@dataclass(frozen=True, eq=False)
class DatabaseTable:
    """A table or query of a database that is open.

    ask : the rows of a statement.
    source : the operand of FROM.
    """

    ask: Callable[[str], pa.RecordBatchReader]
    source: str

    def schema(self) -> pa.Schema:
        """The columns and their types."""
        return self.ask(f"SELECT * FROM {self.source} LIMIT 0").schema

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of some columns, in the database's order."""
        yield from self.ask(f"SELECT {', '.join(map(_quote_name, columns))} FROM {self.source}")


@contextmanager
def open_table(file: InputFile) -> Iterator[DatabaseTable]:
    """In the block, the table of an address is open for reading.

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
        yield DatabaseTable(connect(address, opened), source)


def _quote_name(name: str) -> str:
    """A name as SQL spells it, capitals and all."""
    return '"{}"'.format(name.replace('"', '""'))


def _postgresql(address: str, opened: ExitStack) -> Callable[[str], pa.RecordBatchReader]:
    from adbc_driver_postgresql import dbapi

    connection = opened.enter_context(closing(dbapi.connect(address)))

    def ask(statement: str) -> pa.RecordBatchReader:
        cursor = opened.enter_context(closing(connection.cursor()))
        cursor.execute(statement)
        return cursor.fetch_record_batch()

    return ask


def _duckdb(address: str, opened: ExitStack) -> Callable[[str], pa.RecordBatchReader]:
    import duckdb

    connection = opened.enter_context(closing(duckdb.connect(urlsplit(address).path, True)))

    def ask(statement: str) -> pa.RecordBatchReader:
        return connection.cursor().sql(statement).to_arrow_reader(ROWS_OF_BATCH)

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
            f"the database did not give the table ({_kind(error)})",
            f"correct the address input.{file.table}, the name of the table or the query, or the "
            "user and password in the environment",
        ) from None


def _kind(error: Any) -> str:
    """The name of an error, and its code where SQL has one."""
    code = getattr(error, "sqlstate", None)
    return f"{type(error).__name__} {code}" if code else type(error).__name__

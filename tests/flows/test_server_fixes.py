"""The corrections of Prefect's server: each test fails once its correction is needless."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

COLLECTS = """
import gc, threading, time
from spineflow.flows import server_fixes
server_fixes.SECONDS_BETWEEN_COLLECTIONS = 0.01
server_fixes.collect_garbage_in_a_thread()
collected_in = []
class InACycle:
    def __init__(self):
        self.itself = self
    def __del__(self):
        collected_in.append(threading.get_ident())
while not collected_in:
    [InACycle() for _ in range(1000)]
    time.sleep(0.01)
print(gc.isenabled(), threading.get_ident() in collected_in)
"""


@pytest.mark.slow
def test_garbage_is_not_collected_where_requests_are_answered() -> None:
    asked = [sys.executable, "-c", COLLECTS]
    told = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout == "False False\n"


def test_cursors_wait_for_their_connection_when_they_are_finalised(tmp_path: Path) -> None:
    """Where they do not, `collect_garbage_in_a_thread` is needless."""
    name, waited = tmp_path / "server.db", 0.0
    options: dict[str, Any] = {"isolation_level": None, "check_same_thread": False}
    with (
        closing(sqlite3.connect(name, **options)) as other,
        closing(sqlite3.connect(name, timeout=2, **options)) as own,
    ):
        other.execute("PRAGMA journal_mode = WAL")
        garbage = [own.execute("SELECT 1") for _ in range(1000)]
        other.execute("BEGIN IMMEDIATE")

        def wait_for_the_database() -> None:
            # A cursor that is finalised meanwhile can clear the error before it is asked for.
            with suppress(sqlite3.OperationalError):
                own.execute("BEGIN IMMEDIATE")

        request = Thread(target=wait_for_the_database)
        request.start()
        while request.is_alive():
            begun = time.monotonic()
            garbage.pop()
            waited = max(waited, time.monotonic() - begun)
            time.sleep(0.01)
    assert waited > 0.5


def test_requests_that_fail_leave_their_cursors_to_the_collector(tmp_path: Path) -> None:
    """Where Prefect closes them all, `collect_garbage_in_a_thread` is needless."""
    # Few need the server in their own process, which it takes long to import.
    from prefect.server.database.configurations import AioSqliteConfiguration
    from sqlalchemy import text
    from sqlalchemy.exc import OperationalError

    async def fail() -> None:
        configuration = AioSqliteConfiguration(f"sqlite+aiosqlite:///{tmp_path / 'server.db'}")
        engine = await configuration.engine()
        session = await configuration.session(engine)
        with pytest.raises(OperationalError, match="no such table"):
            async with session, configuration.begin_transaction(session):
                await session.execute(text("SELECT * FROM run"))

    def n_cursors() -> int:
        return sum(isinstance(one, sqlite3.Cursor) for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = n_cursors()
        asyncio.run(fail())
        left = n_cursors()
        gc.collect()
        assert n_cursors() == before < left
    finally:
        gc.enable()


@pytest.mark.parametrize("at_once", [True, False])
def test_what_has_read_may_write_though_another_wrote_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """Prefect's own transactions are refused; where they wait, the correction is needless."""
    from prefect.server.database.configurations import AioSqliteConfiguration
    from spineflow.flows import server_fixes
    from sqlalchemy import text
    from sqlalchemy.exc import OperationalError

    monkeypatch.setattr(
        AioSqliteConfiguration, "begin_transaction", AioSqliteConfiguration.begin_transaction
    )
    if at_once:
        server_fixes.begin_transactions_immediately()

    async def read_and_write() -> None:
        configuration = AioSqliteConfiguration(f"sqlite+aiosqlite:///{tmp_path / 'server.db'}")
        engine = await configuration.engine()

        async def write(first: str, pause: float) -> None:
            session = await configuration.session(engine)
            async with session, configuration.begin_transaction(session):
                await session.execute(text(first))
                await asyncio.sleep(pause)
                await session.execute(text("INSERT INTO run VALUES (1)"))

        await write("CREATE TABLE run (number INTEGER)", 0.0)
        slow = asyncio.create_task(write("SELECT count(*) FROM run", 0.5))
        await asyncio.sleep(0.2)
        await asyncio.gather(slow, write("SELECT 1", 0.0))

    if at_once:
        asyncio.run(read_and_write())
    else:
        with pytest.raises(OperationalError, match="database is locked"):
            asyncio.run(read_and_write())

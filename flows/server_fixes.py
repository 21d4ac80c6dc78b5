"""Corrections of Prefect's server on SQLite, without which a busy run loses its server.

Each has the upstream report, and a test that fails once Prefect or SQLAlchemy no longer needs it.
A server on PostgreSQL does not need them.
"""

from __future__ import annotations

import gc
import itertools
import threading
import time
from contextlib import AbstractAsyncContextManager

from prefect.server.database.configurations import AioSqliteConfiguration
from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction

SECONDS_BETWEEN_COLLECTIONS = 1.0
COLLECTIONS_UNTIL_ALL = 60
"""Every so many collections also look at the oldest objects, which takes a tenth of a second."""


def apply() -> None:
    """Apply all corrections to the server of this process, before it serves."""
    begin_transactions_immediately()
    collect_garbage_in_a_thread()


def begin_transactions_immediately() -> None:
    """Begin every transaction with BEGIN IMMEDIATE.

    Prefect begins with BEGIN DEFERRED and reads first. Where another connection has written since,
    SQLite refuses the first write with "database is locked" at once, despite its timeout
    (https://github.com/PrefectHQ/prefect/issues/10188).
    """
    begin_deferred = AioSqliteConfiguration.begin_transaction

    def begin_transaction(
        self: AioSqliteConfiguration, session: AsyncSession, with_for_update: bool = False
    ) -> AbstractAsyncContextManager[AsyncSessionTransaction]:
        return begin_deferred(self, session, with_for_update=True)

    AioSqliteConfiguration.begin_transaction = begin_transaction  # type: ignore[assignment,method-assign]


def collect_garbage_in_a_thread() -> None:
    """Collect garbage in a thread instead of the event loop.

    Failed requests leave cursors in reference cycles. Finalising one waits for the mutex of its
    connection, which a transaction that waits for the database holds, up to a minute; in the event
    loop that stops the transaction that it waits for (a relative of
    https://github.com/PrefectHQ/prefect/issues/23055).
    """
    gc.disable()
    threading.Thread(target=_collect, name="garbage", daemon=True).start()


def _collect() -> None:
    for number in itertools.count(1):
        time.sleep(SECONDS_BETWEEN_COLLECTIONS)
        gc.collect(1 if number % COLLECTIONS_UNTIL_ALL else 2)

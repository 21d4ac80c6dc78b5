"""The process of the Prefect server that a command starts for its own runs.

It serves at a socket that the command has opened already, so that a client's first request waits
until the server is there instead of failing. It ends with the command, however that ends: the
command holds the other end of its standard input.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from contextlib import AbstractAsyncContextManager
from typing import Any

import uvicorn
from fastapi import APIRouter
from prefect.server.database.configurations import AioSqliteConfiguration
from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction

ASKED_FIRST = (
    "/admin",
    "/csrf-token",
    "/logs",
    "/artifacts",
    "/flows",
    "/events",
    "/flow_runs",
    "/task_runs",
)
"""Prefixes of what a run asks for, the smallest first: FastAPI tries the paths of one group after
the other, and makes ready all of a group when it first does."""

SECONDS_BETWEEN_COLLECTIONS = 1.0
COLLECTIONS_UNTIL_ALL = 30
"""Of so many collections of garbage one looks at the oldest objects too."""


def main(socket_number: int) -> None:
    """Serve Prefect's API at an inherited, listening socket until standard input is closed."""
    from prefect.server.api import server  # Takes seconds, and nothing of it is ever garbage.

    gc.freeze()
    if hasattr(server, "API_ROUTERS"):
        routers: Any = sorted(server.API_ROUTERS, key=_place)
        server.API_ROUTERS = tuple(routers)
    collect_garbage_aside()
    begin_writing_at_once()
    threading.Thread(target=_end_with_the_command, daemon=True).start()
    uvicorn.run(
        f"{server.__name__}:create_app",
        factory=True,
        fd=socket_number,
        log_level="error",
        lifespan="on",
    )


def _place(router: APIRouter) -> int:
    """Where a group of paths is tried; no path is in two groups."""
    prefix = router.prefix
    return ASKED_FIRST.index(prefix) if prefix in ASKED_FIRST else len(ASKED_FIRST)


def collect_garbage_aside() -> None:
    """From now on, collect this process's garbage in a thread of its own.

    Among the garbage of a server on SQLite are cursors, which wait for their connection when they
    are finalised. Another request may use that connection by then, and wait for the database until
    a third commits, for which the event loop must run. Where Python collects garbage in the event
    loop, as it does by itself, all three wait until SQLite gives up: the server does not answer for
    a minute.
    """
    gc.disable()
    threading.Thread(target=_collect_garbage, daemon=True).start()


def begin_writing_at_once() -> None:
    """From now on, have this process's transactions on SQLite wait for their turn to write when
    they begin.

    As the server begins them they read first. Where another has written since, SQLite refuses their
    first write at once, which no waiting mends; beside several busy runs that is the rule, and a
    client has soon used up its retries.
    """
    begun = AioSqliteConfiguration.begin_transaction

    def begin_transaction(
        self: AioSqliteConfiguration, session: AsyncSession, with_for_update: bool = False
    ) -> AbstractAsyncContextManager[AsyncSessionTransaction]:
        return begun(self, session, with_for_update=True)

    AioSqliteConfiguration.begin_transaction = begin_transaction  # type: ignore[assignment,method-assign]


def _collect_garbage() -> None:
    n_collections = 0
    while True:
        time.sleep(SECONDS_BETWEEN_COLLECTIONS)
        n_collections += 1
        gc.collect(1 if n_collections % COLLECTIONS_UNTIL_ALL else 2)


def _end_with_the_command() -> None:
    # Not by `sys.stdin`, whose lock this thread would hold: Python aborts over that at its end.
    while os.read(sys.stdin.fileno(), 1):
        continue
    os.kill(os.getpid(), signal.SIGTERM)

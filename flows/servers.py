"""The Prefect server that a command's runs report to: a configured one, or the command's own.

The latter takes seconds to start: it starts while the command imports modules and reads its
settings, in a process that runs this module. It serves at a socket that the command has opened
already, so that a client's first request waits for it instead of failing. It ends with the command,
however that ends: the command has the other end of its standard input.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import httpx
from prefect.context import refresh_global_settings_context
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_CLIENT_MAX_RETRIES,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    PREFECT_SERVER_API_HOST,
    PREFECT_SERVER_API_PORT,
    PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS,
    get_current_settings,
    temporary_settings,
)
from prefect.utilities.urls import url_for

OWN_SERVER = "SPINEFLOW_OWN_SERVER"
"""Variable of the environment with the address of the command's own server, for its workers."""

WITHOUT_EVENTS = {
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
    "PREFECT_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "64",
}
"""Environment of a server that keeps states of runs and tasks, but no other events: it has no
automations, and its feed of events has no reader. Nor does it register types of blocks. States of
tasks are written together every five seconds, and at its end."""

TOO_BUSY = 503
"""The status with which a server answers whose database is locked."""

RETRIES = 7
"""Retries of a request to an office's server that does not answer: after 2, 4, 8, … seconds,
four minutes in all, enough for a restart. Prefect alone gives up after
one. Set PREFECT_CLIENT_MAX_RETRIES to another number to wait longer, or less."""

SECONDS_TO_END = 5.0
"""A command's own server that takes longer to end is killed."""


class Server:
    """The server that runs report to: the address of its API, and its process if the command's own.

    The command's own server has a socket that accepts requests before the server answers them.
    """

    def __init__(self, address: str, listening: socket.socket | None = None) -> None:
        self.address = address
        self._listening = listening
        self.process: subprocess.Popen[bytes] | None = None
        self._is_waited_for = False

    def begin(self) -> None:
        """Start a command's own server."""
        if self._listening is None or self.process is not None:
            return
        number = self._listening.fileno()
        environment = {
            **WITHOUT_EVENTS,
            **os.environ,
            **get_current_settings().to_environment_variables(exclude_unset=True),
            "PREFECT_UI_ENABLED": "0",
            # As in the servers that Prefect starts itself.
            "PREFECT__SERVER_EPHEMERAL": "1",
            "PREFECT__SERVER_FINAL": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__package__}.servers", str(number)],
            pass_fds=[number],
            stdin=subprocess.PIPE,  # Closed with this process, for which the server waits.
            start_new_session=True,  # Ctrl-C at the keyboard is the command's to handle.
            env=environment,
        )
        # If it dies, requests fail at once.
        self._listening.close()

    def wait(self) -> None:
        """Wait until the command's own server answers; raises httpx.HTTPError if it does not start.

        From now on it ends with this process, after Prefect has sent its last states.
        """
        self.begin()
        if self.process is None:
            return
        if not self._is_waited_for:
            self._is_waited_for = True
            atexit.register(self._end)
        patience = PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS.value()
        httpx.get(f"{self.address}/health", trust_env=False, timeout=patience).raise_for_status()

    def stop(self) -> None:
        """End a command's own server that was never waited for."""
        if self._listening is not None:
            self._listening.close()
        if not self._is_waited_for:
            self._end()

    def _end(self) -> None:
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def server_for_runs() -> Iterator[Server]:
    """In the block, runs report to the configured server, or to the command's own.

    The command's own does not serve yet: see `Server.begin` and `Server.wait`. Requests to another
    server are retried if it goes away; the command's own is not restarted.
    """
    address = PREFECT_API_URL.value()
    if address is not None:
        further = {} if is_embedded() else _patience()
        with temporary_settings(further) if further else nullcontext():
            yield Server(address)
        return
    listening = socket.create_server(("127.0.0.1", 0))
    server = Server(f"http://127.0.0.1:{listening.getsockname()[1]}/api", listening)
    environment = {PREFECT_API_URL.name: server.address, OWN_SERVER: server.address}
    os.environ.update(environment)
    # For threads that Prefect starts without the present settings, such as the one that
    # forwards logs of worker processes: they would start a server of their own.
    refresh_global_settings_context()
    try:
        # The command's own server ignores heartbeats, and Prefect waits a second for their end.
        unwatched = {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}
        with temporary_settings({PREFECT_API_URL: server.address, **unwatched}):
            yield server
    finally:
        for name in environment:
            os.environ.pop(name, None)
        refresh_global_settings_context()
        server.stop()


def _patience() -> dict[Any, int]:
    """Settings with which Prefect waits for a server of the office; empty where they are set."""
    is_set = "max_retries" in get_current_settings().client.model_fields_set
    return {} if is_set else {PREFECT_CLIENT_MAX_RETRIES: RETRIES}


def address_of(flow_run_id: str) -> str:
    """Address of a flow run in the UI.

    The embedded server keeps its runs where `prefect server start` shows them later.
    """
    there = f"http://{PREFECT_SERVER_API_HOST.value()}:{PREFECT_SERVER_API_PORT.value()}"
    lasting = None if is_embedded() else PREFECT_API_URL.value()
    with temporary_settings({PREFECT_API_URL: lasting}):
        return str(url_for("flow-run", obj_id=flow_run_id, default_base_url=there))


def too_busy(error: Exception) -> str | None:
    """Message for a server that was too busy to answer; None for another error.

    A server that is refused by its own database answers 503. Prefect retries for minutes
    (PREFECT_CLIENT_MAX_RETRIES) before it raises that, as the cause of another error where it
    compares versions.
    """
    answered = (error, error.__cause__)
    if not any(
        isinstance(one, httpx.HTTPStatusError) and one.response.status_code == TOO_BUSY
        for one in answered
    ):
        return None
    server = "Prefect's embedded server" if is_embedded() else "The Prefect server"
    return (
        f"{server} was too busy to answer ({TOO_BUSY}); SQLite, its database, does for one run at "
        "a time: start runs one after the other, or give a server for all of them PostgreSQL "
        "(PREFECT_API_DATABASE_CONNECTION_URL)"
    )


def is_embedded() -> bool:
    """Whether runs report to a server that ends with this process and is never watched."""
    address = PREFECT_API_URL.value()
    return address is None or address == os.environ.get(OWN_SERVER)


def serve_runs(socket_number: int) -> None:
    """Serve Prefect's API at an inherited, listening socket until standard input is closed."""
    import uvicorn

    from . import server_fixes  # Which imports the whole server.

    server_fixes.apply()
    threading.Thread(target=_end_with_the_command, daemon=True).start()
    uvicorn.run(
        "prefect.server.api.server:create_app",
        factory=True,
        fd=socket_number,
        log_level="error",
        lifespan="on",
    )


def _end_with_the_command() -> None:
    # Not by `sys.stdin`, whose lock this thread would keep: Python aborts at its end for that.
    while os.read(0, 1):
        continue
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    serve_runs(int(sys.argv[1]))

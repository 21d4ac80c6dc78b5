"""Servers of their own that tests start: processes that end with a block, PostgreSQL."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE = 600.0

INITDB = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
"""What makes a database, where Debian's postgresql is here."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running(
    command: list[str], environment: dict[str, str], log: Path, end: int = signal.SIGKILL
) -> Iterator[None]:
    """A process that is ended by a signal, children and all, when the block ends.

    By default at once: a worker and a server that are asked to stop take half a minute.
    """
    with log.open("w") as stream:
        process = subprocess.Popen(
            command, env=environment, stdout=stream, stderr=stream, start_new_session=True
        )
        try:
            yield
        finally:
            os.killpg(process.pid, end)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(1.0)


def asked(url: str, body: dict | None = None) -> Any:
    """JSON answer of the server; None while it does not answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read() or "true")
    except OSError:
        return None


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """User, host, port and database of a PostgreSQL server on a free port of this machine."""
    binary = INITDB[-1].parent
    # The server refuses to run as root; Debian's package brings a user for it.
    as_owner = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    data, port = folder / "data", free_port()
    folder.mkdir()
    if as_owner:
        # pytest's folders are closed to other users.
        for above in (folder, *folder.parents):
            if not above.stat().st_mode & 0o001:
                above.chmod(0o755)
        shutil.chown(folder, "postgres")
    initialise = [binary / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--no-sync"]
    subprocess.run([*as_owner, *initialise], check=True, capture_output=True)
    server = [binary / "postgres", "-D", data, "-p", str(port), "-k", folder, "-c", "fsync=off"]
    command, log = [*as_owner, *map(str, server)], folder.parent / "postgres.log"
    with running(command, dict(os.environ), log, signal.SIGTERM):
        ready = [str(binary / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        wait_until(lambda: subprocess.run(ready).returncode == 0, "PostgreSQL")
        yield f"postgres@127.0.0.1:{port}/postgres"

"""Forks of a command's own process, which share what it has imported page by page.

Only the command itself forks, and only while it has no threads but the idle one that listens for
signals: a fork has none of the threads, and whatever one of them held would be held for ever.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import Context
from multiprocessing import connection
from pathlib import Path

from .interruption import LISTENER

DESCRIPTORS = Path("/proc/self/fd")

_is_allowed = False


def allow() -> None:
    """Say that this process is a command's own, which nobody else has put anything in."""
    global _is_allowed
    _is_allowed = True


def can_fork() -> bool:
    """Whether a fork would have all that this process has: no thread holds anything."""
    threads = {thread.name for thread in threading.enumerate()} - {LISTENER}
    return (
        _is_allowed
        and sys.platform == "linux"
        and threads == {threading.main_thread().name}
        and threading.current_thread() is threading.main_thread()
    )


class Forked:
    """A fork of this process, to be ended and waited for as a process of `subprocess`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)
        self._has_ended = False

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> None:
        """Wait for its end; raises subprocess.TimeoutExpired if that takes longer."""
        if self._has_ended:
            return
        if not select.select([self._descriptor], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("fork", timeout or 0.0)
        self._has_ended = True
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        os.close(self._descriptor)

    def _send(self, number: int) -> None:
        if not self._has_ended:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)


def forked(
    serve: Callable[[], object],
    *,
    kept: Collection[int | None],
    environment: Mapping[str, str] | None = None,
    stdin: int | None = None,
) -> Forked:
    """Fork this process; the fork calls `serve` and ends, without what is done at a command's end.

    It has none of the open files but those `kept`, what `environment` adds to this one's, and a
    descriptor as its standard input.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
    pid = os.fork()
    if pid:
        return Forked(pid)
    code = 1
    try:
        # What the command does at a signal is not for its forks.
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if stdin is not None:
            os.dup2(stdin, 0)
        _let_go(kept)
        os.environ.update(environment or {})
        Context().run(serve)  # What is set for the command alone is not for them either.
        code = 0
    except SystemExit:
        code = 0
    finally:
        os._exit(code)


@contextmanager
def listening() -> Iterator[tuple[socket.socket, str]]:
    """A socket for a fork to answer at, which nobody but this user reaches, and its address."""
    with socket.socket(socket.AF_UNIX) as listener:
        address = connection.arbitrary_address("AF_UNIX")  # type: ignore[attr-defined]
        listener.bind(address)
        os.chmod(address, 0o600)
        listener.listen()
        yield listener, address


def _let_go(kept: Collection[int | None]) -> None:
    """Let go of the command's open files, whose ends others wait for; their numbers stay taken, so
    that whoever closes one later closes nothing else."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in [int(entry.name) for entry in DESCRIPTORS.iterdir()]:
        if number > 2 and number != nothing and number not in kept:
            with suppress(OSError):
                os.fstat(number)
                os.dup2(nothing, number)

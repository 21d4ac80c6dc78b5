"""The process that a command's workers are forked from, with all that it has imported.

It is a fork of the command itself, made when the command has imported the flow and has no threads
yet but the idle one that listens for signals: what it holds is shared, page by page, with every
worker, and none imports anything again. While the command waits for its Prefect server, it imports
what the first stages need and loads the kernels. From there on it is the fork server of Python's
`multiprocessing`: it has one thread, forks a worker when asked, and ends once the command and all
workers have. Elsewhere, as in a notebook, in a deployment's process or where other threads run
already, there is none.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import connection, forkserver, resource_tracker
from pathlib import Path
from typing import Any

from .interruption import LISTENER

DESCRIPTORS = Path("/proc/self/fd")

_may_fork = False

_process: int | None = None
"""The fork of this process that its workers are forked from."""


def allow() -> None:
    """Say that this process is a command's own, which nobody else has put anything in."""
    global _may_fork
    _may_fork = True


def is_there() -> bool:
    """Whether workers of this process can be forked from a fork of it.

    A fork server that somebody else has begun has imported nothing.
    """
    return _process is not None and _python_s()._forkserver_pid == _process


def begin(prepare: Callable[[], None]) -> bool:
    """Fork the process that workers come from, if this one can be forked; whether it is there.

    `prepare` is called in it before the first worker is forked.
    """
    global _process
    if is_there():
        return True
    if not _may_fork or not _can_fork():
        return False
    tracker = resource_tracker.getfd()  # Begun by this process, which workers tell of semaphores.
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
    server = _python_s()
    with socket.socket(socket.AF_UNIX) as listener:
        address = connection.arbitrary_address("AF_UNIX")  # type: ignore[attr-defined]
        listener.bind(address)
        os.chmod(address, 0o600)
        listener.listen()
        alive_reading, alive_writing = os.pipe()
        process = os.fork()
        if process == 0:
            _serve(listener.fileno(), alive_reading, tracker, prepare)
        os.close(alive_reading)
    server._forkserver_address = address
    server._forkserver_alive_fd = alive_writing
    server._forkserver_pid = _process = process
    return True


def _python_s() -> Any:
    """What Python knows of the fork server of this process."""
    return forkserver._forkserver


def _can_fork() -> bool:
    """Whether a fork would have all that this process has: no thread holds anything."""
    threads = {thread.name for thread in threading.enumerate()} - {LISTENER}
    return (
        sys.platform == "linux"
        and _python_s()._forkserver_pid is None
        and sys.version_info < (3, 14)  # From there on, who asks shows a key.
        and threads == {threading.main_thread().name}
        and threading.current_thread() is threading.main_thread()
    )


def _serve(listening: int, alive: int, tracker: int | None, prepare: Callable[[], None]) -> None:
    """Be the fork server; never returns."""
    code = 1
    try:
        # What the command does at a signal is not for its workers, and Ctrl-C reaches them too.
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _let_go({listening, alive, tracker})
        with suppress(Exception):  # A worker that needs what failed says why.
            prepare()
        gc.collect()
        gc.freeze()  # Or a worker's collector would copy every page that it looks at.
        forkserver.main(listening, alive, [])
    except SystemExit:
        code = 0
    finally:
        os._exit(code)


def _let_go(kept: set[int | None]) -> None:
    """Let go of the command's open files, whose ends others wait for; their numbers stay taken, so
    that whoever closes one later closes nothing else."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in [int(entry.name) for entry in DESCRIPTORS.iterdir()]:
        if number > 2 and number != nothing and number not in kept:
            with suppress(OSError):
                os.fstat(number)
                os.dup2(nothing, number)

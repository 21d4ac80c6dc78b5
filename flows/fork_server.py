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
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import forkserver, resource_tracker
from typing import Any

from . import forking

_process: int | None = None
"""The fork of this process that its workers are forked from."""


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
    if not _can_fork():
        return False
    tracker = resource_tracker.getfd()  # Begun by this process, which workers tell of semaphores.
    server = _python_s()
    with forking.listening() as (listener, address):
        alive_reading, alive_writing = os.pipe()
        serve = partial(_serve, listener.fileno(), alive_reading, prepare)
        process = forking.forked(serve, kept={listener.fileno(), alive_reading, tracker}).pid
        os.close(alive_reading)
    server._forkserver_address = address
    server._forkserver_alive_fd = alive_writing
    server._forkserver_pid = _process = process
    return True


def _python_s() -> Any:
    """What Python knows of the fork server of this process."""
    return forkserver._forkserver


def _can_fork() -> bool:
    """Whether this process can be forked, and its fork be Python's fork server."""
    return (
        forking.can_fork()
        and _python_s()._forkserver_pid is None
        and sys.version_info < (3, 14)  # From there on, who asks shows a key.
    )


def _serve(listening: int, alive: int, prepare: Callable[[], None]) -> None:
    """Be the fork server, until the command and all workers have ended."""
    # Ctrl-C reaches the workers too, and is the command's to answer.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # What is imported stays.
    with suppress(Exception):  # A worker that needs what failed says why.
        prepare()
    gc.freeze()  # Or a worker's collector would copy every page that it looks at.
    gc.enable()
    # `prepare` may have forked what ends before this does, and is no worker of Python's.
    warnings.filterwarnings("ignore", "forkserver: waitpid returned unexpected pid")
    forkserver.main(listening, alive, [])

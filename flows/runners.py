"""Task runners by setting: the same DAG on threads, processes or Dask."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from prefect.task_runners import ProcessPoolTaskRunner, TaskRunner, ThreadPoolTaskRunner

from ..tasks.runs.settings import RunnerSettings

DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
"""Setup of a Dask worker: Ctrl-C, which reaches it too, is left to the command."""


def chosen_runner(settings: RunnerSettings) -> str:
    """The runner that the settings name; threads for `auto`."""
    return "threads" if settings.runner == "auto" else settings.runner


def task_runner(settings: RunnerSettings) -> TaskRunner[Any]:
    """The runner that the settings choose; ImportError if Dask is not installed."""
    chosen = chosen_runner(settings)
    if chosen == "threads":
        # A task that waits for another occupies a thread: one more keeps the processors busy.
        return ThreadPoolTaskRunner(max_workers=settings.workers + 1)
    if chosen == "processes":
        return ProcessPoolTaskRunner(max_workers=settings.workers, initializer=begin_worker)
    from prefect_dask import DaskTaskRunner  # An extra; settings that need it are checked first.

    if settings.dask_address is not None:
        return DaskTaskRunner(address=settings.dask_address)
    return DaskTaskRunner(
        cluster_kwargs={
            "n_workers": settings.workers,
            "threads_per_worker": 1,
            # Any free port: the second of two runs would warn that the usual one is taken.
            "dashboard_address": "127.0.0.1:0",
            "preload": [DEAF],
        },
    )


def begin_worker() -> None:
    """Prepare a worker process: Ctrl-C is left to the command, and it ends with the command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()


def _end_with_parent() -> None:
    """End this worker as soon as the command has ended, for any reason.

    Left alone, the workers of a killed command would finish their present tasks, concurrently with
    the continued run.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGKILL)


PATIENCE_WITH_A_SCHEDULER = 10.0
"""Seconds until a Dask scheduler that does not answer is taken for dead."""


def dead_scheduler(settings: RunnerSettings) -> str | None:
    """The address of the settings' Dask scheduler if it does not answer; else None."""
    address = settings.dask_address
    if settings.runner != "dask" or address is None:
        return None
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    if parts.scheme not in ("tcp", "tls") or parts.hostname is None or parts.port is None:
        return None  # Only Dask knows how to reach it.
    try:
        with socket.create_connection((parts.hostname, parts.port), PATIENCE_WITH_A_SCHEDULER):
            return None
    except OSError:
        return address

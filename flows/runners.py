"""Task runners by setting: the same DAG on threads, processes or Dask."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import resource_tracker
from threading import Thread
from typing import Any, Self
from urllib.parse import urlsplit

import httpx
from prefect.context import (
    FlowRunContext,
    SyncClientContext,
    refresh_global_settings_context,
    serialize_context,
)
from prefect.futures import PrefectWrappedFuture
from prefect.settings import PREFECT_API_URL, get_current_settings
from prefect.task_runners import ProcessPoolTaskRunner, TaskRunner, ThreadPoolTaskRunner

from ..tasks.runs.settings import RunnerSettings
from . import fork_server

WAITING = 64
"""Tasks that may wait for others, of all that are submitted, without holding up those behind."""


def chosen_runner(settings: RunnerSettings) -> str:
    """The runner that the settings name; where they leave it open, processes if these start at
    once, being forked, and else threads."""
    if settings.runner != "auto":
        return settings.runner
    return "processes" if fork_server.is_there() else "threads"


def begin_forking(settings: RunnerSettings, prepare: Callable[[], None]) -> bool:
    """Fork the process that the workers of a run are forked from, where the settings let them be
    processes and this process can be forked; whether it is there. `prepare` is called in it."""
    return settings.runner in ("auto", "processes") and fork_server.begin(prepare)


def task_runner(settings: RunnerSettings, module: str = __name__) -> TaskRunner[Any]:
    """The runner that the settings choose; ImportError if Dask is not installed.

    Worker processes import `module`, which has the flow, before they are given anything.
    """
    chosen = chosen_runner(settings)
    if chosen == "threads":
        return ThreadPoolTaskRunner(max_workers=settings.workers)
    if chosen == "processes":
        known = get_current_settings().to_environment_variables(exclude_unset=True)
        return _Processes(
            max_workers=settings.workers,
            initializer=begin_worker,
            initargs=(known, module),
        )
    from prefect_dask import DaskTaskRunner  # An extra; settings that need it are checked first.

    if settings.dask_address is not None:
        return DaskTaskRunner(address=settings.dask_address)
    return DaskTaskRunner(
        cluster_class=local_cluster,
        cluster_kwargs={
            "n_workers": settings.workers,
            "threads_per_worker": 1,
            # Any free port: of two runs the second would warn that the first has the usual one.
            "dashboard_address": "127.0.0.1:0",
            # A lost worker is no news to the others: they say no more than this process does.
            "silence_logs": logging.lastResort.level if logging.lastResort else logging.WARNING,
        },
    )


_QUIETLY = "import logging; logging.raiseExceptions = False"
"""What a Dask worker does first where the command does not say that a log could not be sent."""


def local_cluster(**options: Any) -> Any:
    """A Dask cluster of this machine, which the run's process alone interrupts.

    Whatever its threads start later, such as a worker in the place of one that was lost, is begun
    as its first workers are.
    """
    import dask
    from distributed import LocalCluster  # The same extra.

    first = [] if logging.raiseExceptions else [_QUIETLY]
    with begun_quietly():
        preload = [*dask.config.get("distributed.worker.preload"), *first]
        return LocalCluster(preload=preload, **options)


_is_worker = False
"""Whether this process is a worker of a flow's."""


@contextmanager
def begun_quietly() -> Iterator[None]:
    """In the block, processes that this thread begins are deaf to Ctrl-C, which reaches every
    process of the terminal.

    They inherit a blocked signal, and so print no traceback while they are still importing either.
    """
    resource_tracker.ensure_running()  # Whoever begins it unblocks the signal.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class InOrder(ThreadPoolExecutor):
    """The threads that hand a process pool its tasks: tasks that wait for none in their order.

    Prefect has a thread for each worker: while all of them wait for the ends of tasks, no other is
    begun, though a worker be free.
    """

    def __init__(self) -> None:
        super().__init__(WAITING)
        self._at_once = ThreadPoolExecutor(1)

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Call the function in a thread, which waits for the Prefect futures in `wait_for`."""
        futures = list(named.get("wait_for") or ())
        if all(
            isinstance(one, PrefectWrappedFuture) and one.wrapped_future.done() for one in futures
        ):
            return self._at_once.submit(function, *arguments, **named)
        return super().submit(function, *arguments, **named)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._at_once.shutdown(wait, cancel_futures=cancel_futures)
        super().shutdown(wait, cancel_futures=cancel_futures)


class _Processes(ProcessPoolTaskRunner):
    """Worker processes that all start with the flow, rather than each with a task that waits.

    They are forked where there is what to fork them from; Prefect's own start as new interpreters.
    In a worker Prefect enters a copy of the runner for every task: it starts nothing, since nobody
    submits anything to it.
    """

    def __enter__(self) -> Self:
        if _is_worker:
            return TaskRunner.__enter__(self)
        super().__enter__()
        if self._executor is not None and multiprocessing.parent_process() is None:
            if fork_server.is_there():
                begun = self._executor  # It starts processes with its first task.
                self._executor = ProcessPoolExecutor(
                    self._max_workers,
                    multiprocessing.get_context("forkserver"),
                    begun._initializer,
                    begun._initargs,
                )
                begun.shutdown()
            if self._resolver_executor is not None:
                self._resolver_executor.shutdown()
            self._resolver_executor = InOrder()
            with begun_quietly():
                for _ in range(self._max_workers):
                    self._executor.submit(os.getpid)
        return self

    def submit(self, *arguments: Any, **named: Any) -> Any:
        """Submit a task with what a worker does not have of the context of the flow run.

        It has the settings; see `begin_worker`. Left alone, Prefect would make them anew for every
        task, and import all its collections, Dask among them, to read where results would go.
        """
        keeps_context = getattr(self, "_cached_context", self) is None  # Prefect 3.9 keeps none.
        if keeps_context and (flow_run := FlowRunContext.get()) is not None:
            context = serialize_context() | {"settings_context": {}}
            context["flow_run_context"]["result_store"] = flow_run.result_store
            self._cached_context, self._cached_env = context, {}
        return super().submit(*arguments, **named)

    def __exit__(self, *arguments: Any) -> None:
        """End; of a pool that has lost a worker, end those too that it began meanwhile.

        They wait for a lock that the lost one held, and Python, at its end, for them.
        """
        pool = self._executor
        if pool is not None and getattr(pool, "_broken", False):
            for process in list((getattr(pool, "_processes", None) or {}).values()):
                process.terminate()
        super().__exit__(*arguments)


def begin_worker(environment: Mapping[str, str], module: str) -> None:
    """Prepare this worker process: Prefect's settings, a client of its server, flow, end.

    Left alone, Prefect makes two clients for every task, and reads all certificates for each. It
    does so again where the server does not answer yet.
    """
    global _is_worker
    _is_worker = True
    end_with_parent()
    # The pool may begin one later, outside of `begun_quietly`.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(environment)
    refresh_global_settings_context()
    if PREFECT_API_URL.value() is not None:
        with suppress(httpx.HTTPError, RuntimeError):
            SyncClientContext().__enter__()
    import_module(module)


def end_with_parent() -> None:
    """Have this worker process end as soon as its parent has, however that came about.

    Left alone, the workers of a killed run would finish all the tasks that they had been given,
    beside the run that goes on where it was. What they are at counts as not begun, as if they had
    been killed with it.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def end() -> None:
        parent.join()
        os._exit(1)

    Thread(target=end, name="end-with-parent", daemon=True).start()


PATIENCE_WITH_A_SCHEDULER = 10.0
"""Seconds until a Dask scheduler that does not answer is taken for dead."""


def dead_scheduler(settings: RunnerSettings) -> str | None:
    """The address of the settings' Dask scheduler if it does not answer; None if all is well."""
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

"""Cancelling a run from the UI, also while a command runs it.

Workers and `spineflow serve` end the processes of cancelled runs themselves. For all others,
the process of a run asks its server at intervals whether the run has been cancelled. It stops
between tasks; running tasks are finished first, and their results stay.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.exceptions import PrefectException
from prefect.runtime import flow_run

from ..tasks.runs.errors import SpineflowError
from .servers import is_embedded

SECONDS_BETWEEN_LOOKS = 2.0
"""Interval between requests to the server."""

SUPERVISED = "PREFECT__FLOW_RUN_ID"
"""Variable of the environment in which a worker names the flow run of a process it has started."""

NO_ANSWER = (httpx.HTTPError, OSError, RuntimeError, PrefectException)
"""Errors of a server that does not answer, or does not know."""

_STOPPED = (StateType.CANCELLING, StateType.CANCELLED)

_cancelled = threading.Event()
_watched: list[str] = []


class RunCancelled(SpineflowError):
    """The run has been cancelled; finished stages stay, and it can be continued."""


def refuse_if_cancelled() -> None:
    """Raise RunCancelled if the watched run was cancelled; called between tasks."""
    if _cancelled.is_set():
        raise RunCancelled("The run was cancelled")


@contextmanager
def watched(flow_run_id: str) -> Iterator[None]:
    """Poll the server in the block for cancellation of a flow run.

    Not polled for runs that the watched one has started, for runs that a worker ends,
    or at an embedded server, where runs cannot be cancelled.
    """
    if _watched or is_embedded() or SUPERVISED in os.environ:
        yield
        return
    ended = threading.Event()
    # A thread does not inherit the present settings, such as the server.
    here = copy_context()
    watcher = threading.Thread(
        target=here.run, args=(_watch, UUID(flow_run_id), ended), daemon=True
    )
    _watched.append(flow_run_id)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        _watched.clear()
        _cancelled.clear()


def was_cancelled() -> bool:
    """Whether this process's run is cancelled at the server; False if the server does not answer.

    Called when a signal, such as a worker's, ends the process.
    """
    flow_run_id = os.environ.get(SUPERVISED) or (_watched[0] if _watched else None)
    if flow_run_id is None or is_embedded():
        return False
    with suppress(*NO_ANSWER), get_client(sync_client=True) as client:
        return _is_stopped(client.read_flow_run(UUID(flow_run_id)))
    return False


def mark_ended(flow_run_id: str | None, state: State) -> None:
    """Report to the server how a flow run ended where Prefect's own state is wrong or missing."""
    if flow_run_id is None:
        return
    with suppress(*NO_ANSWER), get_client(sync_client=True) as client:
        client.set_flow_run_state(UUID(flow_run_id), state, force=True)


def add_tags(tags: Iterable[str]) -> None:
    """Add tags to this flow run, which a deployment has made before its settings were read."""
    if flow_run.id is None:
        return
    with suppress(*NO_ANSWER), get_client(sync_client=True) as client:
        client.update_flow_run(UUID(flow_run.id), tags=sorted({*flow_run.tags, *tags}))


def _watch(flow_run_id: UUID, ended: threading.Event) -> None:
    with get_client(sync_client=True) as client:
        while not ended.wait(SECONDS_BETWEEN_LOOKS):
            # A server that does not answer is asked again; the run itself reports if it is gone.
            with suppress(*NO_ANSWER):
                if _is_stopped(client.read_flow_run(flow_run_id)):
                    _cancelled.set()
                    return


def _is_stopped(run: FlowRun) -> bool:
    return run.state is not None and run.state.type in _STOPPED

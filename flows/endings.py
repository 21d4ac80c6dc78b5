"""Ends of runs: cancelled at the server, cut short from outside, reported as events.

*Cancelling*, also while a command runs a flow. Workers and `spineflow serve` end the processes of
cancelled runs themselves. For all others, the process of a run asks its server at intervals whether
the run has been cancelled. It stops between tasks; running tasks are finished first, and their
results stay.

*Errors.* Tasks confine their own errors. Errors of the surrounding orchestration become one public
sentence here, since they would otherwise end in a traceback that helps no user, or, in a
deployment, reach the server.

*Events* at a Prefect server, for its automations: release, refusal, spending near a cap. Their
contents are public: product and dataset of a run, the sentence of a failed check, the dataset's
spending by its ledger. A command's own server has no automations, and receives none.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import copy_context
from fractions import Fraction
from pathlib import Path
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.events import emit_event
from prefect.exceptions import PrefectException
from prefect.runtime import flow_run
from prefect.settings import PREFECT_HOME

from ..tasks.ledger.caps import spent_and_caps
from ..tasks.ledger.store import ledger_at
from ..tasks.products.product import OF_ONE_INPUT
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.errors import (
    CheckFailed,
    SpineflowError,
    keep_traceback,
    more_memory,
    storage_failed,
)
from ..tasks.runs.publication import marker_address
from ..tasks.runs.settings import ProductSettings, RunnerSettings
from .runners import dead_scheduler
from .servers import is_embedded, too_busy

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


_UNREACHABLE = ("Failed to reach API", "Timed out while attempting to connect")
"""Beginnings of Prefect's errors for a server that does not answer."""

_OF_THE_SERVER = (httpx.HTTPError, ConnectionError, TimeoutError)
"""Errors of requests to the server: outside tasks, all network requests go to it."""


_LOST_WORKERS = ("BrokenProcessPool", "KilledWorker")
"""Errors of the pool of processes, and of Dask, for a worker that died during a task."""


class Interrupted(SpineflowError):
    """The run was cut short from outside; finished stages stay, and it can be continued."""


def explain_error(error: Exception, run_root: str, runner: RunnerSettings) -> SpineflowError:
    """The program's own error for any error that ended a run; its own errors are unchanged.

    The text and traceback of others are written to the run's confidential folder. `runner` is the
    task runner: if it is a Dask scheduler that is gone, every error is reported as that.
    """
    if isinstance(error, SpineflowError):
        return error
    address = dead_scheduler(runner)
    if address is not None:
        keep_traceback(error, run_root)
        what = f"The Dask scheduler at {address} does not answer; when it does"
    elif isinstance(error, _OF_THE_SERVER) or str(error).startswith(_UNREACHABLE):
        keep_traceback(error, run_root)
        what = "The Prefect server (PREFECT_API_URL) does not answer; when it does"
        if is_embedded():
            home = f"its home {PREFECT_HOME.value()} can be written and has room, then"
            what = f"Prefect's embedded server does not answer; see that {home}"
        if busy := too_busy(error):
            what = f"{busy}; then"
    elif isinstance(error, OSError):
        return storage_failed(error, run_root)
    elif type(error).__name__ in _LOST_WORKERS:
        keep_traceback(error, run_root)
        under_way = ", ".join(getattr(error, "__notes__", ())) or "a task"
        return Interrupted(
            f"A worker process was ended in the middle of {under_way}, most likely for want "
            f"of memory; {more_memory(run_root)}."
        )
    else:
        kept = keep_traceback(error, run_root)
        detail = f" (the detail is in {kept})" if kept else ""
        what = f"The run was interrupted by {type(error).__name__}{detail}; when that is put right"
    return Interrupted(f"{what}, continue with 'spineflow resume {run_root}'.")


PUBLISHED = "spineflow.release.published"
CHECK_FAILED = "spineflow.check.failed"
NEAR_CAP = "spineflow.ledger.near-cap"

NEAR = Fraction(9, 10)
"""The share of a cap from which on a dataset is near it."""


def emit_published(run: RunDirectory, settings: ProductSettings) -> None:
    """Emit that the release of a run exists, and was copied to its place in the settings."""
    place = settings.published_to
    copied = None if place is None else marker_address(place, settings.PRODUCT)
    _emit_event(PUBLISHED, run, settings, {"release": str(run.release), "published": copied})


def emit_failed_check(run: RunDirectory, settings: ProductSettings, error: CheckFailed) -> None:
    """A check of the result has failed; the release is withheld."""
    _emit_event(CHECK_FAILED, run, settings, {"message": str(error)})


def emit_near_cap(run: RunDirectory, settings: ProductSettings) -> None:
    """Emit if the dataset's spending is at least `NEAR` of its cap."""
    if not settings.is_private or not settings.draws_noise:
        return
    spent, caps = spent_and_caps(ledger_at(Path(settings.privacy.ledger)), settings.privacy.dataset)
    if caps.rho is not None and spent.parameter >= NEAR * caps.rho:
        rest = caps.rho - spent.parameter
        facts = {"rho": str(spent.parameter), "cap": str(caps.rho), "remaining": str(rest)}
        _emit_event(NEAR_CAP, run, settings, facts)


def _emit_event(
    event: str, run: RunDirectory, settings: ProductSettings, payload: Mapping[str, str | None]
) -> None:
    """Send an event of a run; its resource is the dataset, its flow run and tag are related.

    The products of a run emit their own events, and a search releases no one's data.
    """
    if is_embedded() or settings.PRODUCT not in OF_ONE_INPUT:
        return
    dataset = settings.privacy.dataset
    facts = {"product": settings.PRODUCT, "dataset": dataset, "run": run.read_manifest()["run_id"]}
    related = [{"prefect.resource.id": "prefect.tag.spineflow", "prefect.resource.role": "tag"}]
    if flow_run.id is not None:
        id_ = f"prefect.flow-run.{flow_run.id}"
        related.append({"prefect.resource.id": id_, "prefect.resource.role": "flow-run"})
    with suppress(*NO_ANSWER):
        emit_event(
            event=event,
            resource={
                "prefect.resource.id": f"spineflow.dataset.{dataset}",
                "prefect.resource.name": dataset,
                "spineflow.product": settings.PRODUCT,
            },
            related=related,
            payload={**facts, **payload},
        )

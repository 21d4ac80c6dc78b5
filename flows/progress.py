"""Progress of a flow: to the console, and to the server's artifacts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, cast
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.exceptions import UnfinishedRun
from prefect.futures import PrefectFuture, as_completed
from spineflow.flows.cancelling import refuse_if_cancelled
from spineflow.flows.servers import address_of, is_embedded
from spineflow.tasks.runs.errors import SpineflowError
from spineflow.tasks.runs.timing import stopwatch

Listener = Callable[[str, int, int], None]
"""Called with the name of a stage, and how many of its tasks are done and planned.

With nothing planned, the name is something to be said."""

SECONDS_BETWEEN_UPDATES = 1.0
"""Of a stage's progress at the server: each is a request, for which the flow waits."""

_listeners: list[Listener] = []
_run_ids: dict[str, str] = {}


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Have a listener told of every stage's progress while the block runs."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def begin_run(root: str, flow_run_id: str) -> None:
    """Keep which flow run works on a run directory, and tell the listeners where to watch it."""
    _run_ids[root] = flow_run_id
    if not is_embedded():
        _tell(f"watch it at {address_of(flow_run_id)}", 0, 0)


def run_id(root: str) -> str | None:
    """The flow run that this process has had work on a run directory last; None if none has."""
    return _run_ids.get(root)


def finish_stage(stages: Mapping[str, Sequence[PrefectFuture]]) -> None:
    """Wait until every task of the named stages has ended, telling the listeners as they do.

    Raises the error of the first task that failed, in order of submission.
    """
    owner = {future: stage for stage, futures in stages.items() for future in futures}
    done = dict.fromkeys(stages, 0)
    artifacts = {
        # Prefect answers with a coroutine only where an event loop runs.
        stage: cast(
            UUID,
            create_progress_artifact(0.0, key=_key(stage), description=f"{stage}: started"),
        )
        for stage, futures in stages.items()
        if len(futures) > 1
    }
    for stage, futures in stages.items():
        _tell(stage, 0, len(futures))
    told = dict.fromkeys(stages, 0.0)
    with stopwatch() as elapsed:
        for future in _completed(list(owner)):
            stage = owner[future]
            done[stage] += 1
            _tell(stage, done[stage], len(stages[stage]))
            planned = len(stages[stage])
            is_due = done[stage] == planned or elapsed() - told[stage] >= SECONDS_BETWEEN_UPDATES
            if stage in artifacts and is_due:
                told[stage] = elapsed()
                update_progress_artifact(
                    artifacts[stage],
                    progress=100.0 * done[stage] / planned,
                    description=_told(stage, done[stage], planned, elapsed()),
                )
    raise_first_error(list(owner))


def _completed(futures: Sequence[PrefectFuture]) -> Iterator[PrefectFuture]:
    """Futures as they are completed; raises RunCancelled soon after the run was cancelled."""
    done: SimpleQueue[PrefectFuture | BaseException] = SimpleQueue()

    def wait() -> None:
        try:
            for future in as_completed(list(futures)):
                done.put(future)
        except BaseException as error:
            done.put(error)

    # A thread has none of the settings that hold here, such as which server there is.
    Thread(target=copy_context().run, args=(wait,), daemon=True).start()
    for _ in futures:
        refuse_if_cancelled()
        made = None
        while made is None:
            try:
                made = done.get(timeout=SECONDS_BETWEEN_UPDATES)
            except Empty:
                refuse_if_cancelled()
        if isinstance(made, BaseException):
            raise made
        yield made


def raise_first_error(futures: Sequence[PrefectFuture]) -> None:
    """Raise the error of the first failed task; those skipped for it come after it."""
    errors = [made for future in futures if isinstance(made := _outcome(future), BaseException)]
    ours = [error for error in errors if isinstance(error, SpineflowError)]
    if errors:
        raise (ours or errors)[0]


def _outcome(future: PrefectFuture) -> Any:
    """What a task returned or raised; for one that was never started, Prefect's error of that."""
    try:
        return future.result(raise_on_failure=False)
    except UnfinishedRun as error:
        return error


def _told(stage: str, done: int, planned: int, seconds: float) -> str:
    """How far a stage is, and what is left of it at the speed so far.

    The tasks of a stage are cut to be of equal cost, so the speed so far is a fair guess.
    """
    if done == planned:
        return f"{stage}: {planned} of {planned} tasks in {seconds:.0f} s"
    left = seconds * (planned - done) / done
    return f"{stage}: {done} of {planned} tasks, about {left:.0f} s left"


def _tell(stage: str, done: int, planned: int) -> None:
    for listener in _listeners:
        listener(stage, done, planned)


def _key(stage: str) -> str:
    return "progress-" + "".join(c if c.isalnum() else "-" for c in stage.lower())

"""Progress of a flow: to the console, and to the server's artifacts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, cast
from uuid import UUID

from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate
from prefect.exceptions import UnfinishedRun
from prefect.futures import PrefectFuture, as_completed
from prefect.runtime import flow_run

from ..tasks.runs.declared import read_declared
from ..tasks.runs.errors import SpineflowError
from ..tasks.runs.metering import stopwatch
from .cancelling import NO_ANSWER, refuse_if_cancelled
from .servers import address_of, is_embedded

Listener = Callable[[str, int, int], None]
"""Called with the name of a stage, and how many of its tasks are done and planned.

With nothing planned, the name is something to be said."""

SECONDS_BETWEEN_UPDATES = 1.0
"""Of the progress at the server: each is a request, for which the flow waits."""

SECONDS_BETWEEN_UNSEEN = 15.0
"""Between updates at a server of the command's own, which nobody can watch: what is shown later is
what stands at the end, or, of a run that is killed, this long before."""

BAR = 20
"""Characters of a bar."""

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


def finish_stage(
    stages: Mapping[str, Sequence[PrefectFuture]],
    ended: Callable[[PrefectFuture, object], None],
    before: Mapping[str, int],
) -> None:
    """Wait until every task of the named stages has ended, telling the listeners as they do; of a
    stage that has failed they hear no more. A task that calls share stands once for each.

    `ended` is called with every future as it ends, and what it returned or raised; `before` counts
    what stages need no task for, since it is there.

    Raises the error of the first task that failed, in order of submission.
    """
    owners: dict[PrefectFuture, list[str]] = {}
    for stage, futures in stages.items():
        for future in futures:
            owners.setdefault(future, []).append(stage)
    done = {stage: before[stage] for stage in stages}
    all_of = {stage: done[stage] + len(futures) for stage, futures in stages.items()}
    failed: set[str] = set()
    picture = _picture()
    for stage, planned in all_of.items():
        _tell(stage, done[stage], planned)
        picture.draw(stage, done[stage], planned, 0.0)
        if done[stage] == planned:
            _log(stage, planned, 0.0)
    with stopwatch() as elapsed, _noted(done, all_of):
        for future in _completed(list(owners)):
            outcome = _outcome(future)
            ended(future, outcome)
            for stage, n_calls in Counter(owners[future]).items():
                done[stage] += n_calls
                planned = all_of[stage]
                picture.draw(stage, done[stage], planned, elapsed())
                failed |= {stage} if isinstance(outcome, BaseException) else set()
                if stage in failed:
                    continue
                _tell(stage, done[stage], planned)
                if done[stage] == planned:
                    _log(stage, planned, elapsed())
    picture.show()
    raise_first_error(list(owners))


@contextmanager
def _noted(done: Mapping[str, int], planned: Mapping[str, int]) -> Iterator[None]:
    """In the block, an error that is not ours gets a note of the stages that are under way."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, SpineflowError):
            unfinished = [stage for stage in planned if done[stage] < planned[stage]]
            error.add_note(" and ".join(f"the stage '{stage}'" for stage in unfinished))
        raise


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


class Picture:
    """How far the stages of a flow run are, as bars on its page; one artifact, drawn again."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[int, int, float]] = {}
        self._artifact: UUID | None = None
        self._shown = float("-inf")

    def draw(self, stage: str, done: int, planned: int, seconds: float) -> None:
        """Enter how far a stage is; shown now and then, as each time is a request to wait for."""
        self._rows[stage] = (done, planned, seconds)
        if monotonic() - self._shown >= SECONDS_BETWEEN_UPDATES:
            self.show()

    def show(self, *, is_last: bool = False) -> None:
        """Show what was drawn, as far as the server answers; now and then where nobody sees it.

        A run does not end for its picture: tasks that are long outlast a server that is away.
        """
        if not is_last and is_embedded() and monotonic() - self._shown < SECONDS_BETWEEN_UNSEEN:
            return
        text = bars(self._rows)
        try:
            if self._artifact is None:
                # Prefect answers with a coroutine only where an event loop runs.
                made = create_markdown_artifact(
                    text, key="progress", description="How far stages are"
                )
                self._artifact = cast(UUID, made)
            else:
                update_markdown(self._artifact, text)
        except NO_ANSWER:
            if is_embedded():
                raise  # Nobody starts it again.
        self._shown = monotonic()


_pictures: dict[str, Picture] = {}


def _picture() -> Picture:
    """The picture of the flow run that asks."""
    return _pictures.setdefault(str(flow_run.id), Picture())


def end_picture() -> None:
    """Show for the last time how far the stages of this flow run are."""
    picture = _pictures.pop(str(flow_run.id), None)
    if picture is not None:
        picture.show(is_last=True)


def update_markdown(artifact: UUID, text: str) -> None:
    """Replace the text of an artifact."""
    with get_client(sync_client=True) as client:
        client.update_artifact(artifact, ArtifactUpdate(data=text))


def bars(rows: Mapping[str, tuple[int, int, float]]) -> str:
    """Bars of stages that have done some of their planned tasks in some seconds, as Markdown.

    The tasks of a stage are cut to be of equal cost, so that the speed so far tells what is left.

    >>> print(bars({"persons measure County": (1, 4, 2.0)}).splitlines()[-1])
    | persons measure County | `█████···············` | 1 of 4 | about 6 s left |
    """
    lines = ["| stage | | tasks | time |", "|---|---|---|---|"]
    for stage, (done, planned, seconds) in rows.items():
        full = BAR * done // max(planned, 1)
        bar = "█" * full + "·" * (BAR - full)
        if done == planned:
            time = f"{seconds:.0f} s"
        else:
            time = f"about {seconds * (planned - done) / done:.0f} s left" if done else ""
        lines.append(f"| {stage} | `{bar}` | {done} of {planned} | {time} |")
    return "\n".join(lines)


SENTENCES: Mapping[str, str] = read_declared(Path(__file__).with_name("sentences.toml"))
"""What the log says of a stage by its name; of others, that it has ended."""


def sentence_of(stage: str, planned: int, seconds: float) -> str:
    """What the log says when all tasks of a stage have ended.

    >>> sentence_of("persons measure County", 4, 2.6)
    'Persons were measured at County: 4 tasks, 3 s.'
    """
    said = f"Stage {stage!r} has ended"
    for pattern, words in reversed(tuple(SENTENCES.items())):
        if match := re.fullmatch(pattern, stage):
            said = match.expand(words)
            break
    said = said[0].upper() + said[1:]
    return f"{said}: {planned} task{'s' if planned != 1 else ''}, {seconds:.0f} s."


def _log(stage: str, planned: int, seconds: float) -> None:
    get_run_logger().info(sentence_of(stage, planned, seconds))


def _tell(stage: str, done: int, planned: int) -> None:
    for listener in _listeners:
        listener(stage, done, planned)

"""Progress of a flow: to the console, and to the server's artifacts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import cast
from uuid import UUID

from prefect import get_run_logger
from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate
from prefect.runtime import flow_run

from .cancelling import NO_ANSWER
from .servers import address_of, is_embedded

Listener = Callable[[str, int, int], None]
"""Called with the name of a stage, and how many of its tasks are done and planned.

With no tasks planned, the name is a message."""

SECONDS_BETWEEN_UPDATES = 1.0
"""Interval between updates at the server: each is a request, for which the flow waits."""

SECONDS_BETWEEN_UNSEEN = 15.0
"""Interval between updates at a server of the command's own, which is never watched: a later reader
sees the final state, or, after a kill, the state this long before."""

BAR = 20
"""Characters of a bar."""

_listeners: list[Listener] = []
_run_ids: dict[str, str] = {}


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call a listener on every stage's progress while the block runs."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def begin_run(root: str, flow_run_id: str) -> None:
    """Record the flow run that works on a run directory, and its address for the listeners."""
    _run_ids[root] = flow_run_id
    if not is_embedded():
        _report_progress(f"watch it at {address_of(flow_run_id)}", 0, 0)


def run_id(root: str) -> str | None:
    """The last flow run of this process that worked on a run directory, or None."""
    return _run_ids.get(root)


class Picture:
    """Progress of the stages of a flow run, as bars on its page; one artifact, drawn again."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[int, int, float]] = {}
        self._artifact: UUID | None = None
        self._shown = float("-inf")

    def draw(self, stage: str, done: int, planned: int, seconds: float) -> None:
        """Enter the progress of a stage; shown at intervals, as each update is a request."""
        self._rows[stage] = (done, planned, seconds)
        if monotonic() - self._shown >= SECONDS_BETWEEN_UPDATES:
            self.show()

    def show(self, *, is_last: bool = False) -> None:
        """Show the progress, as far as the server answers; rarely at an unwatched server.

        A run does not end for its page: long tasks outlast an unreachable server.
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
                raise  # It is never restarted.
        self._shown = monotonic()


_pictures: dict[str, Picture] = {}


def _picture() -> Picture:
    """The progress page of the calling flow run."""
    return _pictures.setdefault(str(flow_run.id), Picture())


def end_picture() -> None:
    """Show the final progress of the stages of this flow run."""
    picture = _pictures.pop(str(flow_run.id), None)
    if picture is not None:
        picture.show(is_last=True)


def update_markdown(artifact: UUID, text: str) -> None:
    """Replace the text of an artifact."""
    with get_client(sync_client=True) as client:
        client.update_artifact(artifact, ArtifactUpdate(data=text))


def bars(rows: Mapping[str, tuple[int, int, float]]) -> str:
    """Bars of stages that have done some of their planned tasks in some seconds, as Markdown.

    The tasks of a stage are partitioned by equal cost, so that the speed so far predicts the rest.

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


def sentence_of(stage: str, planned: int, seconds: float) -> str:
    """Log message after all tasks of a stage have ended.

    >>> sentence_of("persons measure County", 4, 2.6)
    'persons measure County: 4 tasks, 3 s.'
    """
    return f"{stage}: {planned} task{'s' if planned != 1 else ''}, {seconds:.0f} s."


def _log(stage: str, planned: int, seconds: float) -> None:
    get_run_logger().info(sentence_of(stage, planned, seconds))


def _report_progress(stage: str, done: int, planned: int) -> None:
    for listener in _listeners:
        listener(stage, done, planned)


class StageProgress:
    """Progress of the stages of the calling flow run: to listeners, its page and its log."""

    def __init__(self) -> None:
        self._picture = _picture()
        self._told: dict[str, tuple[int, int]] = {}

    def update(self, stage: str, done: int, planned: int, seconds: float, has_failed: bool) -> None:
        """Report the number of finished tasks of a stage, `seconds` after the first began;
        listeners are not called for a failed stage."""
        self._picture.draw(stage, done, planned, seconds)
        if has_failed or self._told.get(stage) == (done, planned):
            return
        self._told[stage] = (done, planned)
        _report_progress(stage, done, planned)
        if done == planned:
            _log(stage, planned, seconds)

    def show(self) -> None:
        """Show updates that the page has not shown yet."""
        self._picture.show()

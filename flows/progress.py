"""Progress of a flow: to the console, and to the server's artifacts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import cast
from uuid import UUID

from prefect import get_run_logger
from prefect.artifacts import create_progress_artifact, update_progress_artifact

from .cancelling import NO_ANSWER
from .logs import sentence_of
from .results import key_of
from .servers import address_of, is_embedded

Listener = Callable[[str, int, int], None]
"""Called with the name of a stage, and how many of its tasks are done and planned.

With no tasks planned, the name is a message."""

SECONDS_BETWEEN_UPDATES = 1.0
"""Interval between updates at the server: each is a request, for which the flow waits."""

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


def _report_progress(stage: str, done: int, planned: int) -> None:
    for listener in _listeners:
        listener(stage, done, planned)


class StageProgress:
    """Progress of the stages of a flow run: to listeners, its log, and an artifact of each stage.

    A command's own server, which is never watched, has no artifacts.
    """

    def __init__(self) -> None:
        self._reported: dict[str, tuple[int, int]] = {}
        self._artifacts: dict[str, UUID] = {}
        self._shown = float("-inf")

    def update(self, stage: str, done: int, planned: int, seconds: float, has_failed: bool) -> None:
        """Report the number of finished tasks of a stage, `seconds` after the first began, unless
        one of them has failed."""
        if has_failed or self._reported.get(stage) == (done, planned):
            return
        self._reported[stage] = (done, planned)
        _report_progress(stage, done, planned)
        has_ended = done == planned
        if has_ended:
            get_run_logger().info(sentence_of(stage, planned, seconds))
        if is_embedded() or not (has_ended or monotonic() - self._shown > SECONDS_BETWEEN_UPDATES):
            return
        # Long tasks outlast an unreachable server.
        with suppress(*NO_ANSWER):
            self._show(stage, 100 * done / planned)
        self._shown = monotonic()

    def _show(self, stage: str, percent: float) -> None:
        if stage in self._artifacts:
            update_progress_artifact(self._artifacts[stage], percent)
        else:
            key = key_of(f"progress-{stage}")
            made = create_progress_artifact(percent, key=key, description=stage)
            # Prefect answers with a coroutine only where an event loop runs.
            self._artifacts[stage] = cast(UUID, made)

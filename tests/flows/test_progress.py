"""What a stage says when some of its tasks fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from prefect import flow, task
from prefect.settings import PREFECT_API_URL, temporary_settings
from spineflow.flows import progress
from spineflow.flows.endings import explained
from spineflow.flows.progress import Picture, finish_stage, listening
from spineflow.tasks.runs.errors import SpineflowError
from spineflow.tasks.runs.settings import RunnerSettings


@task
def fails() -> None:
    raise SpineflowError("this one failed")


@task
def follows() -> None:
    pass


def finished(stages: dict[str, list]) -> None:
    """All of these stages have been waited for, of which nothing was there before."""
    finish_stage(stages, lambda future, outcome: None, dict.fromkeys(stages, 0))


@flow
def two_stages() -> None:
    first = fails.submit()
    second = follows.submit(wait_for=[first])
    finished({"second": [second, follows.submit()], "first": [first]})


@pytest.mark.slow
def test_the_error_is_that_of_the_task_that_failed(prefect_server) -> None:
    """The tasks that were waiting for it have no result, and their error says nothing."""
    told = []
    with (
        listening(lambda stage, done, planned: told.append((stage, done, planned))),
        pytest.raises(SpineflowError, match="this one failed"),
    ):
        two_stages()
    assert told[:2] == [("second", 0, 2), ("first", 0, 1)]
    ended = [stage for stage, done, planned in told if done == planned]
    assert not ended, "what has failed is not said to have been done"


def test_of_a_lost_worker_the_stages_that_were_under_way_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a pool, one of whose processes the system has ended, does not tell them."""
    measured, estimated, checked = (cast(Any, object()) for _ in range(3))

    def lost(*_: object) -> Iterator[object]:
        yield measured
        raise BrokenProcessPool

    def nothing(*_: object) -> None:
        """As what shows progress to people."""

    picture = SimpleNamespace(draw=nothing, show=nothing)
    monkeypatch.setattr(progress, "_picture", lambda: picture)
    monkeypatch.setattr(progress, "_completed", lost)
    monkeypatch.setattr(progress, "_outcome", nothing)
    monkeypatch.setattr(progress, "_log", nothing)
    with pytest.raises(BrokenProcessPool) as error:
        finished({"measure": [measured], "estimate": [estimated], "check": [checked]})
    told = str(explained(error.value, str(tmp_path), RunnerSettings()))
    assert "ended in the middle of the stage 'estimate' and the stage 'check', most likely" in told
    assert "for want of memory; give the run more, or fewer tasks at once" in told


@pytest.mark.parametrize("embedded", [False, True])
def test_a_run_does_not_end_for_its_picture_while_a_server_may_come_back(
    embedded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Exception | str] = [httpx.ConnectError("away"), "artifact", RuntimeError("away")]
    shown: list[str] = []

    def answering(text: Callable[..., str]) -> Callable[..., object]:
        def asked(*arguments: str, **_: object) -> object:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            shown.append(text(*arguments))
            return answer

        return asked

    monkeypatch.setattr(progress, "create_markdown_artifact", answering(lambda text: text))
    monkeypatch.setattr(progress, "update_markdown", answering(lambda _, text: text))
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_UPDATES", float("inf"))
    picture = Picture()
    with temporary_settings({PREFECT_API_URL: None if embedded else "http://127.0.0.1:1/api"}):
        if embedded:
            with pytest.raises(httpx.ConnectError):
                picture.show()
            return
        picture.show()
        picture.draw("measure", 1, 2, 3.0)
        picture.show()
        picture.show()
        answers.append("updated")
        picture.draw("measure", 2, 2, 4.0)
        picture.show()
    assert [text.count("2 of 2") for text in shown] == [0, 1]


@pytest.mark.parametrize(
    ("stage", "planned", "said"),
    [
        ("persons measure County", 4, "Persons were measured at County: 4 tasks, 3 s."),
        ("persons measure County", 1, "Persons were measured at County: 1 task, 3 s."),
        ("no such stage", 2, "Stage 'no such stage' has ended: 2 tasks, 3 s."),
    ],
)
def test_a_stage_is_told_of_in_a_sentence(stage: str, planned: int, said: str) -> None:
    assert progress.sentence_of(stage, planned, 2.6) == said

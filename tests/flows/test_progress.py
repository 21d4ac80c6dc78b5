"""What a stage says when some of its tasks fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL, temporary_settings
from spineflow.flows import progress
from spineflow.flows.endings import explained
from spineflow.flows.progress import Picture, end_picture, finish_stage, listening
from spineflow.tasks.runs.errors import SpineflowError
from spineflow.tasks.runs.settings import RunnerSettings


@task
def fails() -> None:
    raise SpineflowError("this one failed")


@task
def follows() -> None:
    pass


def finished(stages: dict[str, list], left: Callable[[], float | None] = progress.unknown) -> None:
    """All of these stages have been waited for, of which nothing was there before."""
    finish_stage(stages, lambda future, outcome: None, left, dict.fromkeys(stages, 0))


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

    picture = SimpleNamespace(draw=nothing, look_ahead=nothing, show=nothing)
    monkeypatch.setattr(progress, "_picture", lambda: picture)
    monkeypatch.setattr(progress, "_completed", lost)
    monkeypatch.setattr(progress, "_outcome", nothing)
    monkeypatch.setattr(progress, "_log", nothing)
    with pytest.raises(BrokenProcessPool) as error:
        finished({"measure": [measured], "estimate": [estimated], "check": [checked]})
    told = str(explained(error.value, str(tmp_path), RunnerSettings()))
    assert "ended in the middle of the stage 'estimate' and the stage 'check', most likely" in told
    assert "for want of memory; give the run more, or fewer tasks at once" in told


@flow
def told_of_the_rest() -> None:
    finished({"first": [follows.submit()]}, left=lambda: 15.0)
    assert "left of the run" in shown_progress()
    end_picture()
    assert "left of the run" not in shown_progress()
    assert "| first |" in shown_progress()


def shown_progress() -> str:
    """The picture of the flow run that asks; other workers of the session have their own."""
    own = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run.id]))
    with get_client(sync_client=True) as client:
        (found,) = client.read_artifacts(artifact_filter=own)
    return found.data


@pytest.mark.slow
def test_a_run_that_has_ended_has_no_time_left(prefect_server) -> None:
    told_of_the_rest()


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
    ("seconds", "words"),
    [
        (0.4, "About 5 s left of the run, until 23:00 UTC."),
        (52.0, "About 50 s left of the run, until 23:00 UTC."),
        (89.0, "About 90 s left of the run, until 23:01 UTC."),
        (90.0, "About 2 min left of the run, until 23:01 UTC."),
        (5400.0, "About 90 min left of the run, until 00:30 UTC."),
        (5401.0, "About 1.5 h left of the run, until 00:30 UTC."),
    ],
)
def test_the_time_that_is_left_is_told_roughly(seconds: float, words: str) -> None:
    assert progress.sentence_of_rest(seconds, datetime(2026, 1, 1, 23, 0, tzinfo=UTC)) == words


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


def test_what_is_left_is_looked_at_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most for a fiftieth of the time, and with five seconds between."""
    now, asked, heard, shown = [100.0], list[float](), list[float](), list[str]()

    def left() -> float | None:
        asked.append(now[0])
        now[0] += 0.2  # It takes a while to tell, for which nothing is asked ten seconds longer.
        return None if len(asked) == 1 else 30.0

    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        progress, "create_markdown_artifact", lambda text, **_: shown.append(text) or "a"
    )
    monkeypatch.setattr(progress, "update_markdown", lambda _, text: shown.append(text))
    monkeypatch.setattr(progress, "is_embedded", lambda: False)
    picture = Picture()
    picture.left = left
    with listening(lambda *_: None, heard.append):
        for time in (100.0, 115.1, 115.3, 130.4):
            now[0] = time
            picture.look_ahead()
    assert asked == [100.0, 115.3]
    assert heard == [30.0]
    assert len(shown) == 1 and shown[0].startswith("About 30 s left of the run, until ")
    picture.end()
    assert "left of the run" not in shown[-1]

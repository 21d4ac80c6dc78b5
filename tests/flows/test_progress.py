"""What a stage says when some of its tasks fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings
from spineflow.flows import progress
from spineflow.flows.endings import explained
from spineflow.flows.progress import Picture, finish_stage
from spineflow.tasks.runs.settings import RunnerSettings


def finished(stages: dict[str, list]) -> None:
    """All of these stages have been waited for, of which nothing was there before."""
    finish_stage(stages, lambda future, outcome: None, dict.fromkeys(stages, 0))


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

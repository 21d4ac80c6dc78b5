"""The picture of a run on its page, while its server is away."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings
from spineflow.flows import progress
from spineflow.flows.progress import Picture


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

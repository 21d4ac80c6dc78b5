"""A Prefect server that is too busy to answer is asked again, and told of if that is in vain."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from spineflow.flows.cli import main
from spineflow.flows.endings import explain_error
from spineflow.flows.servers import OWN_SERVER
from spineflow.tasks.runs.settings import RunnerSettings

from tests.flows.small_runs import settings_files


@contextmanager
def busy_server() -> Iterator[tuple[str, list[str]]]:
    """A server that answers 503 to every request, as Prefect's does whose SQLite is locked.

    Its address, and a list of what it has refused.
    """
    refused: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            refused.append(f"{self.command} {self.path}")
            content = b'{"exception_message": "Service Unavailable"}'
            self.send_response(503)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _answer

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/api", refused
    server.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["deploy", "run"])
def test_of_a_server_that_stays_busy_a_sentence_says_when_postgresql_is_due(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "world").mkdir()
    run = tmp_path / "run"
    arguments = ["deploy", "trips"]
    if command == "run":
        file = settings_files(tmp_path)["group-sizes"]
        arguments = ["run", "group-sizes", str(file), "--run-dir", str(run)]
    with (
        busy_server() as (address, refused),
        temporary_settings({PREFECT_API_URL: address, PREFECT_CLIENT_MAX_RETRIES: 1}),
    ):
        assert main(arguments) == 1
    assert len(refused) == 2, "it was asked once more"
    error = capsys.readouterr().err
    assert error.startswith("spineflow: The Prefect server was too busy to answer (503); SQLite")
    assert "start runs one after the other" in error and "PostgreSQL" in error
    again = f"continue with 'spineflow resume {run}'" if command == "run" else "run the command"
    assert again in error and error.count("\n") == 1


def test_a_busy_server_of_a_command_is_not_called_the_office_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OWN_SERVER, "http://127.0.0.1:1/api")
    answer = httpx.Response(503, request=httpx.Request("POST", "http://127.0.0.1:1/api"))
    error = httpx.HTTPStatusError("busy", request=answer.request, response=answer)
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:1/api"}):
        public = explain_error(error, str(tmp_path), RunnerSettings())
    assert str(public).startswith("Prefect's embedded server was too busy to answer (503)")

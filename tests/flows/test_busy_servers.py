"""A Prefect server that is too busy to answer is asked again, and told of if that is in vain."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from spineflow.flows.cli import main
from spineflow.flows.endings import explained
from spineflow.flows.servers import OWN_SERVER
from spineflow.tasks.runs.settings import RunnerSettings

from tests.conftest import PrefectServer
from tests.flows.small_runs import settings_files


@contextmanager
def busy_server(behind: str | None) -> Iterator[tuple[str, list[str]]]:
    """A server that answers 503 to the first request of each kind, as Prefect's does whose SQLite
    is locked, and hands on the others to the one behind it; without one it is always busy.

    Its address, and a list of what it has refused.
    """
    refused: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            asked = f"{self.command} {self.path}"
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if behind is None or asked not in refused:
                refused.append(asked)
                self._send(503, b'{"exception_message": "Service Unavailable"}')
                return
            kind = {"Content-Type": "application/json"}
            request = urllib.request.Request(behind + self.path, body, kind, method=self.command)
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    self._send(answer.status, answer.read())
            except urllib.error.HTTPError as error:
                self._send(error.code, error.read())

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _answer

        def _send(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Retry-After", "0")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/api", refused
    server.shutdown()


@pytest.mark.slow
def test_a_server_that_is_busy_for_a_moment_is_asked_again(real_server: PrefectServer) -> None:
    behind = real_server.environment["PREFECT_API_URL"].removesuffix("/api")
    with busy_server(behind) as (address, refused), temporary_settings({PREFECT_API_URL: address}):
        assert main(["deploy", "trips", "--pool", "asked-again"]) == 0
    assert len(refused) > 3 and len(set(refused)) == len(refused)


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
        busy_server(None) as (address, refused),
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
        public = explained(error, str(tmp_path), RunnerSettings())
    assert str(public).startswith("Prefect's embedded server was too busy to answer (503)")

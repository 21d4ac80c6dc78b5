"""Which server runs report to, and where the UI shows them."""

from __future__ import annotations

import pytest
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_SERVER_API_PORT,
    PREFECT_UI_URL,
    temporary_settings,
)
from spineflow.flows.servers import LOOKS_FOR_SERVER, address_of, found_server, local_server

RUN = "00000000-0000-0000-0000-000000000001"


@pytest.mark.slow
def test_a_server_that_runs_here_is_found_and_used(
    real_server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOOKS_FOR_SERVER, "true")
    address = real_server.environment["PREFECT_API_URL"]
    changed = {PREFECT_SERVER_API_PORT: real_server.port, PREFECT_API_URL: None}
    with temporary_settings(changed):
        assert local_server() == address
        with found_server():
            assert PREFECT_API_URL.value() == address
            assert address_of(RUN) == f"http://127.0.0.1:{real_server.port}/runs/flow-run/{RUN}"
        assert PREFECT_API_URL.value() is None
        monkeypatch.setattr("prefect.__version__", "0.0.0")
        assert local_server() is None, "another version's server may not understand this one"


def test_nothing_is_looked_for_where_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOOKS_FOR_SERVER, "true")
    with temporary_settings({PREFECT_SERVER_API_PORT: 9, PREFECT_API_URL: None}):
        assert local_server() is None


def test_a_server_that_was_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spineflow.flows.servers.local_server", lambda: "http://other/api")
    with temporary_settings({PREFECT_API_URL: "http://set/api"}), found_server():
        assert PREFECT_API_URL.value() == "http://set/api"


def test_runs_of_the_embedded_server_have_the_address_that_they_will_have() -> None:
    unset = {PREFECT_API_URL: None, PREFECT_UI_URL: None, PREFECT_SERVER_API_PORT: 4200}
    with temporary_settings(unset):
        assert address_of(RUN) == f"http://127.0.0.1:4200/runs/flow-run/{RUN}"

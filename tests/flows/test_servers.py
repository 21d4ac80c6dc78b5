"""Which server runs report to, and where the UI shows them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from prefect.settings import (
    PREFECT_API_URL,
    PREFECT_CLIENT_MAX_RETRIES,
    PREFECT_SERVER_API_PORT,
    PREFECT_UI_URL,
    get_current_settings,
    temporary_settings,
)
from spineflow.flows.servers import OWN_SERVER, address_of, is_embedded, server_for_runs

RUN = "00000000-0000-0000-0000-000000000001"


def test_a_server_of_the_office_is_waited_for_as_long_as_it_takes_to_start_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Prefect alone gives up after a minute, 2 + 4 + … + 32 seconds; who has set another number of
    retries is heard."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with temporary_settings({PREFECT_API_URL: "http://set/api"}):
        assert sum(2**number for number in range(1, PREFECT_CLIENT_MAX_RETRIES.value() + 1)) == 62
        with server_for_runs():
            retries = PREFECT_CLIENT_MAX_RETRIES.value()
            told = get_current_settings().to_environment_variables(exclude_unset=True)
        assert sum(2**number for number in range(1, retries + 1)) > 240
        assert told["PREFECT_CLIENT_MAX_RETRIES"] == str(retries), "workers are to be told of it"
        with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 1}), server_for_runs():
            assert PREFECT_CLIENT_MAX_RETRIES.value() == 1


def test_runs_of_a_server_of_our_own_have_that_address_too(monkeypatch: pytest.MonkeyPatch) -> None:
    own = "http://127.0.0.1:1/api"
    monkeypatch.setenv(OWN_SERVER, own)
    set_here = {PREFECT_API_URL: own, PREFECT_UI_URL: None, PREFECT_SERVER_API_PORT: 4200}
    with temporary_settings(set_here):
        assert is_embedded()
        assert address_of(RUN) == f"http://127.0.0.1:4200/runs/flow-run/{RUN}"
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:2/api"}):
        assert not is_embedded()


WAITS = """
import time
from spineflow.flows.servers import server_for_runs
with server_for_runs() as server:
    server.wait()
    print(server.address, server.process.pid, flush=True)
    time.sleep(1000 if {killed} else 0)
"""
"""A command that starts a server of its own, and ends or waits to be killed."""


@pytest.mark.soak(7)
@pytest.mark.parametrize("killed", [False, True])
def test_a_server_of_our_own_serves_and_ends_with_its_command(
    real_server, tmp_path: Path, killed: bool
) -> None:
    shutil.copy(real_server.new_database, tmp_path / "prefect.db")
    environment = {k: v for k, v in os.environ.items() if k != "PREFECT_API_URL"}
    with subprocess.Popen(
        [sys.executable, "-c", WAITS.format(killed=killed)],
        env=environment | {"PREFECT_HOME": str(tmp_path)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    ) as command:
        assert command.stdout is not None
        address, process = command.stdout.readline().split()
        if killed:
            assert httpx.get(f"{address}/health", trust_env=False).json() is True
            command.send_signal(signal.SIGKILL)
    assert command.returncode == (-signal.SIGKILL if killed else 0)
    for _ in range(100):
        if not Path(f"/proc/{process}").exists():
            break
        time.sleep(0.1)
    else:
        pytest.fail("the server outlived its command by ten seconds")

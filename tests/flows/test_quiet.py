"""Runs on the embedded server: nothing on the console but our lines, no connection to elsewhere."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.tasks.ledger.caps import Caps, set_caps
from spineflow.tasks.ledger.store import open_ledger

pytestmark = pytest.mark.slow

WATCH_CONNECTIONS = """
import os, socket, sys

HERE = {None, "", "localhost", "127.0.0.1", "::1", "0.0.0.0", socket.gethostname()}
NAMED = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}

def note(text):
    with open(os.environ["CONNECTIONS"], "a") as log:
        log.write(text + "\\n")

def watch(event, arguments):
    host = None
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    elif event in NAMED:
        host = arguments[0]
    host = host.decode() if isinstance(host, bytes) else host
    if host not in HERE:
        note(f"{event} {host}")
        raise OSError("no connection to elsewhere")

sys.addaudithook(watch)
note("watching")
"""
"""A `sitecustomize` for every Python process of a run, the embedded server's included."""


@pytest.fixture
def watched(tmp_path: Path) -> dict[str, str]:
    """Environment in which connections to other machines fail and are noted."""
    folder = tmp_path / "watch"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(WATCH_CONNECTIONS)
    (tmp_path / "connections.txt").touch()
    return {
        "PYTHONPATH": str(folder),
        "CONNECTIONS": str(tmp_path / "connections.txt"),
        "TMPDIR": str(tmp_path / "tmp"),
    }


def noted(folder: Path) -> list[str]:
    return (folder / "connections.txt").read_text().splitlines()


@pytest.mark.soak(15)
def test_a_run_is_quiet_and_stays_on_this_machine(
    new_spineflow, watched: dict[str, str], settings_text: str, tmp_path: Path
) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "settings.toml").write_text(settings_text)
    set_caps(open_ledger(tmp_path / "ledger.db"), None, Caps(Fraction(9)))
    run = ["run", "topdown", "settings.toml", "--run-dir", "run"]
    code, output, errors = new_spineflow(*run, folder=tmp_path, **watched).ended()
    assert (code, errors) == (0, "")
    ours = ("Released: ", "Protected is ", "Guarantee for ", "report: ", "certificate: ")
    ours += ("release: ", "accuracy, confidential: ", "in the UI: ", "time: ", "next: ")
    for line in output.splitlines():
        assert line.startswith(ours) or " checks passed; " in line
    for line in ours:
        assert f"\n{line}" in f"\n{output}"
    assert set(noted(tmp_path)) == {"watching"}
    assert len(noted(tmp_path)) > 1, "the embedded server was not watched"
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.soak
def test_a_refusal_is_one_line(
    new_spineflow, watched: dict[str, str], settings_text: str, tmp_path: Path
) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "settings.toml").write_text(settings_text.replace("grfc.txt", "nothing.txt"))
    run = ["run", "topdown", "settings.toml", "--run-dir", "run"]
    code, output, errors = new_spineflow(*run, folder=tmp_path, **watched).ended()
    assert (code, output) == (2, "")
    assert errors.startswith("spineflow: nothing.txt: the file does not exist; correct the path")
    assert errors.count("\n") == 1
    assert set(noted(tmp_path)) == {"watching"}

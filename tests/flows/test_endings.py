"""What is said of errors that end a run from outside its tasks."""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import httpx
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings
from spineflow.flows import results
from spineflow.flows.console import print_stages
from spineflow.flows.endings import Interrupted, explain_error
from spineflow.flows.kernels import ANNOUNCEMENT
from spineflow.tasks.runs.errors import SpineflowError, StorageFailed
from spineflow.tasks.runs.settings import RunnerSettings

SECRET = "secret"
THREADS = RunnerSettings()


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (httpx.ConnectError(SECRET), Interrupted, "Prefect's embedded server does not answer"),
        (ConnectionResetError(errno.ECONNRESET, SECRET), Interrupted, "server does not answer"),
        (RuntimeError(f"Failed to reach API at {SECRET}"), Interrupted, "does not answer"),
        (
            BrokenProcessPool(SECRET),
            Interrupted,
            "A worker process was ended in the middle of a task, most likely for want of memory; "
            "give the run more, or fewer tasks at once (--set run.workers=N) with",
        ),
        (ValueError(SECRET), Interrupted, "interrupted by ValueError (the detail is in confid"),
        (OSError(errno.ENOSPC, SECRET, "/run/x.json"), StorageFailed, "No space left on device at"),
        (OSError(SECRET), StorageFailed, "OSError at a file of the run"),
    ],
)
def test_other_errors_become_one_sentence(
    error: Exception, kind: type, words: str, tmp_path: Path
) -> None:
    with temporary_settings({PREFECT_API_URL: None}):
        public = explain_error(error, str(tmp_path), THREADS)
    assert type(public) is kind
    assert isinstance(public, SpineflowError)
    assert words in str(public)
    assert f"'spineflow resume {tmp_path}'" in str(public)
    assert SECRET not in str(public)
    kept = [path.read_text() for path in (tmp_path / "confidential" / "errors").iterdir()]
    assert SECRET in "".join(kept)
    assert (tmp_path / "confidential").stat().st_mode & 0o777 == 0o700


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The streams are terminals, as wide as any line of these tests."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")


def told(listener: Callable[[str, int, int], None]) -> None:
    """A sentence, and a stage of four tasks of which three have ended."""
    listener("watch it there", 0, 0)
    for done in range(4):
        listener("persons measure County", done, 4)


@pytest.mark.parametrize("is_compiling", [True, False])
@pytest.mark.usefixtures("terminal")
def test_a_terminal_has_a_bar_for_every_stage(
    is_compiling: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with print_stages(is_compiling):
        told(results._report_progress)
    assert not results._listeners
    shown = capsys.readouterr()
    assert (f"{ANNOUNCEMENT}: meanwhile" in shown.err) == is_compiling
    assert "watch it there" in shown.err and "persons measure County" in shown.err
    assert "3/4" in shown.err
    assert shown.out == ""

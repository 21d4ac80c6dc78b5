"""What is said of errors that end a run from outside its tasks."""

from __future__ import annotations

import errno
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import httpx
import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings
from spineflow.flows.endings import Interrupted, explained
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
        public = explained(error, str(tmp_path), THREADS)
    assert type(public) is kind
    assert isinstance(public, SpineflowError)
    assert words in str(public)
    assert f"'spineflow resume {tmp_path}'" in str(public)
    assert SECRET not in str(public)
    kept = [path.read_text() for path in (tmp_path / "confidential" / "errors").iterdir()]
    assert SECRET in "".join(kept)
    assert (tmp_path / "confidential").stat().st_mode & 0o777 == 0o700


def test_the_server_is_named_by_its_setting(tmp_path: Path) -> None:
    with temporary_settings({PREFECT_API_URL: f"http://{SECRET}/api"}):
        public = explained(httpx.ConnectError("x"), str(tmp_path), THREADS)
    assert "The Prefect server (PREFECT_API_URL) does not answer" in str(public)
    assert SECRET not in str(public)


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """As where its disk is full: a command's own server keeps its database there."""
    home = tmp_path / "home"
    home.write_text("no folder")
    with temporary_settings({PREFECT_API_URL: None, PREFECT_HOME: home}):
        public = explained(httpx.ConnectError(SECRET), str(tmp_path), THREADS)
    assert f"cannot write to its home {home} (Not a directory)" in str(public)
    assert "set PREFECT_HOME to another folder; then, continue with" in str(public)

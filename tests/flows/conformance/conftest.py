"""The finished run of every case in turn, and copies of its directory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from spineflow.tasks.runs.directory import RunDirectory

from tests.flows.conformance.cases import CASES, Finished


@pytest.fixture(params=CASES)
def finished(request: pytest.FixtureRequest, finished_run) -> Finished:
    """The finished run of every case in turn; not to be changed."""
    return finished_run(request.param)


@pytest.fixture
def copied(finished: Finished, tmp_path: Path) -> RunDirectory:
    """A copy of its directory, to be damaged: it has nothing left to draw, and may be resumed."""
    shutil.copytree(finished.run.root, tmp_path / "run")
    return RunDirectory(tmp_path / "run")

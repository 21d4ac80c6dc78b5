"""Resuming a run that is done: what could have changed is compared, and no flow is started."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from spineflow.flows import running
from spineflow.flows.cli import main
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.runs.directory import RunDirectory

from tests.flows.in_process import stages_in_process


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("done")
    file = write_dataset(folder, census_like(groups=400, counties=4, states=2, largest=8))
    text = file.read_text().replace("confidential = false\n", "")
    file.write_text(f'{text}ledger = "ledger.db"\n[release]\npublish_to = "published"\n')
    run = RunDirectory(folder / "run")
    with stages_in_process():
        assert main(["run", "group-sizes", str(file), "--run-dir", str(run.root)]) == 0
    return run


@pytest.fixture
def run(done: RunDirectory, tmp_path: Path) -> RunDirectory:
    """A copy of it: it has nothing left to draw, so that a copy may be resumed."""
    shutil.copytree(done.root, tmp_path / "run")
    return RunDirectory(tmp_path / "run")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The directories whose stages are run."""
    found: list[Path] = []
    monkeypatch.setattr(running, "run_stages", lambda _, run, settings: found.append(run.root))
    return found


def test_a_run_that_is_done_starts_no_flow(run: RunDirectory, started, capsys) -> None:
    before = {path: path.stat().st_mtime_ns for path in (run.root / "release").iterdir()}
    assert main(["resume", str(run.root)]) == 0
    assert not started
    shown = capsys.readouterr()
    assert "4 checks passed" in shown.out and str(run.report) in shown.out
    assert shown.err == ""
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize("lost", ["report/report.html", "release", "estimates/groups"])
def test_what_is_missing_is_made_by_the_flow(run: RunDirectory, started, lost: str) -> None:
    path = run.root / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    main(["resume", str(run.root)])
    assert started == [run.root]


def test_a_missing_measurement_is_left_to_the_flow(run: RunDirectory, started) -> None:
    """Which refuses it, as it is known to have been published."""
    next((run.root / "measurements").rglob("*.parquet")).unlink()
    main(["resume", str(run.root)])
    assert started == [run.root]


def test_a_run_that_failed_is_run(run: RunDirectory, started) -> None:
    run.update_manifest(status="failed")
    main(["resume", str(run.root)])
    assert started == [run.root]


def test_what_the_stages_would_refuse_is_refused(run: RunDirectory, started, capsys) -> None:
    text = run.settings.read_text()
    run.settings.write_text(text.replace("confidential = true", "confidential = false"))
    assert main(["resume", str(run.root)]) == 2
    run.settings.write_text(text)
    plan = run.root / "hierarchy" / "plan.json"
    plan.write_text(plan.read_text() + "\n")
    capsys.readouterr()
    assert main(["resume", str(run.root)]) == 2
    assert "plan.json has been edited since the run was charged" in capsys.readouterr().err
    assert not started


def test_an_input_that_has_changed_is_refused(done: RunDirectory, run, started, capsys) -> None:
    sizes = done.root.parent / "sizes.parquet"
    content = sizes.read_bytes()
    sizes.write_bytes(content + b" ")
    try:
        assert main(["resume", str(run.root)]) == 2
    finally:
        sizes.write_bytes(content)
    assert "has changed since this run read it" in capsys.readouterr().err
    assert not started


def test_a_release_that_was_taken_away_is_copied_again(done: RunDirectory, started) -> None:
    place = done.root.parent / "published"
    shutil.rmtree(place)
    place.mkdir()
    assert main(["resume", str(done.root)]) == 0
    assert (place / "group-sizes.json").exists()

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
    with stages_in_process(judged_twice=False):
        assert main(["run", "group-sizes", str(file), "--run-dir", str(run.root)]) == 0
    return run


@pytest.fixture
def run(done: RunDirectory, tmp_path: Path) -> RunDirectory:
    """A copy of it: it has nothing left to draw, so that a copy may be resumed."""
    shutil.copytree(done.root, tmp_path / "run")
    return RunDirectory(tmp_path / "run")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


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


def test_a_release_that_was_taken_away_is_copied_again(done: RunDirectory, started) -> None:
    place = done.root.parent / "published"
    shutil.rmtree(place)
    place.mkdir()
    assert main(["resume", str(done.root)]) == 0
    assert (place / "group-sizes.json").exists()


@pytest.mark.parametrize("is_deleted", [False, True])
@pytest.mark.parametrize("name", ["release/group_sizes.csv", "release/certificate.html"])
def test_a_release_that_was_altered_is_named(
    run: RunDirectory, started, capsys, name: str, is_deleted: bool
) -> None:
    path = run.root / name
    path.unlink() if is_deleted else flip(path)
    assert main(["resume", str(run.root)]) == 1
    error = capsys.readouterr().err
    assert str(path) in error and error.count("\n") == 1
    assert ("is missing" if is_deleted else "was altered since the run made it") in error
    assert "remove" in error and "resume the run, which makes the release again" in error
    assert not started


@pytest.mark.parametrize("name", ["report/report.html", "estimates/groups/state/00000.parquet"])
def test_what_was_altered_and_can_be_made_again_is(run: RunDirectory, capsys, name: str) -> None:
    path = run.root / name
    made = path.read_bytes()
    flip(path)
    with stages_in_process(judged_twice=False):
        assert main(["resume", str(run.root)]) == 0
        assert f"note: {name} was altered since the run made it, and is made again." in (
            capsys.readouterr().err
        )
        assert main(["resume", str(run.root)]) == 0
    assert capsys.readouterr().err == ""
    if path.suffix == ".parquet":
        assert path.read_bytes() == made


def test_another_version_does_not_make_again_what_a_release_rests_on(
    run: RunDirectory, started, capsys
) -> None:
    run.update_manifest(code_version="older")
    flip(run.root / "estimates" / "groups" / "county" / "00000.parquet")
    assert main(["resume", str(run.root)]) == 1
    assert "00000.parquet was altered since the run made it; put it back" in capsys.readouterr().err
    assert not started


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("manifest.json", "manifest.json was altered; restore it"),
        ("settings.toml", "settings.toml has been edited since the run began"),
        ("hierarchy/plan.json", "plan.json has been edited since the run was charged"),
        ("spine/charged.json", "charged.json was altered since the run made it"),
    ],
)
def test_what_decides_a_run_is_named_where_it_is_damaged(
    run: RunDirectory, started, capsys, name: str, words: str
) -> None:
    path = run.root / name
    text = path.read_text()
    path.write_text(text.replace("0", "1", 1) if name == "manifest.json" else f"{text} ")
    main(["resume", str(run.root)])
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
    assert not started


def test_a_copy_without_the_measurements_cannot_become_the_run(run: RunDirectory, capsys) -> None:
    files = sorted((run.root / "measurements").rglob("*.parquet"))
    content = files[0].read_bytes()
    for spoil in (files[0].unlink, lambda: files[0].write_bytes(content + b" ")):
        spoil()
        assert main(["ledger", "move", str(run.root)]) == 3
        assert f"lacks 1 of the {len(files)} files of measurements" in capsys.readouterr().err
    files[0].write_bytes(content)
    assert main(["ledger", "move", str(run.root)]) == 0


@pytest.mark.parametrize("seed", ["", "seed = 3\n"])
def test_noise_that_no_seed_fixes_is_not_drawn_again(seed: str, tmp_path: Path, capsys) -> None:
    file = write_dataset(tmp_path, census_like(groups=400, counties=4, states=2, largest=8))
    text = file.read_text()
    assert "confidential = false" in text
    lines = [line for line in text.splitlines() if not line.startswith("seed")]
    file.write_text("\n".join([*lines, seed]))
    run = RunDirectory(tmp_path / "run")
    with stages_in_process(judged_twice=False):
        assert main(["run", "group-sizes", str(file), "--run-dir", str(run.root)]) == 0
        path = next((run.root / "measurements").rglob("*.parquet"))
        content = path.read_bytes()
        path.unlink()
        capsys.readouterr()
        code = main(["resume", str(run.root)])
    if seed:
        assert code == 0 and path.read_bytes() == content
    else:
        assert code == 3 and not path.exists()
        assert "is never drawn again" in capsys.readouterr().err

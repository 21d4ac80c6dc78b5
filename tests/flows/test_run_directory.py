"""Where a run goes that is given no folder, and which settings may change while it is there."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.flows.running import default_run_directory, prepare
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings import have_same_release
from spineflow.tasks.runs.settings_files import with_resume_overrides
from spineflow.tasks.topdown.product import TOPDOWN as PRODUCT


@pytest.fixture
def file(tmp_path: Path, public_settings: str) -> Path:
    path = tmp_path / "town" / "settings.toml"
    path.parent.mkdir()
    path.write_text(f"{public_settings}seed = 1\n", encoding="utf-8")
    return path


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_it_is_beside_the_settings_wherever_the_command_is_given(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    here = default_run_directory(PRODUCT.load("settings.toml"), "settings.toml")
    monkeypatch.chdir(file.parent.parent)
    there = default_run_directory(PRODUCT.load("town/settings.toml"), "town/settings.toml")
    assert here == there
    assert here.parent == file.parent / "runs"
    assert here.name.startswith("county-topdown-")


def test_other_runners_continue_the_same_run_and_other_settings_do_not(file: Path) -> None:
    def place(*overrides: str) -> Path:
        return default_run_directory(PRODUCT.load(file, overrides), file)

    assert place() == place("run.workers=7", "run.runner=processes")
    assert place() != place("run.estimator=full_information")
    assert place() != place("geography.fanout_cutoff=3")


def test_a_run_goes_on_with_another_runner_and_keeps_its_settings(file: Path) -> None:
    settings = PRODUCT.load(file)
    run = prepare(settings, file.parent / "run")
    frozen = run.settings.read_text()
    assert prepare(PRODUCT.load(file, ["run.workers=5"]), run.root) == run
    assert run.settings.read_text() == frozen
    with pytest.raises(InputRefused, match="a run with other settings"):
        prepare(PRODUCT.load(file, ["geography.fanout_cutoff=3"]), run.root)


def test_resume_changes_the_runner_alone(file: Path) -> None:
    settings = PRODUCT.load(file)
    changed = with_resume_overrides(settings, ["run.workers=1", "run.runner=processes"])
    assert (changed.run.workers, changed.run.runner) == (1, "processes")
    assert have_same_release(settings, changed) and changed != settings
    assert with_resume_overrides(settings, []) is settings


@pytest.mark.parametrize("command", ["run", "resume"])
def test_a_name_that_is_not_utf8_is_refused(file: Path, command: str, capsys) -> None:
    folder = os.fsdecode(os.fsencode(file.parent) + b"/r\xfcn")
    arguments = [folder]
    if command == "run":
        arguments = ["topdown", str(file), "--run-dir", folder]
    assert main([command, *arguments]) == 2
    error = capsys.readouterr().err
    assert "r\\udcfcn' is not UTF-8; rename it" in error and error.count("\n") == 1
    assert not Path(folder).exists()


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("run.estimator=full_information", "run.dask_address, release.publish_to, release."),
        ("geography.spine=aian", "a run that has begun keeps its settings"),
        ("run.workers=0", "--set run.workers must be"),
        ("run.runner=abacus", "--set run.runner must be"),
        ("run.workers", "section.key=value"),
    ],
)
def test_resume_refuses_to_change_the_rest(
    file: Path, override: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = prepare(PRODUCT.load(file), file.parent / "run")
    before = run.manifest.read_text()
    assert main(["resume", str(run.root), "--set", override]) == 2
    assert words in capsys.readouterr().err
    assert run.manifest.read_text() == before


@pytest.mark.slow
def test_a_run_directory_has_one_owner(spineflow, tmp_path: Path, capsys) -> None:
    """Threat model: two processes in one run directory."""
    run = RunDirectory(tmp_path / "run")
    settings = tmp_path / "settings.toml"
    settings.write_text(
        'preset = "pl94_2020_us"\n[input]\npersons = "p"\nunits = "u"\ngeography = "g"\n'
        '[privacy]\ndataset = "county"\n'
    )
    with run.locked():
        command = ("run", "topdown", str(settings), "--run-dir", str(run.root))
        code, _, errors = spineflow(*command, folder=tmp_path).ended()
    assert code == 1
    owner = f"in use by process {os.getpid()} on {socket.gethostname()} since "
    assert owner in errors
    assert errors.count("\n") == 1
    assert main(["resume", str(run.root)]) == 2

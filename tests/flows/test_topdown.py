"""The DAG of topdown on generated counties: other settings, and what is found without tasks.

What is true of every finished run is in `conformance`.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from prefect import Task
from prefect.task_runners import ThreadPoolTaskRunner
from spineflow.flows import running
from spineflow.flows.cli import main
from spineflow.flows.running import prepare
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.product import TOPDOWN as PRODUCT

pytestmark = pytest.mark.slow

FEW = 1000
"""Persons of a county of thirty blocks, in several block groups."""
BARE = {"margins": False, "tables": False}
"""A release of microdata alone."""


@pytest.fixture(scope="module")
def small_county(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    generate_county(folder, persons=FEW, seed=3)
    return folder


def write_settings(folder: Path, county: Path, *, preset: str = "pl94_2020_us", **sections) -> Path:
    """A settings file as a user would write it."""
    lines = [f'preset = "{preset}"']
    tables = {
        "input": {
            "persons": str(county / "persons.parquet"),
            "units": str(county / "units.parquet"),
            "geography": str(county / "grfc.txt"),
        },
        "privacy": {"dataset": "county", "ledger": "ledger.db"},
    }
    for name, section in sections.items():
        tables.setdefault(name, {}).update(section)
    for name, section in tables.items():
        lines.append(f"[{name}]")
        lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in section.items()]
    path = folder / "settings.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def run_settings(settings_file: Path, run_directory: Path) -> RunDirectory:
    settings = PRODUCT.load(settings_file)
    run = prepare(settings, run_directory)
    running.run_stages(PRODUCT, run, settings)
    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.usefixtures("in_process", "uncompared")
def test_finished_release_outlives_new_code_and_new_input(
    small_county: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    tables = tmp_path / "tables"
    shutil.copytree(small_county, tables)
    settings = write_settings(
        tmp_path,
        tables,
        input={"confidential": False},
        privacy={"seed": 4},
        release=BARE,
    )
    run = run_settings(settings, tmp_path / "run")
    before = contents(run.release)
    (tables / "persons.parquet").touch()
    assert main(["run", "topdown", str(settings), "--run-dir", str(run.root)]) == 2
    assert "has changed" in capsys.readouterr().err
    monkeypatch.setattr("spineflow.tasks.runs.directory.code_version", lambda: "another")
    assert main(["resume", str(run.root)]) == 2
    assert contents(run.release) == before
    assert run.read_manifest()["status"] == "complete"


@pytest.mark.soak(5)
@pytest.mark.usefixtures("prefect_server")
def test_much_that_was_made_before_is_found_without_tasks(
    finished_run, tmp_path: Path, monkeypatch
) -> None:
    finished = finished_run("topdown").run
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(finished.root, run.root)
    for name in ("release", "validation", "report"):
        shutil.rmtree(run.root / name)
    shutil.rmtree(run.estimates("units", "Block", "").parent)
    monkeypatch.setattr("spineflow.flows.stages.MOST_FOUND_BY_TASKS", 0)
    begun = []
    submit = ThreadPoolTaskRunner.submit

    def noted(runner: ThreadPoolTaskRunner, task: Task, parameters, *further):
        begun.append((task.name, *list(parameters.values())[1:3]))
        return submit(runner, task, parameters, *further)

    monkeypatch.setattr(ThreadPoolTaskRunner, "submit", noted)
    assert main(["resume", str(run.root)]) == 0
    assert [call for call in begun if call[0] in ("measure", "estimate")] == [
        ("estimate", "units", "Block")
    ]
    assert ("write microdata", "persons") in [call[:2] for call in begun]
    stages, before = (one.read_manifest()["stages"] for one in (run, finished))
    assert list(stages) == list(before)
    for name, stage in stages.items():
        if "measure" in name or "estimate" in name:
            assert stage["digests"] == before[name]["digests"]
    assert contents(run.estimates("units", "Block", "").parent) == contents(
        finished.estimates("units", "Block", "").parent
    )
    for name in ("mdf_persons.csv", "mdf_units.csv"):
        assert (run.release / name).read_bytes() == (finished.release / name).read_bytes()

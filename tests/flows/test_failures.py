"""A worker of Dask that dies in the middle of a run: the release is that of its measurements."""

from __future__ import annotations

import tomllib
from fractions import Fraction
from pathlib import Path

import pytest
from spineflow.flows.cli import main
from spineflow.tasks.ledger.caps import Caps, set_caps
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.ledger.summary import summary
from spineflow.tasks.runs.directory import RunDirectory, remove_derived

from tests.flows.in_process import stages_in_process, uncompared

pytestmark = pytest.mark.slow

LIVE_ARTIFACT = "estimates/persons/US/00000.parquet"
"""Appears while a run is in the middle of its work."""


def started_run(spineflow, folder: Path, text: str, *options: str, **environment: str):
    """A run in the middle of its estimates, and its command."""
    (folder / "settings.toml").write_text(text)
    set_caps(open_ledger(folder / "ledger.db"), None, Caps(Fraction(9)))
    run = RunDirectory(folder / "run")
    command = ["run", "topdown", str(folder / "settings.toml"), "--run-dir", str(run.root)]
    overrides = [part for option in options for part in ("--set", option)]
    return run, spineflow(*command, *overrides, folder=folder, **environment)


def released(run: RunDirectory) -> dict[str, bytes]:
    return {
        path.relative_to(run.release).as_posix(): path.read_bytes()
        for path in sorted(run.release.rglob("*"))
        if path.is_file() and path.stem != "certificate"
    }


def assert_sound(run: RunDirectory) -> None:
    """The release is that of an uninterrupted run from its measurements, under one charge."""
    assert run.read_manifest()["status"] == "complete"
    ledger = Path(tomllib.loads(run.settings.read_text())["privacy"]["ledger"])
    spent = summary(open_ledger(ledger, must_exist=True))["datasets"]["county"]
    assert len(spent["products"]["topdown"]["draws"]) == 2
    assert not [path for path in run.root.rglob("*") if path.suffix in (".part", ".unpublished")]
    made = released(run)
    assert "mdf_persons.csv" in made
    remove_derived(run)
    with stages_in_process(judged_twice=False), uncompared():
        assert main(["resume", str(run.root)]) == 0
    assert released(run) == made


@pytest.mark.soak(60)
@pytest.mark.parametrize(
    "moment", ["measurements/persons/US/dpqueries/00000.parquet", LIVE_ARTIFACT]
)
def test_dask_worker_killed(
    spineflow, new_spineflow, real_server, settings_text: str, tmp_path: Path, moment: str
) -> None:
    pytest.importorskip("prefect_dask", reason="needs prefect-dask: install the extra 'dask'")
    psutil = pytest.importorskip("psutil")
    environment = real_server.environment
    dask = "run.runner=dask"
    run, command = started_run(new_spineflow, tmp_path, settings_text, dask, **environment)
    command.wait_for(run.root / moment)
    children = psutil.Process(command.process.pid).children(recursive=True)
    workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    assert workers
    workers[0].kill()
    code, _, errors = command.ended()
    assert (code, errors) == (0, "")
    assert_sound(run)

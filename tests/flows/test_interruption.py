"""Runs that are killed and continued."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tasks.measurement.ledger import open_ledger, summary
from tasks.run_directory import DERIVED, RunDirectory

pytestmark = pytest.mark.slow

GIVE_UP_AFTER = 300


def spineflow(*arguments: str, folder: Path) -> subprocess.Popen:
    environment = os.environ | {"PREFECT_HOME": str(folder / "prefect")}
    return subprocess.Popen(
        [sys.executable, "-m", "flows.cli", *arguments],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(process: subprocess.Popen, path: Path) -> None:
    """Return as soon as `path` exists, or when the process is done: some exist for a moment."""
    deadline = time.monotonic() + GIVE_UP_AFTER
    while not path.exists() and process.poll() != 0:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.005)


def write_settings(folder: Path, county: Path) -> Path:
    settings = folder / "settings.toml"
    settings.write_text(
        f'preset = "pl94_2020_us"\n[input]\npersons = "{county / "persons.parquet"}"\n'
        f'units = "{county / "units.parquet"}"\ngeography = "{county / "grfc.txt"}"\n'
        '[privacy]\ndataset = "county"\nledger = "ledger.db"\n'
    )
    return settings


def measurements(run: RunDirectory) -> dict[Path, tuple[int, bytes]]:
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes())
        for path in (run.root / "measurements").rglob("dpqueries/*.parquet")
    }


def resume(run: RunDirectory, folder: Path) -> dict[str, bytes]:
    """Resume quietly to the end; the text files of the release."""
    resumed = spineflow("resume", str(run.root), folder=folder)
    output, errors = resumed.communicate(timeout=GIVE_UP_AFTER)
    assert resumed.returncode == 0, errors
    assert errors == ""
    assert "checks passed" in output
    return {path.name: path.read_bytes() for path in run.release.glob("*.csv")}


def kill_and_resume(county: Path, folder: Path, moment: str) -> None:
    """Kill a run once a file is there; the resumed run must give what its measurements imply."""
    settings = write_settings(folder, county)
    run = RunDirectory(folder / "run")
    killed = spineflow("run", "topdown", str(settings), "--run-dir", str(run.root), folder=folder)
    wait_for(killed, run.root / moment)
    with suppress(ProcessLookupError):
        os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    measured = measurements(run)

    released = resume(run, folder)
    after = measurements(run)
    assert {path: after[path] for path in measured} == measured
    assert not [path for path in run.root.rglob("*") if path.suffix in (".part", ".unpublished")]
    spent = summary(open_ledger(folder / "ledger.db", must_exist=True))["datasets"]["county"]
    assert len(spent["products"]["topdown"]["draws"]) == 2

    for name in DERIVED:
        shutil.rmtree(run.root / name, ignore_errors=True)
    assert resume(run, folder) == released


def test_killed_estimation_resumes_to_the_release_of_its_measurements(
    county: Path, tmp_path: Path
) -> None:
    kill_and_resume(county, tmp_path, "estimates/persons/Tract/00000.parquet")


@pytest.mark.soak
@pytest.mark.parametrize(
    "moment",
    [
        "manifest.json",
        "validation/rules.json",
        "confidential/histograms/persons.parquet",
        "spine/state_totals.json",
        "spine/persons/blocks.parquet",
        "spine/units/shards.parquet",
        "measurements/persons/US/dpqueries/00000.parquet",
        "measurements/persons/Block/dpqueries/00000.parquet",
        "measurements/units/Block/dpqueries/00000.parquet",
        "estimates/persons/US/00000.parquet",
        "estimates/persons/Block/00000.parquet",
        "release-unchecked/mdf_persons.parquet",
        "release-unchecked/mdf_units.csv",
        "validation/checks.json",
        "release-unchecked/certificate.md",
        "release",
        "report",
    ],
)
def test_killed_at_any_moment(county: Path, tmp_path: Path, moment: str) -> None:
    kill_and_resume(county, tmp_path, moment)


def test_a_run_directory_has_one_owner(tmp_path: Path, capsys) -> None:
    from flows.cli import main

    run = RunDirectory(tmp_path / "run")
    settings = tmp_path / "settings.toml"
    settings.write_text(
        'preset = "pl94_2020_us"\n[input]\npersons = "p"\nunits = "u"\ngeography = "g"\n'
        '[privacy]\ndataset = "county"\n'
    )
    with run.locked():
        code = subprocess.run(
            [sys.executable, "-m", "flows.cli", "run", "topdown", str(settings)]
            + ["--run-dir", str(run.root)],
            env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
            capture_output=True,
            text=True,
        )
    assert code.returncode == 1
    assert "in use by another process" in code.stderr
    assert main(["resume", str(run.root)]) == 2

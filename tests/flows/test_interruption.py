"""Runs that are killed and continued."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tasks.measurement.ledger import open_ledger, summary
from tasks.run_directory import RunDirectory

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
    """Return as soon as `path` exists while the process runs."""
    deadline = time.monotonic() + GIVE_UP_AFTER
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_killed_estimation_resumes_to_the_release_of_its_measurements(
    county: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text(
        'preset = "pl94_2020_us"\n[input]\n'
        + "".join(
            f'{name} = "{county / file}"\n'
            for name, file in (
                ("persons", "persons.parquet"),
                ("units", "units.parquet"),
                ("geography", "grfc.txt"),
            )
        )
        + '[privacy]\ndataset = "county"\nledger = "ledger.db"\n'
    )
    run = RunDirectory(tmp_path / "run")
    killed = spineflow("run", "topdown", str(settings), "--run-dir", str(run.root), folder=tmp_path)
    wait_for(killed, run.estimates("persons", "Tract", "00000"))
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not run.release.exists()
    measured = {
        path: (path.stat().st_mtime_ns, path.read_bytes())
        for path in (run.root / "measurements").rglob("dpqueries/*.parquet")
    }
    assert measured

    resumed = spineflow("resume", str(run.root), folder=tmp_path)
    output, errors = resumed.communicate(timeout=GIVE_UP_AFTER)
    assert resumed.returncode == 0, errors
    assert errors == ""
    assert "checks passed" in output
    after = {
        path: (path.stat().st_mtime_ns, path.read_bytes())
        for path in (run.root / "measurements").rglob("dpqueries/*.parquet")
    }
    assert after == measured
    assert not list(run.root.rglob("*.part"))
    spent = summary(open_ledger(tmp_path / "ledger.db", must_exist=True))["datasets"]["county"]
    assert len(spent["products"]["topdown"]["draws"]) == 2

    released = {
        path.name: path.read_bytes() for path in run.release.iterdir() if path.suffix == ".csv"
    }
    for name in ("estimates", "solves", "release", "validation"):
        shutil.rmtree(run.root / name)
    again = spineflow("resume", str(run.root), folder=tmp_path)
    _, errors = again.communicate(timeout=GIVE_UP_AFTER)
    assert again.returncode == 0, errors
    for name, text in released.items():
        assert (run.release / name).read_bytes() == text


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

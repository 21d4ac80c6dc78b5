"""What fails around a run: its server, a worker, the disk, the databases.

Each ends in success once the failure has passed, or in one sentence and a run that can be
continued; the release is the one that the measurements imply.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
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

FIRST_MEASUREMENT = "measurements/persons/US/dpqueries/00000.parquet"


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


def assert_resumable(spineflow, run: RunDirectory, errors: str, words: str, **environment) -> None:
    """One sentence with some words, and a run that goes on once the failure has passed."""
    assert errors.startswith("spineflow: "), errors
    assert errors.count("\n") == 1, errors
    assert words in errors
    resumed = spineflow("resume", str(run.root), folder=run.root.parent, **environment)
    code, _, errors = resumed.ended()
    assert (code, errors) == (0, "")
    assert_sound(run)


@contextmanager
def held(database: Path, seconds: float) -> Iterator[None]:
    """Somebody else holds a database for a while."""
    connection = sqlite3.connect(database, isolation_level=None, timeout=60)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        time.sleep(seconds)
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


@pytest.mark.soak
def test_server_stopped_and_started_in_the_middle(
    spineflow, own_server, settings_text: str, tmp_path: Path
) -> None:
    own_server.start()
    run, command = started_run(spineflow, tmp_path, settings_text, **own_server.environment)
    command.wait_for(run.root / LIVE_ARTIFACT)
    own_server.stop()
    time.sleep(3)
    own_server.start()
    code, _, errors = command.ended()
    assert (code, errors) == (0, "")
    assert_sound(run)


@pytest.mark.soak
def test_server_that_stays_away(
    spineflow, new_spineflow, own_server, settings_text: str, tmp_path: Path
) -> None:
    own_server.start()
    impatient = {"PREFECT_CLIENT_MAX_RETRIES": "1"}
    environment = own_server.environment | impatient
    run, command = started_run(new_spineflow, tmp_path, settings_text, **environment)
    command.wait_for(run.root / LIVE_ARTIFACT)
    own_server.stop()
    # Prefect goes on trying to send its queue of events for minutes, while the run is free.
    errors = command.first_error()
    command.kill()
    own_server.start()
    words = "The Prefect server (PREFECT_API_URL) does not answer; when it does, continue with"
    assert_resumable(spineflow, run, errors, words, **own_server.environment)


@pytest.mark.soak
def test_server_that_is_not_there(new_spineflow, settings_text: str, tmp_path: Path) -> None:
    nowhere = {"PREFECT_API_URL": "http://127.0.0.1:9/api"}
    run, command = started_run(new_spineflow, tmp_path, settings_text, **nowhere)
    code, _, errors = command.ended()
    assert code == 1
    assert errors == (
        "spineflow: The Prefect server (PREFECT_API_URL) does not answer; when it does, continue "
        f"with 'spineflow resume {run.root}'.\n"
    )


@pytest.mark.soak
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


@pytest.mark.soak
def test_prefect_database_held_for_a_while(
    spineflow, own_server, settings_text: str, tmp_path: Path
) -> None:
    own_server.start()
    run, command = started_run(spineflow, tmp_path, settings_text, **own_server.environment)
    command.wait_for(run.root / LIVE_ARTIFACT)
    with held(own_server.database, 15):
        pass
    code, _, errors = command.ended()
    assert (code, errors) == (0, "")
    assert_sound(run)


@pytest.mark.soak
def test_ledger_held_for_a_while(
    spineflow, real_server, settings_text: str, tmp_path: Path
) -> None:
    run, command = started_run(spineflow, tmp_path, settings_text, **real_server.environment)
    command.wait_for(run.root / "spine" / "units" / "shards.parquet")
    with held(tmp_path / "ledger.db", 10):
        pass
    code, _, errors = command.ended()
    assert (code, errors) == (0, "")
    assert_sound(run)


IMPATIENT = """
import sys
import spineflow.tasks.ledger.store
spineflow.tasks.ledger.store.BUSY_SECONDS = 1
from spineflow.flows.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.soak
def test_ledger_held_for_longer_than_a_run_waits(
    spineflow, real_server, settings_text: str, tmp_path: Path
) -> None:
    run, command = started_run(
        spineflow, tmp_path, settings_text, program=IMPATIENT, **real_server.environment
    )
    command.wait_for(run.root / "spine" / "state_totals.json")
    connection = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None, timeout=60)
    connection.execute("BEGIN EXCLUSIVE")
    code, _, errors = command.ended()
    connection.close()
    assert code == 3
    words = "cannot be used (database is locked); end the program that holds it"
    assert_resumable(spineflow, run, errors, words, **real_server.environment)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, which the test makes small or read-only."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def remount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(disk)], check=True)


def run_on(disk: Path, spineflow, text: str, moment: tuple[str, str, str], **environment: str):
    """A run on a disk that was killed at a moment, with its ledger elsewhere."""
    settings = disk.parent / "settings.toml"
    settings.write_text(text)
    run = RunDirectory(disk / "run")
    command = ["run", "topdown", str(settings), "--run-dir", str(run.root)]
    killed = spineflow(*command, folder=disk.parent, killed=moment, **environment)
    assert killed.ended()[0] == -9
    return run


def used_kilobytes(disk: Path) -> int:
    status = os.statvfs(disk)
    return (status.f_blocks - status.f_bfree) * status.f_frsize // 1024


@pytest.mark.soak
def test_disk_full_at_release(
    spineflow, real_server, small_disk: Path, settings_text: str, tmp_path: Path
) -> None:
    environment = real_server.environment
    moment = ("before", "os:replace", "mdf_")
    run = run_on(small_disk, spineflow, settings_text, moment, **environment)
    shutil.rmtree(run.unchecked_release)
    remount(small_disk, f"size={used_kilobytes(small_disk) + 64}k")
    code, _, errors = spineflow("resume", str(run.root), folder=tmp_path, **environment).ended()
    assert code == 1
    assert not run.release.exists()
    remount(small_disk, "size=64m")
    manifest = run.read_manifest()
    assert manifest["status"] in ("failed", "running")
    assert_resumable(spineflow, run, errors, "No space left on device", **environment)


@pytest.mark.soak
def test_run_directory_becomes_read_only(
    spineflow, real_server, small_disk: Path, settings_text: str, tmp_path: Path
) -> None:
    environment = real_server.environment
    moment = ("before", "os:replace", LIVE_ARTIFACT)
    run = run_on(small_disk, spineflow, settings_text, moment, **environment)
    remount(small_disk, "ro")
    code, _, errors = spineflow("resume", str(run.root), folder=tmp_path, **environment).ended()
    assert code == 1
    remount(small_disk, "rw")
    assert_resumable(spineflow, run, errors, "(Read-only file system); make it", **environment)

"""The lock of a run directory: one owner, named to others, gone with its process."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from spineflow.tasks.runs import files
from spineflow.tasks.runs.directory import (
    IDENTITY,
    LOCK,
    RunDirectory,
    refuse_altered,
    remove_derived,
    remove_unfinished,
    start_run,
)
from spineflow.tasks.runs.errors import InputRefused, SpineflowError
from spineflow.tasks.runs.files import (
    STAMP_FILE,
    cache_unchanged,
    digest_of,
    read_record,
    sha256_of_file,
)
from spineflow.tasks.runs.handles import Artifact

HOLDER = """
import sys, time
from functools import partial
from pathlib import Path
from spineflow.tasks.runs.directory import RunDirectory
with RunDirectory(Path(sys.argv[1])).locked():
    print("locked", flush=True)
    time.sleep(300)
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "run")


def start_holder(run: RunDirectory) -> subprocess.Popen:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run.root)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout.readline() == "locked\n"
    return holder


def test_a_second_owner_is_refused_and_told_who_the_first_is(run: RunDirectory) -> None:
    holder = start_holder(run)
    try:
        named = f"in use by process {holder.pid} on {socket.gethostname()} since 2.*Z; wait"
        with pytest.raises(SpineflowError, match=named), run.locked():
            pass
    finally:
        holder.kill()
        holder.wait()


def test_the_lock_of_a_killed_owner_is_stale(run: RunDirectory) -> None:
    holder = start_holder(run)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert f"process {holder.pid} on" in (run.root / LOCK).read_text()
    with run.locked():
        assert f"process {os.getpid()} on" in (run.root / LOCK).read_text()


def test_a_file_system_without_locks_is_refused(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(SpineflowError, match="has no locks"), run.locked():
        pass


def test_a_run_that_was_killed_before_its_manifest_begins_again(run: RunDirectory) -> None:
    run.root.mkdir()
    run.confidential.mkdir(mode=0o700)
    for name in (LOCK, IDENTITY, "settings.toml.0a1b2c3d.part", "manifest.json.0a1b2c3d.part"):
        (run.root / name).touch()
    start_run(run, product="topdown", settings_text="")
    assert run.read_manifest()["status"] == "prepared"
    assert not list(run.root.glob("*.part"))


def test_a_folder_with_files_of_others_is_refused_and_left_alone(run: RunDirectory) -> None:
    run.root.mkdir()
    (run.root / "movie.part").touch()
    with pytest.raises(InputRefused, match="not empty and holds no run"):
        start_run(run, product="topdown", settings_text="")
    assert (run.root / "movie.part").exists()


def test_what_killed_writers_left_is_removed(run: RunDirectory) -> None:
    measured = run.dpqueries("persons", "US", "00000")
    measured.parent.mkdir(parents=True)
    unpublished = ".00000.parquet.0a.unpublished"
    left = [
        run.root / "manifest.json.0a.part",
        measured.with_name(unpublished),
        run.unrecorded(measured) / unpublished,
    ]
    left[-1].parent.mkdir(parents=True)
    for path in (measured, *left):
        path.touch()
    remove_unfinished(run)
    assert measured.exists()
    assert not any(path.exists() for path in left)


def test_outcomes_of_the_input_outlive_what_is_derived(run: RunDirectory) -> None:
    run.checks.mkdir(parents=True)
    for name in ("rules.json", "checks.json"):
        (run.checks / name).touch()
    (run.root / "estimates").mkdir()
    remove_derived(run)
    assert [path.name for path in run.checks.iterdir()] == ["rules.json"]
    assert not (run.root / "estimates").exists()


def test_digests_of_what_another_version_derived_are_forgotten(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_run(run, product="topdown", settings_text="")
    made = {"persons measure US": "measurements/persons/US/a", "persons estimate US": "estimates/a"}
    run.record_stages({stage: [Artifact(path, "0f")] for stage, path in made.items()})
    start_run(run, product="topdown", settings_text="")
    assert set(run.read_manifest()["stages"]) == set(made)
    monkeypatch.setattr("spineflow.tasks.runs.directory.code_version", lambda: "another")
    start_run(run, product="topdown", settings_text="")
    assert set(run.read_manifest()["stages"]) == {"persons measure US"}


@pytest.mark.parametrize("is_finished", [False, True])
@pytest.mark.parametrize("damage", ["", "private"])
def test_the_stamp_of_a_run_that_is_not_private_is_put_back(
    run: RunDirectory, damage: str, is_finished: bool
) -> None:
    """What is written later looks for it."""
    begin = partial(start_run, run, product="p", settings_text="x", stamp="NOT PRIVATE: a seed")
    begin()
    if is_finished:
        run.release.mkdir()
    file = run.root / STAMP_FILE
    file.unlink()
    if damage:
        file.write_text(damage)
    begin()
    assert file.read_text() == "NOT PRIVATE: a seed.\n"


def test_a_file_is_read_again_once_it_was_changed_whatever_its_time_says(tmp_path: Path) -> None:
    reads: list[str] = []

    @cache_unchanged(lambda folder, name: folder / name, at_most=2)
    def read(folder: Path, name: str) -> str:
        reads.append(name)
        return (folder / name).read_text()

    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    for _ in range(3):
        assert (read(tmp_path, "a"), read(tmp_path, "b")) == ("a", "b")
    assert reads == ["a", "b"]
    before = (tmp_path / "a").stat()
    (tmp_path / "a").write_text("c")
    os.utime(tmp_path / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read(tmp_path, "a") == "c"


def test_json_of_any_depth_that_is_no_record_is_refused(tmp_path: Path) -> None:
    for file in (tmp_path / "record.json", tmp_path / "manifest.json"):
        file.write_text("[" * 100_000)
    with pytest.raises(InputRefused, match="record.json cannot be read"):
        read_record(tmp_path / "record.json")
    with pytest.raises(InputRefused, match="manifest.json cannot be read"):
        RunDirectory(tmp_path).read_manifest()


@pytest.fixture
def read(monkeypatch) -> list[str]:
    """Names of the files that are hashed."""
    names: list[str] = []

    def noted(path: Path) -> str:
        names.append(path.name)
        return sha256_of_file(path)

    monkeypatch.setattr(files, "sha256_of_file", noted)
    return names


def test_a_file_is_hashed_again_when_it_has_changed(tmp_path: Path, read: list[str]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"first")
    before = path.stat()
    assert digest_of(path) == digest_of(path) == hashlib.sha256(b"first").hexdigest()
    assert read == ["file"]
    path.write_bytes(b"other")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert digest_of(path) == hashlib.sha256(b"other").hexdigest()
    assert read == ["file"] * 2


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "spine/../../outside", ""])
def test_names_that_lead_out_of_a_run_are_not_opened(
    tmp_path: Path, read: list[str], name: str
) -> None:
    """Threat model: names that lead out of the run directory."""
    run = RunDirectory(tmp_path / "run")
    (run.root / "spine").mkdir(parents=True)
    (tmp_path / "outside").write_bytes(b"outside")
    (run.root / "spine" / "charged.json").write_text(json.dumps({name: "00"}))
    with pytest.raises(InputRefused, match=r"charged\.json cannot be read"):
        refuse_altered(run)
    assert not read

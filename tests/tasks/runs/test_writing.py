from __future__ import annotations

import errno
import multiprocessing
import os
import signal
from pathlib import Path

import pytest
from spineflow.tasks.runs.files import (
    Recording,
    discard_unfinished,
    name_recorded,
    sha256_of_file,
    write_once,
)

FORK = multiprocessing.get_context("fork")


@pytest.fixture(params=[False, True])
def file_system(request, monkeypatch):
    """One file system for both folders, and one for each."""
    real = os.link

    def refusing(source, target, **named):
        if Path(source).parent != Path(target).parent:
            raise OSError(errno.EXDEV, "another file system", source)
        real(source, target, **named)

    if request.param:
        monkeypatch.setattr(os, "link", refusing)


def test_a_file_appears_whole_and_alone(tmp_path):
    path = tmp_path / "folder" / "0.parquet"
    assert write_once(path, lambda file: file.write(b"first")) == path
    assert path.read_bytes() == b"first"
    assert list(path.parent.iterdir()) == [path]


def test_of_two_writers_at_once_the_first_to_finish_publishes(tmp_path):
    path = tmp_path / "0.parquet"

    def slow(file):
        file.write(b"second")
        write_once(path, lambda other: other.write(b"first"))

    write_once(path, slow)
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    def failing(file):
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_once(tmp_path / "0.parquet", failing)
    assert list(tmp_path.iterdir()) == []


def write_and_die(path):
    def dying(file):
        file.write(b"half")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    write_once(path, dying)


def killed_at(path):
    process = FORK.Process(target=write_and_die, args=(path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    return list(path.parent.iterdir())


def test_what_a_killed_writer_left_is_removed_and_a_living_one_is_not_disturbed(tmp_path):
    path = tmp_path / "0.parquet"
    assert len(killed_at(path)) == 1

    def living(file):
        assert len(list(tmp_path.iterdir())) == 1
        discard_unfinished(path)
        assert len(list(tmp_path.iterdir())) == 1
        file.write(b"whole")

    write_once(path, living)
    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]


def publish_number(barrier, path, number):
    barrier.wait()
    write_once(path, lambda file: file.write(bytes([number]) * 100_000))
    os._exit(0)


def test_many_writers_at_once_publish_one_whole_file(tmp_path):
    path = tmp_path / "0.parquet"
    barrier = FORK.Barrier(8)
    processes = [
        FORK.Process(target=publish_number, args=(barrier, path, number)) for number in range(8)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 8
    content = path.read_bytes()
    assert content == content[:1] * 100_000
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_closed_to_others_until_it_is_recorded(tmp_path, file_system):
    """Threat model: other accounts read the run directory."""
    path, folder = tmp_path / "open" / "0.parquet", tmp_path / "closed" / "0"
    told = []

    def record(file: Path) -> None:
        assert file.parent == folder
        assert not list(path.parent.iterdir())
        told.append((file.read_bytes(), file.stat().st_mode & 0o777))

    def write(file):
        file.write(b"noise")
        file.flush()
        for entry in tmp_path.rglob("*"):
            assert entry.is_dir() or entry.stat().st_mode & 0o077 == 0

    write_once(path, write, Recording(folder, record))
    assert told == [(b"noise", 0o600)]
    assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777 == 0o700
    assert path.read_bytes() == b"noise"
    assert path.stat().st_mode & 0o777 == path.parent.stat().st_mode & 0o666
    assert [entry for entry in tmp_path.rglob("*") if entry.is_file()] == [path]


def test_what_may_be_recorded_stays_closed_until_it_gets_its_name(tmp_path, file_system):
    path, folder = tmp_path / "open" / "0.parquet", tmp_path / "closed"

    def record(file: Path) -> None:
        raise OSError("the ledger is away")

    with pytest.raises(OSError, match="the ledger is away"):
        write_once(path, lambda file: file.write(b"noise"), Recording(folder, record))
    assert not list(path.parent.iterdir())
    (left,) = folder.iterdir()
    assert left.stat().st_mode & 0o777 == 0o600
    assert not name_recorded(path, "another digest", folder)
    assert name_recorded(path, sha256_of_file(left), folder)
    assert path.read_bytes() == b"noise"
    assert path.stat().st_mode & 0o777 == path.parent.stat().st_mode & 0o666
    assert not list(folder.iterdir())


def test_what_was_not_recorded_is_removed_by_the_next_writer(tmp_path):
    """Also what workers of earlier versions left beside the file."""
    path, folder = tmp_path / "open" / "0.parquet", tmp_path / "closed"
    recording = Recording(folder, lambda file: None)
    left = [place / ".0.parquet.0a.unpublished" for place in (path.parent, folder)]
    for file in left:
        file.parent.mkdir()
        file.write_bytes(b"first")
    write_once(path, lambda file: file.write(b"second"), recording)
    assert path.read_bytes() == b"second"
    assert not any(file.exists() for file in left)


def test_what_an_earlier_version_recorded_beside_the_file_gets_its_name(tmp_path):
    path = tmp_path / "0.parquet"
    left = tmp_path / ".0.parquet.0a.unpublished"
    left.write_bytes(b"noise")
    assert name_recorded(path, sha256_of_file(left), tmp_path / "closed")
    assert path.read_bytes() == b"noise"
    assert list(tmp_path.iterdir()) == [path]

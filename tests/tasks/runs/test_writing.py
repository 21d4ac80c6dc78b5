from __future__ import annotations

import multiprocessing
import os
import signal

import pytest
from spineflow.tasks.runs.writing import discard_unfinished, write_once

FORK = multiprocessing.get_context("fork")


def test_a_file_appears_whole_and_alone(tmp_path):
    path = tmp_path / "folder" / "0.parquet"
    assert write_once(path, lambda file: file.write(b"first")) == path
    assert path.read_bytes() == b"first"
    assert list(path.parent.iterdir()) == [path]


def test_a_published_file_is_kept_and_nothing_is_written(tmp_path):
    path = tmp_path / "0.parquet"
    write_once(path, lambda file: file.write(b"first"))

    def must_not_run(file):
        raise AssertionError

    assert write_once(path, must_not_run) == path
    assert path.read_bytes() == b"first"


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


def test_what_a_killed_writer_left_is_removed_and_a_living_one_is_not_disturbed(tmp_path):
    path = tmp_path / "0.parquet"
    process = FORK.Process(target=write_and_die, args=(path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1

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

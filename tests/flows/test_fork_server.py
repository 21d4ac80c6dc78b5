"""Workers that are forked from a fork of the command: they have what it had, and end as it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from multiprocessing import forkserver
from pathlib import Path

import pytest
from spineflow.flows import fork_server, forking
from spineflow.flows.runners import begin_forking, chosen_runner
from spineflow.tasks.runs.settings import RunnerSettings

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or sys.version_info >= (3, 14), reason="workers are forked on Linux"
)

PATIENCE = 60

PROGRAM = """
import json, os, signal, sys, threading, time
from concurrent.futures.process import BrokenProcessPool
import spineflow.flows
from spineflow.flows import fork_server, forking
from spineflow.flows.runners import begin_forking, task_runner
from spineflow.tasks.runs.settings import RunnerSettings

PLACE = "nowhere"
held, ends = os.pipe()

def make_ready():
    global PLACE
    PLACE = "made ready"

def told():
    return {
        "process": os.getpid(),
        "server": os.getppid(),
        "place": PLACE,
        "threads": threading.active_count(),
        "ignores": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
        "ends": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
        "holds": os.readlink(f"/proc/self/fd/{ends}"),
        "noise": os.urandom(8).hex(),
    }

def told_slowly(_):
    time.sleep(0.3)
    return told()

def main():
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    forking.allow()
    settings = RunnerSettings(workers=2)
    assert begin_forking(settings, make_ready) and begin_forking(settings, make_ready)
    kind = sys.argv[1]
    if kind == "server lost":
        os.kill(fork_server._python_s()._forkserver_pid, signal.SIGKILL)
        time.sleep(0.3)
    with task_runner(settings) as runner:
        pool = runner._executor
        workers = list(pool.map(told_slowly, range(2)))
        print(json.dumps(workers), flush=True)
        if kind == "worker lost":
            os.kill(workers[0]["process"], signal.SIGKILL)
            try:
                pool.submit(time.sleep, 60).result()
            except BrokenProcessPool:
                print("broken", flush=True)
        elif kind == "command killed":
            pool.submit(time.sleep, 600)
            time.sleep(600)

if __name__ == "__main__":
    main()
"""


def begun(kind: str, folder: Path) -> tuple[subprocess.Popen, list[dict]]:
    """A program whose workers have told of themselves."""
    file = folder / "program.py"
    file.write_text(PROGRAM)
    program = subprocess.Popen([sys.executable, str(file), kind], stdout=subprocess.PIPE, text=True)
    return program, json.loads(program.stdout.readline())


def is_running(process: int) -> bool:
    """Whether a process is there and not a zombie that nobody has asked about."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def all_end(processes: set[int]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while any(map(is_running, processes)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(is_running, processes))


@pytest.mark.slow
def test_workers_have_what_was_made_ready_and_nothing_of_the_command_s(tmp_path: Path) -> None:
    program, workers = begun("whole", tmp_path)
    assert program.wait(PATIENCE) == 0
    one, other = workers
    assert one["process"] != other["process"] and one["noise"] != other["noise"]
    assert one["server"] == other["server"] != program.pid
    for worker in workers:
        assert worker["place"] == "made ready"
        assert worker["ignores"] and worker["ends"]
        assert worker["holds"] == "/dev/null", "a pipe whose end somebody waits for"
    assert all_end({one["process"], other["process"], one["server"]})


@pytest.mark.slow
def test_workers_and_their_server_end_with_a_killed_command(tmp_path: Path) -> None:
    program, workers = begun("command killed", tmp_path)
    program.kill()
    program.wait()
    assert all_end({workers[0]["server"], *(worker["process"] for worker in workers)})


def test_a_worker_that_is_lost_is_told_of(tmp_path: Path) -> None:
    """As the system ends one where memory is wanting."""
    program, workers = begun("worker lost", tmp_path)
    assert program.stdout.readline() == "broken\n"
    assert program.wait(PATIENCE) == 0
    assert all_end({workers[0]["server"], *(worker["process"] for worker in workers)})


@pytest.mark.slow
def test_a_server_that_is_lost_is_begun_again(tmp_path: Path) -> None:
    """By Python: its workers import what they need."""
    program, workers = begun("server lost", tmp_path)
    assert program.wait(PATIENCE) == 0
    assert {worker["place"] for worker in workers} == {"nowhere"}


def test_only_a_command_s_own_process_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """This one may hold anything."""
    settings = RunnerSettings()
    assert not begin_forking(settings, lambda: None)
    assert chosen_runner(settings) == "threads"
    assert chosen_runner(RunnerSettings(runner="processes")) == "processes"
    monkeypatch.setattr(fork_server, "is_there", lambda: True)
    assert chosen_runner(settings) == "processes"
    assert chosen_runner(RunnerSettings(runner="dask")) == "dask"


def test_a_fork_server_of_somebody_else_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    forkserver.ensure_running()
    monkeypatch.setattr(forking, "_is_allowed", True)
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    assert not begin_forking(RunnerSettings(), lambda: None)
    assert chosen_runner(RunnerSettings()) == "threads"


def test_a_process_with_threads_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "_is_allowed", True)
    goes_on = threading.Event()
    thread = threading.Thread(target=goes_on.wait)
    thread.start()
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    assert not begin_forking(RunnerSettings(), lambda: None)
    goes_on.set()
    thread.join()

"""The worker processes of a command that is killed end with it, in the middle of a task too."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

PATIENCE = 60

COMMAND = """
import os, time
from spineflow.flows.runners import task_runner
from spineflow.tasks.runs.settings import RunnerSettings

runner = task_runner(RunnerSettings(runner="processes", workers=1))
with runner.duplicate() as begun:
    pool = begun._executor
    print(pool.submit(os.getpid).result(), flush=True)
    pool.submit(time.sleep, 600)
    time.sleep(600)
"""


def is_running(process: str) -> bool:
    """Whether a process is there and not a zombie that nobody has asked about."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_workers_end_with_a_killed_command() -> None:
    command = subprocess.Popen([sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, text=True)
    worker = command.stdout.readline().strip()
    assert is_running(worker)
    command.kill()
    command.wait()
    deadline = time.monotonic() + PATIENCE
    while is_running(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(worker)

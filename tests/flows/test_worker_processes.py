"""The worker processes of a run that is killed end with it, in the middle of a task too."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children
from pathlib import Path

import pytest
from prefect import flow, task
from prefect.context import SyncClientContext, refresh_global_settings_context
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.task_runners import ProcessPoolTaskRunner
from spineflow.flows.runners import task_runner
from spineflow.tasks.runs.settings import RunnerSettings

PATIENCE = 60
COMMAND = """
import os, sys, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from spineflow.flows.runners import task_runner
from spineflow.tasks.runs.settings import RunnerSettings

runner = task_runner(RunnerSettings(runner="processes", workers=1)).duplicate()
initializer = runner._initializer if sys.argv[1] == "ours" else None
arguments = runner._initargs if initializer else ()
pool = ProcessPoolExecutor(1, get_context("spawn"), initializer, arguments)
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
@pytest.mark.parametrize("workers", ["ours", "of Python alone"])
def test_workers_end_with_a_killed_command(workers: str) -> None:
    command = subprocess.Popen(
        [sys.executable, "-c", COMMAND, workers], stdout=subprocess.PIPE, text=True
    )
    worker = command.stdout.readline().strip()
    assert is_running(worker)
    command.kill()
    command.wait()
    deadline = time.monotonic() + (PATIENCE if workers == "ours" else 3)
    while is_running(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    still_there = is_running(worker)
    if still_there:
        subprocess.run(["kill", "-9", worker], check=True)
    assert still_there == (workers != "ours")


def n_started_by_a_runner(of_prefect: bool = False) -> int:
    """Processes that entering a runner of two workers starts in this one."""
    before = len(active_children())
    ours = task_runner(RunnerSettings(runner="processes", workers=2))
    with ProcessPoolTaskRunner(max_workers=2) if of_prefect else ours:
        return len(active_children()) - before


@pytest.mark.slow
def test_workers_start_with_the_flow_and_none_for_copies_of_its_runner() -> None:
    """Prefect enters a copy in every task. By itself it starts a worker with the first task that
    waits for one; where that fails, `_Processes.__enter__` is needless."""
    assert n_started_by_a_runner() == 2
    assert n_started_by_a_runner(of_prefect=True) == 0
    with task_runner(RunnerSettings(runner="processes", workers=1)) as runner:
        assert runner._executor.submit(n_started_by_a_runner).result() == 0


def test_prefect_s_own_workers_are_new_interpreters() -> None:
    """Where they are forked, `flows/fork_server.py` is needless."""
    with ProcessPoolTaskRunner(max_workers=1) as runner:
        assert runner._executor._mp_context.get_start_method() == "spawn"


@task
def uses_of_the_client() -> int:
    """How many tasks have had the client that this one has."""
    client = SyncClientContext.get().client
    client.uses = getattr(client, "uses", 0) + 1
    return client.uses


@pytest.mark.slow
@pytest.mark.parametrize(("whose", "uses"), [("ours", [1, 2]), ("Prefect's", [1, 1])])
def test_a_worker_has_one_client_for_all_of_its_tasks(
    real_server, monkeypatch: pytest.MonkeyPatch, whose: str, uses: list[int]
) -> None:
    """Prefect makes one for every task; where that fails, the client of `begin_worker` is needless.

    One that has been answered once waits for a server that goes away; a new one gives up at once.
    """
    address = real_server.environment["PREFECT_API_URL"]
    monkeypatch.setenv("PREFECT_API_URL", address)
    refresh_global_settings_context()
    with temporary_settings({PREFECT_API_URL: address}):
        runner = task_runner(RunnerSettings(runner="processes", workers=1), __name__)
        if whose == "Prefect's":
            runner = ProcessPoolTaskRunner(max_workers=1)

        @flow(task_runner=runner)
        def twice() -> list[int]:
            return [uses_of_the_client.submit().result() for _ in range(2)]

        assert twice() == uses
    monkeypatch.undo()
    refresh_global_settings_context()


def test_prefect_s_thread_for_the_words_of_workers_has_no_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would start a server of its own; where that fails, `server_for_runs` needs to put the
    address in the environment no more."""
    seen: list[str | None] = []
    monkeypatch.setattr(
        ProcessPoolTaskRunner,
        "_forward_subprocess_messages",
        lambda self: seen.append(PREFECT_API_URL.value()),
    )
    here = "http://127.0.0.1:9/api"
    with (
        temporary_settings({PREFECT_API_URL: here}),
        ProcessPoolTaskRunner(max_workers=1) as runner,
    ):
        runner._message_forwarding_thread.join(PATIENCE)
    assert len(seen) == 1
    assert seen != [here]


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["ours", "Prefect's"])
def test_a_worker_that_begins_while_another_is_lost_is_not_waited_for(whose: str) -> None:
    """It would wait for the lost one's lock for ever, and the command for it.

    Where Prefect ends it, `_Processes.__exit__` is needless.
    """
    runner = task_runner(RunnerSettings(runner="processes", workers=1))
    if whose == "Prefect's":
        runner = ProcessPoolTaskRunner(max_workers=1)
    with runner as begun:
        pool = begun._executor
        solving = pool.submit(time.sleep, 600)
        (first,) = list(pool._processes.values())
        first.kill()
        with pytest.raises(BrokenProcessPool):
            solving.result(PATIENCE)
        late = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
        late.start()
        # As the pool begins one itself while it breaks, which no test can time.
        pool._processes = {late.pid: late}
    late.join(PATIENCE if whose == "ours" else 3)
    is_waited_for = late.is_alive()
    late.kill()
    assert is_waited_for == (whose != "ours")

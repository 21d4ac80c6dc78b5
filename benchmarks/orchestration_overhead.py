"""What Prefect costs: a run's stages as a flow, against the same stages as plain functions.

    .venv/bin/python -m benchmarks.orchestration_overhead ri.toml --repeat 5

Both call the same functions in the same order, side by side where the flow has them side by side,
in this process and with as many threads as `run.workers` says; they take turns, each in a run
directory of its own. The server is started before, and both have been run once. Wall-clock seconds
include the server's work, which competes for the same cores; CPU seconds are this process's alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")

from prefect import Task
from prefect.futures import PrefectConcurrentFuture
from prefect.task_runners import TaskRunner
from prefect.testing.utilities import prefect_test_harness
from spineflow.flows.registry import stages_of
from spineflow.flows.running import prepare, run_stages
from spineflow.flows.stages import Stages
from spineflow.tasks.products.product import product
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings import ProductSettings

MOST = 0.10
"""The share of the wall time that orchestration may cost."""


class Threads(TaskRunner[Any]):
    """Calls tasks as functions in a pool of threads."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        super().__init__()
        self._pool = pool

    def duplicate(self) -> Threads:
        raise NotImplementedError

    def submit(self, task: Task, parameters: dict, wait_for: Any = None, _: Any = None) -> Any:
        def perform() -> object:
            for before in wait_for or ():
                before.result()
            made = task.fn(*parameters.values())
            return made if isinstance(made, Artifact) else made.data

        return PrefectConcurrentFuture(uuid4(), self._pool.submit(perform))


def call_in_threads(run: RunDirectory, settings: ProductSettings) -> None:
    """Call the steps of a run as functions, in a pool of threads."""
    with ThreadPoolExecutor(settings.run.workers) as pool:
        stages = Stages(run, settings, Threads(pool))
        stages._progress = None  # There is no flow run to show it.
        stages.run(stages_of("topdown"))


def timed(folder: Path, asked, settings, *, as_flow: bool) -> tuple[float, float]:
    """Wall-clock and CPU seconds of a whole run in a new directory."""
    run = prepare(settings, folder)
    wall, cpu = time.perf_counter(), time.process_time()
    if as_flow:
        run_stages(asked, run, settings)
    else:
        call_in_threads(run, settings)
    spent = time.perf_counter() - wall, time.process_time() - cpu
    shutil.rmtree(folder)
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("settings", help="settings of a topdown run")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    asked = product("topdown")
    kinds = {"plain functions": False, "flow": True}
    spent: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as folder, prefect_test_harness(server_startup_timeout=300):
        overrides = [f"privacy.ledger={folder}/ledger.db", f"run.workers={options.workers}"]
        settings = asked.load(options.settings, overrides)
        for repetition in range(-1, options.repeat):
            for kind, as_flow in kinds.items():
                seconds = timed(Path(folder) / "run", asked, settings, as_flow=as_flow)
                if repetition >= 0:
                    spent[kind].append(seconds)
                    print(f"{kind:16} {seconds[0]:7.2f} s {seconds[1]:7.2f} s of CPU", flush=True)
    for position, what in enumerate(("wall", "CPU")):
        plain, flow = (
            statistics.median(seconds[position] for seconds in spent[kind]) for kind in kinds
        )
        least = min(seconds[position] for seconds in spent["plain functions"])
        least_flow = min(seconds[position] for seconds in spent["flow"])
        print(
            f"{what}: median {plain:.2f} s plain, {flow:.2f} s as a flow, {flow / plain - 1:+.1%}; "
            f"least {least:.2f} s, {least_flow:.2f} s, {least_flow / least - 1:+.1%} "
            f"(at most {MOST:+.0%})"
        )


if __name__ == "__main__":
    main()

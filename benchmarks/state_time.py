"""Where the time of a run goes: wall and processor time, cores busy and memory, by stage.

    .venv/bin/python -m benchmarks.state_time ri.toml
    .venv/bin/python -m benchmarks.state_time ri.toml --set run.runner=threads

runs a topdown settings file by the command, in a run directory and a Prefect home of its own that
go away, with a ledger beside them. Kernels are to be compiled before (`spineflow compile`). Four
times a second the processes of the command's tree are looked at: their processor time, and their
memory, of which pages that several share count once. Of stages the record of the run's work has
seconds and processor seconds of every task: a stage's wall time is from the start of its first
task to the end of its last. Needs Linux.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spineflow.tasks.runs.directory import RunDirectory, Task, read_tasks

from .nation_run import COMMAND, looked_at

PAUSE = 0.25


@dataclass(frozen=True)
class Taken:
    """What a run took: seconds from the command to its end, processor seconds of all its processes,
    MiB of all of them at the most, when its first task was begun, and its tasks."""

    wall: float
    cpu: float
    memory: float
    first: float
    tasks: Sequence[Task]


def taken(settings: Path, overrides: Sequence[str], folder: Path) -> Taken:
    """Run the settings in a folder, and look on."""
    run = RunDirectory(folder / "run")
    options = [f"privacy.ledger={folder / 'ledger.db'}", *overrides]
    # Runs of several settings may have the same persons: ledgers are listed in the folder alone.
    own = {"PREFECT_HOME": str(folder / "prefect"), "SPINEFLOW_LEDGERS": str(folder / "ledgers")}
    environment = os.environ | own
    spineflow = [sys.executable, "-c", COMMAND]
    ledger = [*spineflow, "ledger", "init", "--ledger", str(folder / "ledger.db")]
    subprocess.run(ledger, check=True, env=environment, stdout=subprocess.DEVNULL)
    command = [*spineflow, "run", "topdown", str(settings), "--run-dir", str(run.root)]
    with (folder / "output.txt").open("w") as output:
        begun, at = time.perf_counter(), time.time()
        process = subprocess.Popen(
            [*command, *(part for option in options for part in ("--set", option))],
            env=environment,
            stdout=output,
            stderr=output,
        )
        cpu, memory = looked_on(process)
        wall = time.perf_counter() - begun
    if process.returncode:
        raise SystemExit((folder / "output.txt").read_text())
    tasks = sorted(read_tasks(run).values(), key=lambda task: task.started)
    return Taken(wall, cpu, memory, tasks[0].started - at, tasks)


def looked_on(process: subprocess.Popen) -> tuple[float, float]:
    """Processor seconds of all processes of a tree, and the most MiB that they have together."""
    cpu_of: dict[int, float] = {}
    most = 0.0
    while process.poll() is None:
        memory, _ = looked_at(process.pid, cpu_of)
        most = max(most, memory)
        time.sleep(PAUSE)
    return sum(cpu_of.values()), most


def print_stages(run: Taken) -> None:
    """A line for every kind of stage, in the order in which they begin, and one for the run."""
    kinds: dict[str, list[Task]] = {}
    for task in run.tasks:
        kinds.setdefault(task.step, []).append(task)
    print("| stage | tasks | wall s | s of tasks | CPU s | cores busy |")
    print("|---|---:|---:|---:|---:|---:|")
    for kind, tasks in kinds.items():
        _print_line(kind, tasks)
    _print_line("first task to last", run.tasks)
    span = _ended(run.tasks) - run.tasks[0].started
    print(
        f"\nThe command: {run.wall:.1f} s of wall time and {run.cpu:.1f} s of processor time, of "
        f"which {run.first:.1f} s of wall time before the first task and "
        f"{run.wall - run.first - span:.1f} s after the last; {run.memory / 1024:.2f} GiB in all "
        "its processes."
    )


def _print_line(name: str, tasks: Sequence[Task]) -> None:
    wall = _ended(tasks) - min(task.started for task in tasks)
    cpu = sum(task.cpu for task in tasks)
    seconds = sum(task.seconds for task in tasks)
    print(
        f"| {name} | {len(tasks)} | {wall:.1f} | {seconds:.1f} | {cpu:.1f} | "
        f"{cpu / wall if wall else 0.0:.2f} |"
    )


def _ended(tasks: Iterable[Task]) -> float:
    # The record hears of what was left to itself at the end of the run.
    return max(task.started + task.seconds for task in tasks)


def main() -> None:
    """Run a settings file and print its stages; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("settings", type=Path, help="settings of a topdown run")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spineflow-state-") as folder:
        print_stages(taken(options.settings.resolve(), options.overrides, Path(folder)))


if __name__ == "__main__":
    main()

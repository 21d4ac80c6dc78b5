"""Seconds that the recorded work of a finished run takes on other workers, by list scheduling.

    .venv/bin/python -m benchmarks.list_scheduling RUN_DIR [--workers 1 8] [--computing] [--times N]

prints the time and the longest chain of tasks.
Every task goes, in the order of waves and then of the record, to the worker that is free first,
with the gaps between tasks and between waves of the run. With `--computing` tasks take their
processor seconds alone. Of a run N times as large, a stage of several tasks has N times as many,
and a task that is a stage takes N times as long.
"""

from __future__ import annotations

import argparse
import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from statistics import mean, median

from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.work import Task, read_tasks


@dataclass(frozen=True)
class Gaps:
    """Seconds between two tasks of a worker, and between two waves."""

    per_task: float
    per_wave: float


def makespan(tasks: Sequence[Task], workers: int, gaps: Gaps) -> float:
    """Seconds until the last of some tasks has ended on so many workers.

    A task waits for the earlier waves that are not aside, and for those of its wave that it names;
    the tasks of a wave are in an order in which none waits for a later one.
    """
    ended: dict[str, float] = {}
    free = [0.0] * workers
    opened = 0.0
    for _, wave in groupby(tasks, key=lambda task: task.wave):
        waited_for = [opened]
        for task in wave:
            begun = max(free[0], opened, *(ended.get(name, 0.0) for name in task.after))
            ended[task.name] = begun + task.seconds + gaps.per_task
            heapq.heapreplace(free, ended[task.name])
            if not task.aside:
                waited_for.append(ended[task.name] + gaps.per_wave)
        opened = max(waited_for)
    return max(ended.values())


def longest_chain(tasks: Sequence[Task], gaps: Gaps) -> list[Task]:
    """Tasks of which each waits for the one before, and the last ends last on any number of
    workers; arguments as of `makespan`."""
    ended: dict[str, float] = {"": 0.0}
    before: dict[str, str] = {}
    opened = ""
    for _, wave in groupby(tasks, key=lambda task: task.wave):
        own = list(wave)
        for task in own:
            waited = (opened, *(name for name in task.after if name in ended))
            before[task.name] = max(waited, key=ended.__getitem__)
            ended[task.name] = ended[before[task.name]] + task.seconds + gaps.per_task
        opened = max([opened, *(t.name for t in own if not t.aside)], key=ended.__getitem__)
    chain, by_name = list[Task](), {task.name: task for task in tasks}
    name = max(ended, key=ended.__getitem__)
    while name:
        chain.append(by_name[name])
        name = before[name]
    return chain[::-1]


def gaps_of(tasks: Sequence[Task], *, computing: bool) -> Gaps:
    """Gaps of the run: their mean, or where nothing but computing counts their median."""
    last: dict[str, Task] = {}
    between: list[float] = []
    wave_of = {task.name: task.wave for task in tasks}
    for task in sorted(tasks, key=lambda one: one.started):
        before = last.get(task.worker)
        waits = any(wave_of.get(name) == task.wave for name in task.after)
        if before is not None and before.wave == task.wave and not waits:
            between.append(max(0.0, task.started - before.started - before.seconds))
        last[task.worker] = task
    pauses: list[float] = []
    ended = None
    waited_for = [task for task in tasks if not task.aside]
    for _, group in groupby(waited_for, key=lambda task: task.wave):
        wave = list(group)
        if ended is not None:
            pauses.append(max(0.0, min(task.started for task in wave) - ended))
        ended = max(task.started + task.seconds for task in wave)
    usual = median if computing else mean
    return Gaps(usual(between or [0.0]), usual(pauses or [0.0]))


def enlarged(tasks: Sequence[Task], times: int) -> list[Task]:
    """The tasks of a run that is so many times as large."""
    several = {stage for stage, n in Counter(task.stage for task in tasks).items() if n > 1}
    every = []
    for task in tasks:
        if task.stage in several:
            names = [task.name, *(f"{task.name} ({copy})" for copy in range(1, times))]
            every += [replace(task, name=name) for name in names]
        else:
            every.append(replace(task, seconds=times * task.seconds))
    return every


def main() -> None:
    """Print a line for every number of workers; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, metavar="RUN_DIR")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8, 32, 128])
    parser.add_argument("--computing", action="store_true")
    parser.add_argument("--times", type=int, default=1)
    options = parser.parse_args()
    # In a wave, what waits was begun after what it waits for.
    tasks = sorted(
        read_tasks(RunDirectory(options.run)).values(),
        key=lambda task: (task.wave, task.started),
    )
    gaps = gaps_of(tasks, computing=options.computing)
    if options.computing:
        tasks = [replace(task, seconds=task.cpu) for task in tasks]
    tasks = enlarged(tasks, options.times)
    alone = makespan(tasks, 1, gaps)
    print("workers  seconds  speed-up")
    for workers in options.workers:
        seconds = makespan(tasks, workers, gaps)
        print(f"{workers:7,}  {seconds:7,.0f}  {alone / seconds:8.1f}")
    print("longest chain of tasks, seconds")
    for task in longest_chain(tasks, gaps):
        print(f"{task.seconds:7,.1f}  {task.name}")


if __name__ == "__main__":
    main()

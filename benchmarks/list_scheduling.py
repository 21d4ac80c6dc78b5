"""Seconds that the recorded work of a finished run takes on other workers, by list scheduling.

    .venv/bin/python -m benchmarks.list_scheduling RUN_DIR [--workers 1 8] [--computing] [--times N]

prints the time and the longest chain of tasks. A worker that is free takes, of the tasks whose
predecessors have ended, the first in the order of the record. Tasks of a step wait for all tasks of
the steps that the record names, after a gap as between the tasks of a worker in the run. With
`--computing` tasks take their processor seconds alone. Of a run N times as large, a step of several
tasks has N times as many, up to as many as the program cuts it in, and a task that is alone, or is
not cut further, takes N times as long.
"""

from __future__ import annotations

import argparse
import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median

from spineflow.tasks.runs.directory import RunDirectory, Task, read_tasks

MOST_TASKS = {
    "count records": 64,
    "recognise people": 64,
    "write microdata part": 51,
    "write table piece": 51,
    "compare piece": 51,
}
"""Most tasks of a step, where there are fewer than an input of any size would have: shares of the
input, and states."""


def kinds_of(tasks: Sequence[Task]) -> dict[str, list[Task]]:
    """The tasks of every stage and step, in the order in which these began."""
    found: dict[str, list[Task]] = {}
    for task in sorted(tasks, key=lambda one: one.started):
        found.setdefault(task.kind, []).append(task)
    return found


def makespan(tasks: Sequence[Task], workers: int, gap: float) -> float:
    """Seconds until the last of some tasks has ended on so many workers, each of which has a gap
    after every task."""
    kinds = kinds_of(tasks)
    left = {kind: len(own) for kind, own in kinds.items()}
    waiting = {kind: set(own[0].after) & kinds.keys() for kind, own in kinds.items()}
    place = {
        task.name: number for number, task in enumerate(sorted(tasks, key=lambda t: t.started))
    }
    ready: list[tuple[int, float, str]] = []
    running: list[tuple[float, str]] = []

    def open_those_that_wait_for_none() -> None:
        for kind in [kind for kind, others in waiting.items() if not others]:
            del waiting[kind]
            for task in kinds[kind]:
                heapq.heappush(ready, (place[task.name], task.seconds, kind))

    open_those_that_wait_for_none()
    now = 0.0
    while ready or running:
        while ready and len(running) < workers:
            _, seconds, kind = heapq.heappop(ready)
            heapq.heappush(running, (now + seconds + gap, kind))
        now, kind = heapq.heappop(running)
        left[kind] -= 1
        if not left[kind]:
            for others in waiting.values():
                others.discard(kind)
            open_those_that_wait_for_none()
    return now


def longest_chain(tasks: Sequence[Task], gap: float) -> list[Task]:
    """Tasks of which each waits for the one before, and the last ends last on any number of
    workers."""
    kinds = kinds_of(tasks)
    chains: dict[str, tuple[float, list[Task]]] = {}

    def chain_to(kind: str) -> tuple[float, list[Task]]:
        if kind not in chains:
            longest = max(kinds[kind], key=lambda task: task.seconds)
            known = [chain_to(other) for other in longest.after if other in kinds]
            seconds, chain = max(known, key=lambda one: one[0], default=(0.0, []))
            chains[kind] = seconds + longest.seconds + gap, [*chain, longest]
        return chains[kind]

    return max(map(chain_to, kinds), key=lambda one: one[0])[1]


def gap_of(tasks: Sequence[Task], *, computing: bool) -> float:
    """Seconds between two tasks of a worker within a step: their mean, or where nothing but
    computing counts their median."""
    last: dict[str, Task] = {}
    between: list[float] = []
    for task in sorted(tasks, key=lambda one: one.started):
        before = last.get(task.worker)
        if before is not None and before.kind == task.kind:
            between.append(max(0.0, task.started - before.started - before.seconds))
        last[task.worker] = task
    return (median if computing else mean)(between or [0.0])


def enlarged(tasks: Sequence[Task], times: int) -> list[Task]:
    """The tasks of a run that is so many times as large."""
    numbers: Mapping[str, int] = Counter(task.kind for task in tasks)
    every = []
    for task in tasks:
        n = numbers[task.kind]
        copies = max(1, min(times, MOST_TASKS.get(task.step, n * times) // n)) if n > 1 else 1
        names = [task.name, *(f"{task.name} ({copy})" for copy in range(1, copies))]
        every += [replace(task, name=name, seconds=task.seconds * times / copies) for name in names]
    return every


def main() -> None:
    """Print a line for every number of workers; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, metavar="RUN_DIR")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8, 32, 128])
    parser.add_argument("--computing", action="store_true")
    parser.add_argument("--times", type=int, default=1)
    options = parser.parse_args()
    tasks = [*read_tasks(RunDirectory(options.run)).values()]
    if not any(task.after for task in tasks):
        parser.error("the run was recorded by a version that did not tell what tasks wait for")
    gap = gap_of(tasks, computing=options.computing)
    if options.computing:
        tasks = [replace(task, seconds=task.cpu) for task in tasks]
    tasks = enlarged(tasks, options.times)
    alone = makespan(tasks, 1, gap)
    print("workers  seconds  speed-up")
    for workers in options.workers:
        seconds = makespan(tasks, workers, gap)
        print(f"{workers:7,}  {seconds:7,.0f}  {alone / seconds:8.1f}")
    print("longest chain of tasks, seconds")
    for task in longest_chain(tasks, gap):
        print(f"{task.seconds:7,.1f}  {task.name}")


if __name__ == "__main__":
    main()

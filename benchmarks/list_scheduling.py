"""Seconds that the recorded work of a finished run takes on other workers, by list scheduling.

    .venv/bin/python -m benchmarks.list_scheduling RUN_DIR [--workers 1 8] [--computing] [--times N]

prints the time and the longest chain of tasks. Every task goes, in the order of the record, to the
worker that is free first, after all tasks of the stages that had ended when its own began, with the
gaps between tasks and between stages of the run. With `--computing` tasks take their processor
seconds alone. Of a run N times as large, a stage of several tasks has N times as many, and a task
that is a stage takes N times as long.
"""

from __future__ import annotations

import argparse
import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

from spineflow.tasks.runs.directory import RunDirectory, Task, read_tasks


@dataclass(frozen=True)
class Gaps:
    """Seconds between two tasks of a worker, and between two stages."""

    per_task: float
    per_stage: float


def stages_of(tasks: Sequence[Task]) -> dict[str, list[Task]]:
    """The tasks of every stage, in the order in which stages began."""
    found: dict[str, list[Task]] = {}
    for task in sorted(tasks, key=lambda one: one.started):
        found.setdefault(task.stage, []).append(task)
    return found


def _ended(tasks: Sequence[Task]) -> float:
    return max(task.started + task.seconds for task in tasks)


def earlier_stages(tasks: Sequence[Task]) -> dict[str, list[str]]:
    """For every stage those that had ended when it began."""
    stages = stages_of(tasks)
    ended = {name: _ended(own) for name, own in stages.items()}
    return {
        name: [other for other in stages if ended[other] <= own[0].started]
        for name, own in stages.items()
    }


def makespan(
    tasks: Sequence[Task], before: Mapping[str, Sequence[str]], workers: int, gaps: Gaps
) -> float:
    """Seconds until the last of some tasks has ended on so many workers.

    `before` has the stages that a stage waits for.
    """
    ended: dict[str, float] = {}
    free = [0.0] * workers
    for stage, own in stages_of(tasks).items():
        opened = max((ended[name] + gaps.per_stage for name in before[stage]), default=0.0)
        ends = []
        for task in own:
            ends.append(max(free[0], opened) + task.seconds + gaps.per_task)
            heapq.heapreplace(free, ends[-1])
        ended[stage] = max(ends)
    return max(ended.values())


def longest_chain(
    tasks: Sequence[Task], before: Mapping[str, Sequence[str]], gaps: Gaps
) -> list[Task]:
    """Tasks of which each waits for the one before, and the last ends last on any number of
    workers; arguments as of `makespan`."""
    ended: dict[str, float] = {}
    chains: dict[str, list[Task]] = {}
    for stage, own in stages_of(tasks).items():
        last = max(before[stage], key=ended.__getitem__, default="")
        longest = max(own, key=lambda task: task.seconds)
        chains[stage] = [*chains.get(last, []), longest]
        ended[stage] = ended.get(last, 0.0) + longest.seconds + gaps.per_task
    return chains[max(ended, key=ended.__getitem__)]


def gaps_of(tasks: Sequence[Task], *, computing: bool) -> Gaps:
    """Gaps of the run: their mean, or where nothing but computing counts their median."""
    last: dict[str, Task] = {}
    between: list[float] = []
    for task in sorted(tasks, key=lambda one: one.started):
        before = last.get(task.worker)
        if before is not None and before.stage == task.stage:
            between.append(max(0.0, task.started - _ended([before])))
        last[task.worker] = task
    stages, earlier = stages_of(tasks), earlier_stages(tasks)
    pauses = [
        stages[name][0].started - max(_ended(stages[other]) for other in others)
        for name, others in earlier.items()
        if others
    ]
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
    tasks = [*read_tasks(RunDirectory(options.run)).values()]
    gaps, before = gaps_of(tasks, computing=options.computing), earlier_stages(tasks)
    if options.computing:
        tasks = [replace(task, seconds=task.cpu) for task in tasks]
    tasks = enlarged(tasks, options.times)
    alone = makespan(tasks, before, 1, gaps)
    print("workers  seconds  speed-up")
    for workers in options.workers:
        seconds = makespan(tasks, before, workers, gaps)
        print(f"{workers:7,}  {seconds:7,.0f}  {alone / seconds:8.1f}")
    print("longest chain of tasks, seconds")
    for task in longest_chain(tasks, before, gaps):
        print(f"{task.seconds:7,.1f}  {task.name}")


if __name__ == "__main__":
    main()

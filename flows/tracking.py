"""What a flow keeps of the work that it has had done, and tells of the work to come."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from ..tasks.products.order import Aside, Call, Wave
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.handles import Artifact
from ..tasks.runs.metering import Work
from ..tasks.runs.remaining import Remaining
from ..tasks.runs.settings import RunnerSettings
from ..tasks.runs.work import Began, Planned, Task, append, read, tasks_of
from .runners import chosen_runner

Sizes = Callable[[str, Sequence[tuple[Any, ...]]], list[float] | None]
"""Public sizes of the calls of a stage, by their step and their keys; None while not known."""


class Tracker:
    """Records the tasks of a run as they end, and tells what is left.

    `known` gives the waves of the run from the first on; it raises where what comes next is decided
    by what is not there yet. `sizes` are as above.
    """

    def __init__(
        self,
        run: RunDirectory,
        runner: RunnerSettings,
        sizes: Sizes,
        known: Callable[[], Iterable[Wave]],
    ) -> None:
        self._run = run
        self._sizes = sizes
        self._known: Callable[[], Iterable[Wave]] | None = known
        self._remaining = Remaining(runner.workers)
        for name, task in tasks_of(read(run)).items():
            if (run.root / task.path).exists():
                self._remaining.found.add(name)
                if not task.reused:
                    self._remaining.costs.observe(task.step, task.size, task.seconds)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self._began: Began | None = Began(
            time.time(), chosen_runner(runner), runner.workers, cores or 1
        )
        self._waves = 0
        self._begun: dict[str, float] = {}
        self._ended: list[Task] = []

    def begin(self, wave: Wave) -> None:
        """A wave is about to be submitted."""
        begun = round(time.time(), 3)
        tasks = self._planned(wave, self._waves)
        self._begun = {task.name: begun for task in tasks} | self._begun
        self._waves += 1
        self._remaining.begin(tasks, begun)
        if self._known is not None:
            plan = self._plan(self._known)
            if plan is not None:
                self._remaining.plan(plan)
                self._known = None
                self._size(plan)

    def _size(self, plan: Sequence[Planned]) -> None:
        """Record again, with their sizes, what had ended before sizes were known."""
        sizes = {task.name: task.size for task in plan}
        changed = [
            replace(task, size=sizes[task.name])
            for task in self._ended
            if sizes.get(task.name, task.size) != task.size
        ]
        append(self._run, *changed)
        self._ended.clear()

    def left(self) -> float | None:
        """Seconds until the last task ends; None while it is not known which are to come."""
        return self._remaining.left(time.time())

    def _plan(self, known: Callable[[], Iterable[Wave]]) -> list[Planned] | None:
        try:
            return [
                task for number, wave in enumerate(known()) for task in self._planned(wave, number)
            ]
        except Exception:
            # What decides the order is not there yet, in whatever way a product finds that out.
            return None

    def _planned(self, wave: Wave, number: int) -> list[Planned]:
        here = {one for calls in wave.values() for one in calls}
        return [
            Planned(
                one.name,
                stage,
                one.step.name,
                number,
                isinstance(wave, Aside),
                tuple(before.name for before in one.after if before in here),
                size,
            )
            for stage, calls in wave.items()
            for one, size in self._sizes_of(calls).items()
        ]

    def ended(self, one: Call, artifact: Artifact) -> None:
        """A call of a begun wave has made an artifact."""
        work = artifact.work or Work(round(time.time() - artifact.seconds, 3), 0.0, "")
        planned, ended = self._remaining.begun[one.name], round(time.time(), 3)
        task = Task(
            **asdict(planned),
            **asdict(work),
            begun=self._begun[planned.name],
            ended=ended,
            seconds=artifact.seconds,
            reused=artifact.reused,
            path=artifact.path,
        )
        append(self._run, *([] if self._began is None else [self._began]), task)
        self._began = None
        if self._known is not None:
            self._ended.append(task)
        self._remaining.ended(planned.name, ended, artifact.seconds, reused=artifact.reused)

    def _sizes_of(self, calls: Sequence[Call]) -> dict[Call, float]:
        """Sizes of a stage's calls, those of each step among each other; 1 while not known."""
        sizes = dict.fromkeys(calls, 1.0)
        for step in dict.fromkeys(one.step.name for one in calls):
            own = [one for one in calls if one.step.name == step]
            found = self._sizes(step, [one.keys for one in own])
            sizes |= dict(zip(own, found or (), strict=False))
        return sizes

"""What a flow keeps of the work that it has had done, and tells of the work to come."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.handles import Artifact
from ..tasks.runs.metering import Work
from ..tasks.runs.remaining import Remaining
from ..tasks.runs.settings import RunnerSettings
from ..tasks.runs.work import Began, Planned, Task, append, read, tasks_of
from .runners import chosen_runner

Sizes = Callable[[str, Sequence[tuple[Any, ...]]], list[float] | None]
"""Public sizes of the calls of a stage, by their step and their keys; None while not known."""

Described = Mapping[str, Sequence[tuple[str, tuple[Any, ...], Sequence[str]]]]
"""A wave: by stage, of every call its step, its keys and the names of what it waits for in it."""


def name_of(step: str, keys: Sequence[Any]) -> str:
    """What a call is named in the record of a run's work.

    >>> name_of("measure", ("persons", "Block", "00003"))
    'measure persons Block 00003'
    """
    return " ".join([step, *map(str, keys)])


class Tracker:
    """Records the tasks of a run as they end, and tells what is left.

    `known` gives the waves of the run from the first on, and whether each is left to itself; it
    raises where what comes next is decided by what is not there yet. `sizes` are as above.
    """

    def __init__(
        self,
        run: RunDirectory,
        runner: RunnerSettings,
        sizes: Sizes | None = None,
        known: Callable[[], Iterable[tuple[Described, bool]]] | None = None,
    ) -> None:
        self._run = run
        self._sizes = sizes
        self._known = known
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
        self._wave: dict[str, Planned] = {}
        self._begun: dict[str, float] = {}
        self._ended: list[Task] = []

    def begin(self, wave: Described, *, aside: bool) -> None:
        """A wave is about to be submitted."""
        begun = round(time.time(), 3)
        tasks = [
            task
            for task in self._planned(wave, self._waves, aside=aside)
            if task.name not in self._wave
        ]
        self._wave |= {task.name: task for task in tasks}
        self._begun |= {task.name: begun for task in tasks}
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

    def _plan(self, known: Callable[[], Iterable[tuple[Described, bool]]]) -> list[Planned] | None:
        try:
            return [
                task
                for number, (wave, aside) in enumerate(known())
                for task in self._planned(wave, number, aside=aside)
            ]
        except Exception:
            # What decides the order is not there yet, in whatever way a product finds that out.
            return None

    def _planned(self, wave: Described, number: int, *, aside: bool) -> list[Planned]:
        return [
            Planned(name_of(step, keys), stage, step, number, aside, tuple(after), size)
            for stage, calls in wave.items()
            for (step, keys, after), size in zip(calls, self._sizes_of(calls), strict=True)
        ]

    def ended(self, name: str, artifact: Artifact) -> None:
        """A call of a begun wave has made an artifact."""
        work = artifact.work or Work(round(time.time() - artifact.seconds, 3), 0.0, "")
        planned, ended = self._wave[name], round(time.time(), 3)
        task = Task(
            **asdict(planned),
            begun=self._begun[name],
            ended=ended,
            started=work.started,
            seconds=artifact.seconds,
            cpu=work.cpu,
            worker=work.worker,
            read=work.read,
            written=work.written,
            reused=artifact.reused,
            path=artifact.path,
        )
        append(self._run, *([] if self._began is None else [self._began]), task)
        self._began = None
        if self._known is not None:
            self._ended.append(task)
        self._remaining.ended(name, ended, artifact.seconds, reused=artifact.reused)

    def _sizes_of(self, calls: Sequence[tuple[str, tuple[Any, ...], Sequence[str]]]) -> list[float]:
        """Sizes of a stage's calls, those of each step among each other; 1 while not known."""
        sizes = [1.0] * len(calls)
        for step in dict.fromkeys(step for step, _, _ in calls):
            places = [place for place, call in enumerate(calls) if call[0] == step]
            own = self._sizes and self._sizes(step, [calls[place][1] for place in places])
            for place, size in zip(places, own or (), strict=False):
                sizes[place] = size
        return sizes

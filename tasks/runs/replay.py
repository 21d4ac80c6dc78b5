"""The recorded work of a finished run, done again on other workers by list scheduling."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np

from .directory import RunDirectory
from .schedule import Job, Schedule, schedule
from .work import Began, Task, read, tasks_of

WINDOW = 10.0
"""Seconds over which the highest rate of the storage is taken."""


@dataclass(frozen=True)
class Simulated:
    """A run on `workers` and so many processors, one for each worker where they are None.

    busy : share of the workers' time in which they have a task.
    mean_rate, peak_rate : bytes a second that pass from and to the storage, over the whole run and
        in its busiest `WINDOW`.
    """

    workers: int
    cores: int | None
    seconds: float
    busy: float
    mean_rate: float
    peak_rate: float


@dataclass(frozen=True)
class Replay:
    """The tasks of a run, and what passed between them.

    began : how it was run when they were recorded.
    wall : its seconds then, while a process worked on it.
    stages : the stage of each job.
    per_task, per_wave : seconds that passed between two tasks of a worker, and between two waves.
    """

    began: Began
    wall: float
    jobs: tuple[Job, ...]
    stages: Mapping[str, str]
    per_task: float
    per_wave: float

    def on(
        self, workers: int, cores: int | None = None, bandwidth: float | None = None
    ) -> Simulated:
        """The run on other workers; `bandwidth` bytes a second pass from and to the storage."""
        made = self._schedule(workers, cores, bandwidth)
        work = sum(made.ended[job.name] - made.begun[job.name] for job in self.jobs)
        moved = sum(job.moved for job in self.jobs)
        seconds = made.makespan
        busy = work / (workers * seconds)
        return Simulated(workers, cores, seconds, busy, moved / seconds, _peak(self.jobs, made))

    @cached_property
    def alone(self) -> float:
        """Seconds on one worker."""
        return self._schedule(1).makespan

    @cached_property
    def shortest(self) -> float:
        """Seconds on as many workers as there are tasks."""
        return self._unlimited.makespan

    @cached_property
    def critical(self) -> tuple[tuple[str, float], ...]:
        """The stages that the shortest run waits for, with their seconds, longest first."""
        made = self._unlimited
        jobs = {job.name: job for job in self.jobs}
        waited: dict[str, float] = defaultdict(float)
        name = max(made.ended, key=made.ended.__getitem__)
        while True:
            job = jobs[name]
            waited[self.stages[name]] += made.ended[name] - made.begun[name]
            before = [
                other.name
                for other in self.jobs
                if other.name in job.after or (other.wave < job.wave and not other.aside)
            ]
            if not before:
                return tuple(sorted(waited.items(), key=lambda item: -item[1]))
            name = max(before, key=made.ended.__getitem__)

    @cached_property
    def _unlimited(self) -> Schedule:
        return self._schedule(len(self.jobs))

    def _schedule(
        self, workers: int, cores: int | None = None, bandwidth: float | None = None
    ) -> Schedule:
        return schedule(
            self.jobs,
            workers,
            cores=inf if cores is None or cores >= workers else cores,
            bandwidth=inf if bandwidth is None else bandwidth,
            per_task=self.per_task,
            per_wave=self.per_wave,
        )


def recorded(run: RunDirectory, *, times: int = 1, computing: bool = False) -> Replay:
    """The work of a finished run, or of one that is so many times as large.

    Of a larger run, a stage of several tasks has so many times as many, and a task that is a stage
    takes so many times as long. With `computing`, tasks take their processor seconds alone, as on
    machines that do nothing else and whose storage keeps nobody waiting. Raises ValueError where
    the record is not that of a whole run.
    """
    records = read(run)
    tasks = tasks_of(records)
    began = [record for record in records if isinstance(record, Began)]
    if not tasks or not began:
        raise ValueError("no work is recorded of it; only runs of later versions have a record")
    manifest = run.read_manifest()
    missing = set(manifest["stages"]) - {task.stage for task in tasks.values()} - {"publication"}
    if missing or manifest["status"] != "complete" or any(t.reused for t in tasks.values()):
        raise ValueError("it is not finished, or the record lacks a part of its work")
    ordered = sorted(tasks.values(), key=lambda task: task.wave)
    stages: dict[str, str] = {}
    jobs = []
    for task, job in _jobs(run, ordered, times, computing=computing):
        stages[job.name] = task.stage
        jobs.append(job)
    # Of an idle machine, the middle tells more than the mean, which others' work makes long.
    usual = np.median if computing else np.mean
    per_task, per_wave = (
        float(usual(passed)) if passed else 0.0 for passed in (_gaps(ordered), _pauses(ordered))
    )
    return Replay(began[-1], _wall(records), tuple(jobs), stages, per_task, per_wave)


def _jobs(
    run: RunDirectory, tasks: Sequence[Task], times: int, *, computing: bool
) -> Iterator[tuple[Task, Job]]:
    wave = {task.name: task.wave for task in tasks}
    several = {stage for stage, n in Counter(task.stage for task in tasks).items() if n > 1}
    for task in tasks:
        copies, longer = (times, 1) if task.stage in several else (1, times)
        for copy in range(copies):
            name = f"{task.name} ({copy})" if copy else task.name
            seconds = longer * (task.cpu if computing else task.seconds)
            # The waves before are waited for anyhow.
            after = tuple(before for before in task.after if wave.get(before) == task.wave)
            cpu, moved = longer * task.cpu, longer * _moved(run, task)
            yield task, Job(name, seconds, task.wave, task.aside, after, cpu, moved)


def _moved(run: RunDirectory, task: Task) -> int:
    """Bytes that a task reads and writes, as far as they are recorded, or its public file's."""
    if task.written is not None:
        return task.written + (task.read or 0)
    path = run.root / task.path
    is_public = path.is_file() and not path.is_relative_to(run.confidential)
    return path.stat().st_size if is_public else 0


def _gaps(tasks: Sequence[Task]) -> list[float]:
    """Seconds between a worker's tasks of one wave, but for tasks that waited for others of it."""
    last: dict[str, Task] = {}
    wave = {task.name: task.wave for task in tasks}
    gaps = []
    for task in sorted(tasks, key=lambda one: one.started):
        before = last.get(task.worker)
        waits = any(wave.get(name) == task.wave for name in task.after)
        if before is not None and before.wave == task.wave and not waits:
            gaps.append(max(0.0, task.started - before.started - before.seconds))
        last[task.worker] = task
    return gaps


def _pauses(tasks: Sequence[Task]) -> list[float]:
    """Seconds between the end of the last task of a wave and the start of the first of the next."""
    pauses = []
    ended = None
    for number in sorted({task.wave for task in tasks if not task.aside}):
        wave = [task for task in tasks if task.wave == number and not task.aside]
        if ended is not None:
            pauses.append(max(0.0, min(task.started for task in wave) - ended))
        ended = max(task.started + task.seconds for task in wave)
    return pauses


def _wall(records: Sequence[Began | Task]) -> float:
    """Seconds in which a process worked on a run, from its first to its last recorded task."""
    wall = start = end = 0.0
    for record in records:
        if isinstance(record, Began):
            wall += end - start
            start = end = record.at
        elif not record.reused:
            start, end = start or record.begun, max(end, record.ended)
    return wall + end - start


def _peak(jobs: Sequence[Job], made: Schedule) -> float:
    """Bytes a second in the busiest window, if each job spreads its own over its time."""
    windows: dict[int, float] = defaultdict(float)
    for job in (job for job in jobs if job.moved):
        begun, ended = made.begun[job.name], max(made.ended[job.name], made.begun[job.name] + 1e-9)
        for window in range(int(begun // WINDOW), int(ended // WINDOW) + 1):
            shared = min(ended, (window + 1) * WINDOW) - max(begun, window * WINDOW)
            windows[window] += job.moved * shared / (ended - begun)
    return max(windows.values(), default=0.0) / WINDOW

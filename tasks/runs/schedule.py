"""List scheduling: when tasks that wait for each other end on so many workers."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf


@dataclass(frozen=True)
class Job:
    """A task to be scheduled.

    seconds : what it takes when it need not share processors or storage.
    wave : it begins after all jobs of smaller waves that are not aside have ended.
    after : names of the jobs that it waits for as well; names of none are not waited for.
    cpu : processor seconds of these seconds.
    moved : bytes that it reads and writes.
    """

    name: str
    seconds: float
    wave: int = 0
    aside: bool = False
    after: tuple[str, ...] = ()
    cpu: float = 0.0
    moved: float = 0.0


@dataclass(frozen=True)
class Schedule:
    """When each job begins and ends, in seconds from the start."""

    begun: Mapping[str, float]
    ended: Mapping[str, float]

    @property
    def makespan(self) -> float:
        """Seconds until all have ended."""
        return max(self.ended.values(), default=0.0)


def schedule(
    jobs: Iterable[Job],
    workers: int,
    *,
    cores: float = inf,
    bandwidth: float = inf,
    per_task: float = 0.0,
    per_wave: float = 0.0,
) -> Schedule:
    """Give every job, in the order of waves and then as given, to the worker that is free first.

    The worker waits for what the job waits for, as the workers of a run do, and is busy for
    `per_task` seconds besides; between waves `per_wave` seconds pass. A wave whose jobs want more
    processor seconds than `cores` have meanwhile, or move more than `bandwidth` bytes a second, is
    stretched until they have them. Raises ValueError for jobs that wait for each other.
    """
    ordered = sorted(jobs, key=lambda job: job.wave)
    names = {job.name for job in ordered}
    begun: dict[str, float] = {}
    ended: dict[str, float] = {}
    free = [0.0] * min(workers, max(len(ordered), 1))
    opened = 0.0
    for _, group in groupby(ordered, key=lambda job: job.wave):
        wave = list(group)
        for job in _after_what_they_await(wave, ended, names):
            awaited = (ended[name] for name in job.after if name in names)
            begun[job.name] = max(free[0], opened, *awaited)
            ended[job.name] = begun[job.name] + job.seconds + per_task
            heapq.heapreplace(free, ended[job.name])
        wall = max(ended[job.name] for job in wave) - opened
        wanted = max(
            sum(job.cpu for job in wave) / cores, sum(job.moved for job in wave) / bandwidth
        )
        if wanted > wall:
            stretched = wanted / wall
            for times in (begun, ended):
                for job in wave:
                    times[job.name] = opened + (times[job.name] - opened) * stretched
            free = [max(at, opened + (at - opened) * stretched) for at in free]
        own = [ended[job.name] for job in wave if not job.aside]
        opened = max(own) + per_wave if own else opened
    return Schedule(begun, ended)


def _after_what_they_await(
    wave: Sequence[Job], ended: Collection[str], names: Collection[str]
) -> Iterator[Job]:
    """The jobs of a wave as given, but each after what it waits for; `ended` grows meanwhile."""
    waiting = deque(wave)
    passed_over = 0
    while waiting:
        job = waiting.popleft()
        if all(name in ended for name in job.after if name in names):
            passed_over = 0
            yield job
        elif passed_over == len(waiting):
            raise ValueError("there are jobs that wait for each other")
        else:
            passed_over += 1
            waiting.append(job)

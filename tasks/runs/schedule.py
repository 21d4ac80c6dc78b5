"""List scheduling: when tasks that wait for each other end on so many workers."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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


class _Alone:
    """Running jobs that share nothing, by their ends."""

    def __init__(self) -> None:
        self._ends: list[tuple[float, int, Job]] = []
        self._begun = 0

    def __len__(self) -> int:
        return len(self._ends)

    def begin(self, job: Job, seconds: float, now: float) -> None:
        heapq.heappush(self._ends, (now + seconds, self._begun, job))
        self._begun += 1

    def next_end(self, now: float) -> float:
        """When the next one ends, at the latest."""
        return max(now, self._ends[0][0])

    def until(self, now: float) -> list[Job]:
        """Take out what has ended by then."""
        ended = []
        while self._ends and self._ends[0][0] <= now + 1e-9:
            ended.append(heapq.heappop(self._ends)[2])
        return ended


class _Sharing:
    """The same for jobs that share processors and storage: all but a few are slowed down."""

    def __init__(self, cores: float, bandwidth: float) -> None:
        self._limits = cores, bandwidth
        self._left: dict[Job, float] = {}
        self._speeds: dict[Job, float] = {}
        self._at = 0.0

    def __len__(self) -> int:
        return len(self._left)

    def begin(self, job: Job, seconds: float, now: float) -> None:
        self._go_on(now)
        self._left[job] = seconds
        self._set_speeds()

    def next_end(self, now: float) -> float:
        self._go_on(now)
        return now + min(left / self._speeds[job] for job, left in self._left.items())

    def until(self, now: float) -> list[Job]:
        self._go_on(now)
        ended = [job for job, left in self._left.items() if left <= 1e-9]
        for job in ended:
            del self._left[job]
        if ended:
            self._set_speeds()
        return ended

    def _go_on(self, now: float) -> None:
        for job in self._left:
            self._left[job] -= (now - self._at) * self._speeds[job]
        self._at = now

    def _set_speeds(self) -> None:
        self._speeds = dict(zip(self._left, _speeds([*self._left], *self._limits), strict=True))


@dataclass
class _Queue:
    """Jobs that wait for a wave, for others, or for a worker."""

    jobs: Sequence[Job]
    ready: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._place = {job.name: place for place, job in enumerate(self.jobs)}
        self._waited: dict[int, set[str]] = {}
        self._heirs: dict[str, list[int]] = defaultdict(list)
        self._of_wave: dict[int, list[int]] = defaultdict(list)
        self._open: dict[int, int] = defaultdict(int)
        for place, job in enumerate(self.jobs):
            self._of_wave[job.wave].append(place)
            self._open[job.wave] += not job.aside
            self._waited[place] = {name for name in job.after if name in self._place}
            for name in self._waited[place]:
                self._heirs[name].append(place)
        self._to_come = sorted(self._of_wave, reverse=True)
        self._now = -1

    def next_wave(self) -> bool:
        """Open the next wave if all before it have ended; whether there was one to open."""
        if not self._to_come or self._open.get(self._now, 0):
            return False
        self._now = self._to_come.pop()
        for place in self._of_wave[self._now]:
            if not self._waited[place]:
                heapq.heappush(self.ready, place)
        return True

    def end(self, job: Job) -> None:
        """Free what waited for a job."""
        self._open[job.wave] -= not job.aside
        for place in self._heirs[job.name]:
            self._waited[place].discard(job.name)
            if not self._waited[place] and self.jobs[place].wave <= self._now:
                heapq.heappush(self.ready, place)


def schedule(
    jobs: Iterable[Job],
    workers: int,
    *,
    cores: float = inf,
    bandwidth: float = inf,
    per_task: float = 0.0,
    per_wave: float = 0.0,
) -> Schedule:
    """Begin every job, in the order given, as soon as it may and a worker is free.

    Jobs that together want more than `cores` processors or move more than `bandwidth` bytes a
    second share them, and take longer. A worker is busy for `per_task` seconds besides a job, and
    between waves `per_wave` seconds pass. Raises ValueError for jobs that wait for each other.
    """
    queue = _Queue(tuple(jobs))
    shares = cores < inf or bandwidth < inf
    running = _Sharing(cores, bandwidth) if shares else _Alone()
    begun: dict[str, float] = {}
    ended: dict[str, float] = {}
    now = 0.0

    def go_on(until: float) -> float:
        for job in running.until(until):
            ended[job.name] = until
            queue.end(job)
        return until

    while True:
        while True:
            while queue.ready and len(running) < workers:
                job = queue.jobs[heapq.heappop(queue.ready)]
                begun[job.name] = now
                running.begin(job, job.seconds + per_task, now)
            if not queue.next_wave():
                break
            if ended:
                now = go_on(now + per_wave)
        if not len(running):
            break
        now = go_on(running.next_end(now))
    if len(ended) < len(queue.jobs):
        raise ValueError("there are jobs that wait for each other")
    return Schedule(begun, ended)


def _speeds(jobs: Sequence[Job], cores: float, bandwidth: float) -> list[float]:
    """How fast jobs run side by side, beside how fast each would alone."""
    if cores == inf and bandwidth == inf:
        return [1.0] * len(jobs)
    busy = [job.cpu / job.seconds if job.seconds > 0 else 0.0 for job in jobs]
    moving = [job.moved / job.seconds if job.seconds > 0 else 0.0 for job in jobs]
    share = min(1.0, cores / sum(busy)) if sum(busy) > 0 else 1.0
    flow = min(1.0, bandwidth / sum(moving)) if sum(moving) > 0 else 1.0
    speeds = []
    for own, moved in zip(busy, moving, strict=True):
        # Only the part of a job that computes is slower on shared processors.
        computing = min(own, 1.0)
        speed = 1.0 / (computing / share + 1.0 - computing)
        speeds.append(min(speed, flow) if moved > 0 else speed)
    return speeds

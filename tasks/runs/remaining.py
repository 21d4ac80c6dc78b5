"""The time that is left of a run, from the tasks that are still to come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import median

from .costs import REUSED, Costs
from .metering import Work
from .schedule import Job, schedule
from .work import Planned

OVERDUE = 0.1
"""Share of its expected time that a task is taken to have left when it takes longer than that."""

PER_WAVE = 0.5
"""Seconds between two waves, until a run's own have been seen."""

PER_TASK = 0.05
"""Seconds between two tasks of a worker, until a run's own have been seen."""

N_SEEN = 20
"""How many pauses, and how many gaps, are remembered."""


@dataclass
class _Seen:
    """What was seen between tasks, the last of it, and a guess to begin with."""

    guess: float
    last: deque[float] = field(default_factory=lambda: deque(maxlen=N_SEEN))

    @property
    def value(self) -> float:
        """The median: now and then a worker waits for something else."""
        return median([self.guess, *self.last])


@dataclass
class Remaining:
    """What is left of a run on some workers.

    found : names of tasks whose work an earlier attempt at the run has left.
    """

    workers: int
    costs: Costs = field(default_factory=Costs)
    found: set[str] = field(default_factory=set)
    _plan: tuple[Planned, ...] | None = None
    _begun: dict[str, Planned] = field(default_factory=dict)
    _started: dict[str, float] = field(default_factory=dict)
    _done: dict[str, float] = field(default_factory=dict)
    _since: dict[int, float] = field(default_factory=dict)
    _pauses: _Seen = field(default_factory=lambda: _Seen(PER_WAVE))
    _gaps: _Seen = field(default_factory=lambda: _Seen(PER_TASK))
    _last: dict[str, tuple[int, float]] = field(default_factory=dict)
    _unsized: dict[str, tuple[float, float | None]] = field(default_factory=dict)
    _pending: dict[str, Planned] = field(default_factory=dict)

    def plan(self, tasks: Iterable[Planned]) -> None:
        """All tasks of the run, in the order in which they will be submitted, are known.

        What has ended before is told the sizes that are known now.
        """
        self._plan = tuple(tasks)
        for task in self._plan:
            seen = self._unsized.pop(task.name, None)
            if seen is not None:
                self.costs.observe(task.stage, task.step, task.size, *seen)

    def begin(self, wave: Sequence[Planned], at: float) -> None:
        """The tasks of a wave have been submitted."""
        if self._begun:
            self._end_waves(at)
        for task in wave:
            if task.name not in self._begun:
                self._begun[task.name] = self._pending[task.name] = task
            self._since.setdefault(task.wave, at)
        self._start(at)

    def ended(
        self,
        name: str,
        at: float,
        seconds: float,
        *,
        work: Work | None = None,
        reused: bool = False,
    ) -> None:
        """A task of a begun wave has ended, after so many seconds of work; `work` as metered."""
        task = self._begun[name]
        cpu = None if work is None else work.cpu
        if work is not None:
            self._see_gap(task, work, seconds)
        self._done[name] = seconds
        self._started.pop(name, None)
        self._pending.pop(name, None)
        if not reused:
            if self._plan is None:
                self._unsized[name] = seconds, cpu
            else:
                self.costs.observe(task.stage, task.step, task.size, seconds, cpu)
            if name in self.found:
                # Such a step does its work again whatever it finds.
                again = {one for one in self.found if one.startswith(f"{task.step} ")}
                self.found -= again | {name}
        self._start(at)

    def left(self, at: float) -> float | None:
        """Seconds until the last task has ended; None while it is not known which are to come."""
        if self._plan is None:
            return None
        to_come = {task.name: task for task in (*self._begun.values(), *self._plan)}
        jobs = []
        running = []
        for name, task in to_come.items():
            if name in self._done or self._is_over(task, at):
                continue
            seconds = self.expected(task)
            if name in self._started:
                elapsed = at - self._started[name]
                seconds = max(seconds - elapsed, OVERDUE * max(seconds, elapsed))
                running.append(Job(name, seconds, -1 if task.aside else task.wave, task.aside))
            else:
                jobs.append(Job(name, seconds, task.wave, task.aside, task.after))
        made = schedule(
            [*running, *jobs],
            self.workers,
            per_wave=self._pauses.value,
            per_task=self._gaps.value,
        )
        return made.makespan

    def expected(self, task: Planned) -> float:
        """Seconds that a task is expected to take in all."""
        again = (rate := self.costs.rates.get(task.step)) is not None and rate.again
        if task.name in self.found and not again:
            return REUSED
        return self.costs.seconds(task.stage, task.step, task.size)

    def _is_over(self, task: Planned, at: float) -> bool:
        """Whether a task aside must have ended: nobody waits for it, so that it does not tell."""
        started = self._started.get(task.name)
        return task.aside and started is not None and started + self.expected(task) <= at

    def _start(self, at: float) -> None:
        """Tell which tasks the workers have begun: those that were submitted first."""
        ready = (
            name
            for name, task in self._pending.items()
            if not self._is_over(task, at) and all(before in self._done for before in task.after)
        )
        for name in islice(ready, self.workers):
            self._started.setdefault(name, at)

    def _see_gap(self, task: Planned, work: Work, seconds: float) -> None:
        """Learn how long a worker waited for its next task of a wave."""
        wave, ended = self._last.get(work.worker, (None, 0.0))
        if wave == task.wave and work.started >= ended and not task.after:
            self._gaps.last.append(work.started - ended)
        self._last[work.worker] = task.wave, work.started + seconds

    def _end_waves(self, at: float) -> None:
        """Learn from the waves that have ended what passes besides their tasks."""
        for number in [*self._since]:
            tasks = [task for task in self._begun.values() if task.wave == number]
            if all(task.name in self._done for task in tasks):
                jobs = [Job(t.name, self._done[t.name], after=t.after) for t in tasks]
                wall = at - self._since.pop(number)
                if not any(task.aside for task in tasks):
                    made = schedule(jobs, self.workers, per_task=self._gaps.value)
                    self._pauses.last.append(max(0.0, wall - made.makespan))

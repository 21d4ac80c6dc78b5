"""The time that is left of a run, from the tasks that are still to come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from .costs import REUSED, Costs
from .schedule import Job, schedule
from .work import Planned

OVERDUE = 0.1
"""Share of its expected time that a task is taken to have left when it takes longer than that."""

PER_WAVE = 0.5
"""Seconds between two waves."""

PER_TASK = 0.05
"""Seconds between two tasks of a worker."""


@dataclass
class Remaining:
    """What is left of a run on some workers.

    found : names of tasks whose work an earlier attempt at the run has left.
    begun : the tasks that have been submitted, by name, as they were first.
    """

    workers: int
    costs: Costs = field(default_factory=Costs)
    found: set[str] = field(default_factory=set)
    begun: dict[str, Planned] = field(default_factory=dict)
    _plan: tuple[Planned, ...] | None = None
    _started: dict[str, float] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)
    _pending: dict[str, Planned] = field(default_factory=dict)

    def plan(self, tasks: Iterable[Planned]) -> None:
        """All tasks of the run, in the order in which they will be submitted, are known."""
        self._plan = tuple(tasks)

    def begin(self, wave: Sequence[Planned], at: float) -> None:
        """The tasks of a wave have been submitted."""
        for task in wave:
            if task.name not in self.begun:
                self.begun[task.name] = self._pending[task.name] = task
        self._start(at)

    def ended(self, name: str, at: float, seconds: float, *, reused: bool = False) -> None:
        """A task of a begun wave has ended, after so many seconds."""
        task = self.begun[name]
        self._done.add(name)
        self._started.pop(name, None)
        self._pending.pop(name, None)
        if not reused:
            # Before all tasks are known, sizes are not.
            if self._plan is not None:
                self.costs.observe(task.step, task.size, seconds)
            if name in self.found:
                # Such a step does its work again whatever it finds.
                again = {one for one in self.found if one.startswith(f"{task.step} ")}
                self.found -= again | {name}
        self._start(at)

    def left(self, at: float) -> float | None:
        """Seconds until the last task has ended; None while it is not known which are to come."""
        if self._plan is None:
            return None
        to_come = {task.name: task for task in (*self.begun.values(), *self._plan)}
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
        made = schedule([*running, *jobs], self.workers, per_wave=PER_WAVE, per_task=PER_TASK)
        return made.makespan

    def expected(self, task: Planned) -> float:
        """Seconds that a task is expected to take in all."""
        again = (rate := self.costs.rates.get(task.step)) is not None and rate.again
        if task.name in self.found and not again:
            return REUSED
        return self.costs.seconds(task.step, task.size)

    def _is_over(self, task: Planned, at: float) -> bool:
        """Whether a task aside must have ended: nobody waits for it, so that it does not tell."""
        started = self._started.get(task.name)
        return task.aside and started is not None and started + self.expected(task) <= at

    def _start(self, at: float) -> None:
        """Tell which tasks the workers have begun: the tasks that were submitted first."""
        ready = (
            name
            for name, task in self._pending.items()
            if not self._is_over(task, at) and all(before in self._done for before in task.after)
        )
        for name in islice(ready, self.workers):
            self._started.setdefault(name, at)

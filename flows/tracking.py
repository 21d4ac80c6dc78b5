"""The record of the work that a flow has had done."""

from __future__ import annotations

import os
import time
from dataclasses import asdict

from ..tasks.products.order import Aside, Call, Wave
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.handles import Artifact
from ..tasks.runs.metering import Work
from ..tasks.runs.settings import RunnerSettings
from ..tasks.runs.work import Began, Task, append
from .runners import chosen_runner


class Tracker:
    """Records the tasks of a run as they end."""

    def __init__(self, run: RunDirectory, runner: RunnerSettings) -> None:
        self._run = run
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self._began: Began | None = Began(
            time.time(), chosen_runner(runner), runner.workers, cores or 1
        )
        self._waves = 0
        self._begun: dict[str, dict] = {}

    def begin(self, wave: Wave) -> None:
        """A wave is about to be submitted."""
        begun = round(time.time(), 3)
        here = {one for calls in wave.values() for one in calls}
        for stage, calls in wave.items():
            for one in calls:
                facts = {
                    "name": one.name,
                    "stage": stage,
                    "step": one.step.name,
                    "wave": self._waves,
                    "aside": isinstance(wave, Aside),
                    "after": tuple(before.name for before in one.after if before in here),
                    "begun": begun,
                }
                self._begun.setdefault(one.name, facts)
        self._waves += 1

    def ended(self, one: Call, artifact: Artifact) -> None:
        """A call of a begun wave has made an artifact."""
        work = artifact.work or Work(round(time.time() - artifact.seconds, 3), 0.0, "")
        task = Task(
            **self._begun[one.name],
            **asdict(work),
            ended=round(time.time(), 3),
            seconds=artifact.seconds,
            reused=artifact.reused,
            path=artifact.path,
        )
        append(self._run, *([] if self._began is None else [self._began]), task)
        self._began = None

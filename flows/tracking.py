"""The record of a flow's work."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from prefect import Task as Step

from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.handles import Artifact, Work
from ..tasks.runs.settings import RunnerSettings
from ..tasks.runs.work import Began, Task, append
from .runners import chosen_runner


class WorkRecord:
    """Records the tasks of a run as they end."""

    def __init__(self, run: RunDirectory, runner: RunnerSettings) -> None:
        self._run = run
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self._began: Began | None = Began(
            time.time(), chosen_runner(runner), runner.workers, cores or 1
        )
        self._wave = 0
        self._begun: dict[Any, dict[str, Any]] = {}

    def begin(
        self,
        future: Any,
        step: Step[..., Any],
        keys: Iterable[Any],
        before: Iterable[Any],
        **facts: Any,
    ) -> None:
        """A task was submitted: the call of a step with keys, after the tasks of `before`; `facts`
        are its stage, and whether that is aside."""
        same = [self._begun[one] for one in before if self._begun[one]["wave"] == self._wave]
        self._begun[future] = {
            "name": " ".join([step.name, *map(str, keys)]),
            "step": step.name,
            "wave": self._wave,
            "after": tuple(one["name"] for one in same),
            "begun": round(time.time(), 3),
            **facts,
        }

    def close_wave(self) -> None:
        """Mark that the flow waits for its submitted tasks."""
        self._wave += 1

    def end(self, future: Any, artifact: Artifact) -> None:
        """A task has made an artifact."""
        work = artifact.work or Work(round(time.time() - artifact.seconds, 3), 0.0, "")
        task = Task(
            **self._begun[future],
            **asdict(work),
            ended=round(time.time(), 3),
            seconds=artifact.seconds,
            reused=artifact.reused,
            path=artifact.path,
        )
        append(self._run, *([] if self._began is None else [self._began]), task)
        self._began = None

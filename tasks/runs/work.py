"""The public record of a run's work: its tasks, their times, and their use of resources.

`work.jsonl` in the run directory has a line for every task as soon as it has ended; a resumed run
adds to it. Its contents are public: names of stages, numbers of geounits and timings, never a
function of confidential values.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Any

from .directory import RunDirectory
from .handles import Artifact, Work

FILE = "work.jsonl"


@dataclass(frozen=True)
class Task:
    """A task that has ended.

    name : step and keys, such as `measure persons Block 00003`; unique in a run.
    stage, step : the stage that it belongs to, and the step that it calls.
    wave : number of its wave; a wave waits until the one before has ended.
    aside : whether later waves did not wait for its wave.
    after : names of the tasks that it waited for, in addition to earlier waves that are not aside.
    begun, ended : times when its wave began and when its end was reported, seconds since 1970.
    started, seconds, cpu, worker : as in `handles.Work`; seconds by the wall clock.
    reused : whether it reused the result of an earlier attempt.
    """

    name: str
    stage: str
    step: str
    wave: int
    aside: bool
    after: tuple[str, ...]
    begun: float
    ended: float
    started: float
    seconds: float
    cpu: float
    worker: str
    reused: bool
    path: str


def append(run: RunDirectory, task: Task) -> None:
    """Add a task to the work of a run; on a full disk, the run continues without it."""
    line = f"{json.dumps(asdict(task))}\n"
    with suppress(OSError), (run.root / FILE).open("ab+") as stream:
        # The last line of a killed process may be incomplete.
        if stream.seek(0, os.SEEK_END):
            stream.seek(-1, os.SEEK_END)
            line = line if stream.read() == b"\n" else f"\n{line}"
        stream.write(line.encode())


def read_tasks(run: RunDirectory) -> dict[str, Task]:
    """The recorded tasks of a run by name: of each the call that did the work, the last that reused
    nothing. Incomplete lines are left out; earlier versions recorded more.
    """
    path, done = run.root / FILE, dict[str, Task]()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with suppress(ValueError, TypeError, KeyError):
            known = json.loads(line)
            own = {field.name: known[field.name] for field in fields(Task)}
            task = Task(**{**own, "after": tuple(own["after"])})
            if not (task.reused and task.name in done):
                done[task.name] = task
    return done


class WorkRecord:
    """Records the tasks of a run as they end."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._wave = 0
        self._begun: dict[Any, dict[str, Any]] = {}

    def begin(
        self,
        future: Any,
        step: str,
        keys: Iterable[Any],
        before: Iterable[Any],
        **facts: Any,
    ) -> None:
        """A task was submitted: the call of a step with keys, after the tasks of `before`; `facts`
        are its stage, and whether that is aside."""
        own = (self._begun[one] for one in before)
        waited = [one for one in own if one["wave"] == self._wave or one.get("aside")]
        self._begun[future] = {
            "name": " ".join([step, *map(str, keys)]),
            "step": step,
            "wave": self._wave,
            "after": tuple(one["name"] for one in waited),
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
        append(self._run, task)

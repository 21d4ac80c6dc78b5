"""The public record of a run's work: its tasks, their times, and their use of resources.

`work.jsonl` in the run directory has a line for every time that a process began to work on the run,
and one for every task as soon as it has ended; a resumed run adds to it. Its contents are public:
names of stages, numbers of geounits and timings, never a function of confidential values.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

from .directory import RunDirectory
from .handles import Artifact, Work

FILE = "work.jsonl"


@dataclass(frozen=True)
class Began:
    """A process began to work on a run at `at`, with so many workers on so many processors."""

    at: float
    runner: str
    workers: int
    cores: int


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
    path: str = ""


def work_file(run: RunDirectory) -> Path:
    """Where the work of a run is recorded."""
    return run.root / FILE


def append(run: RunDirectory, *records: Began | Task) -> None:
    """Add records to the work of a run; on a full disk, the run continues without them."""
    lines = "".join(f"{json.dumps(asdict(record))}\n" for record in records)
    with suppress(OSError), work_file(run).open("ab+") as stream:
        # The last line of a killed process may be incomplete.
        if stream.seek(0, os.SEEK_END):
            stream.seek(-1, os.SEEK_END)
            lines = lines if stream.read() == b"\n" else f"\n{lines}"
        stream.write(lines.encode())


def read(run: RunDirectory) -> list[Began | Task]:
    """The recorded work of a run, in the order of the records; empty for a run without."""
    try:
        lines = work_file(run).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [record for line in lines if (record := _record(line)) is not None]


def tasks_of(records: Sequence[Began | Task]) -> dict[str, Task]:
    """Record of the call that did the work, by name: the last that reused nothing."""
    done: dict[str, Task] = {}
    for record in records:
        if isinstance(record, Task) and not (record.reused and record.name in done):
            done[record.name] = record
    return done


def _record(line: str) -> Began | Task | None:
    """The record of a line; None for an incomplete line, or a line of another version."""
    try:
        fields: Mapping[str, Any] = json.loads(line)
        if "runner" in fields:
            return Began(**fields)
        # Earlier versions recorded more.
        known = {own.name: fields[own.name] for own in dataclass_fields(Task) if own.name in fields}
        return Task(**{**known, "after": tuple(known["after"])})
    except (ValueError, TypeError, KeyError):
        return None


class WorkRecord:
    """Records the tasks of a run as they end."""

    def __init__(self, run: RunDirectory, runner: str, workers: int) -> None:
        self._run = run
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self._began: Began | None = Began(time.time(), runner, workers, cores or 1)
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
        append(self._run, *([] if self._began is None else [self._began]), task)
        self._began = None

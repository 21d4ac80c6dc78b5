"""Data passed between tasks: small frozen handles, never tables; and the record of the tasks.

`work.jsonl` in the run directory has a line for every task as soon as it has ended; a resumed run
adds to it. Its contents are public: names of stages, numbers of geounits and timings, never a
function of confidential values.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .directory import RunDirectory


@contextmanager
def stopwatch() -> Iterator[Callable[[], float]]:
    """Yields a function that gives the seconds since the block began, rounded to milliseconds."""
    start = time.perf_counter()
    yield lambda: round(time.perf_counter() - start, 3)


@dataclass(frozen=True)
class Artifact:
    """A finished artifact of a run.

    path : path relative to the run directory.
    digest : SHA-256 of a public file, keyed digest of a confidential one, "" for a folder.
    seconds : time it took to make.
    reused : it existed already, from an earlier attempt at the same run.
    input_digests : of an ingest, the digests of the input that the manifest has, by kind.
    started, cpu, worker : of the call that made it, the time of its beginning in seconds since
        1970, the processor seconds of its thread, and its host and process; ignored when artifacts
        are compared.
    """

    path: str
    digest: str = ""
    seconds: float = 0.0
    reused: bool = False
    input_digests: Mapping[str, str] = field(default_factory=dict)
    started: float = field(default=0.0, compare=False)
    cpu: float = field(default=0.0, compare=False)
    worker: str = field(default="", compare=False)


@dataclass(frozen=True)
class Made:
    """Result of a step, by its own account; see `Artifact` for the public part.

    path : file or folder in the run, or the text of a place outside; "" for the ledger.
    reused : nothing was left to do.
    """

    path: Path | str
    reused: bool = False
    input_digests: Mapping[str, str] = field(default_factory=dict)


def created(path: Path | str) -> Made:
    """Result of a step that has just made it."""
    return Made(path)


def reused(path: Path | str) -> Made:
    """Result of an earlier attempt, which the step reuses."""
    return Made(path, reused=True)


def once(path: Path, make: Callable[..., object], *arguments: object) -> Made:
    """Reuse the file at a path from an earlier attempt, or `make` it from arguments."""
    if path.exists():
        return reused(path)
    make(*arguments)
    return created(path)


WORK_FILE = "work.jsonl"


@dataclass(frozen=True)
class Task:
    """A task that has ended.

    name : step and keys, such as `measure persons Block 00003`; unique in a run.
    stage, step : the stage that it belongs to, and the step that it calls.
    ended : time when its end was reported, in seconds since 1970.
    started, seconds, cpu, worker, reused, path : as of its `Artifact`.
    """

    name: str
    stage: str
    step: str
    ended: float
    started: float
    seconds: float
    cpu: float
    worker: str
    reused: bool
    path: str


def record_task(
    run: RunDirectory, stage: str, step: str, keys: Iterable[object], made: Artifact
) -> None:
    """Add to the work of a run that the call of a step with keys has made an artifact; on a full
    disk, the run continues without it.
    """
    name, ended = " ".join([step, *map(str, keys)]), round(time.time(), 3)
    started = made.started or round(ended - made.seconds, 3)
    use = made.seconds, made.cpu, made.worker, made.reused, made.path
    line = f"{json.dumps(asdict(Task(name, stage, step, ended, started, *use)))}\n"
    with suppress(OSError), (run.root / WORK_FILE).open("ab+") as stream:
        # The last line of a killed process may be incomplete.
        if stream.seek(0, os.SEEK_END):
            stream.seek(-1, os.SEEK_END)
            line = line if stream.read() == b"\n" else f"\n{line}"
        stream.write(line.encode())


def read_tasks(run: RunDirectory) -> dict[str, Task]:
    """The recorded tasks of a run by name: of each the call that did the work, the last that reused
    nothing. Incomplete lines are left out; earlier versions recorded more.
    """
    path, done = run.root / WORK_FILE, dict[str, Task]()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with suppress(ValueError, TypeError, KeyError):
            known = json.loads(line)
            task = Task(**{field.name: known[field.name] for field in fields(Task)})
            if not (task.reused and task.name in done):
                done[task.name] = task
    return done

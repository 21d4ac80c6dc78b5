"""Data passed between tasks: small frozen handles, never tables.

Metering of a piece of work: seconds and processor time.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Work:
    """Work of one call of a step; all of it public.

    started : seconds since 1970 at its beginning.
    cpu : processor seconds of its thread.
    worker : host and process of the call.
    """

    started: float
    cpu: float
    worker: str


@contextmanager
def meter_work() -> Iterator[Callable[[], Work]]:
    """Yield a function that returns the work of this thread's block so far."""
    started, cpu = time.time(), time.thread_time()
    worker = f"{socket.gethostname()}:{os.getpid()}"
    yield lambda: Work(round(started, 3), round(time.thread_time() - cpu, 3), worker)


@contextmanager
def stopwatch() -> Iterator[Callable[[], float]]:
    """Yields a function that gives the seconds since the block began, rounded to milliseconds."""
    start = time.perf_counter()
    yield lambda: round(time.perf_counter() - start, 3)


Fact = int | float | str


@dataclass(frozen=True)
class Artifact:
    """A finished artifact of a run.

    path : path relative to the run directory.
    digest : SHA-256 of a public file, keyed digest of a confidential one, "" for a folder.
    seconds : time it took to make.
    reused : it existed already, from an earlier attempt at the same run.
    facts : public facts worth showing, such as numbers of geounits or of solves.
    work : its metered work, if any; ignored when artifacts are compared.
    """

    path: str
    digest: str = ""
    seconds: float = 0.0
    reused: bool = False
    facts: tuple[tuple[str, Fact], ...] = ()
    work: Work | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Made:
    """Result of a step, by its own account; see `Artifact` for the public part.

    path : file or folder in the run, or the text of a place outside; "" for the ledger.
    facts : public facts worth showing.
    reused : nothing was left to do.
    """

    path: Path | str
    facts: Mapping[str, Fact] = field(default_factory=dict)
    reused: bool = False


def created(path: Path | str, facts: Mapping[str, Fact] | None = None) -> Made:
    """Result of a step that has just made it."""
    return Made(path, facts or {})


def reused(path: Path | str, facts: Mapping[str, Fact] | None = None) -> Made:
    """Result of an earlier attempt, which the step reuses."""
    return Made(path, facts or {}, reused=True)


def created_or_reused(path: Path | str, *, is_new: bool) -> Made:
    """Result of a step that has just made it, if it is new, or of an earlier attempt."""
    return Made(path, reused=not is_new)


def once(path: Path, make: Callable[..., object], *arguments: object) -> Made:
    """Reuse the file at a path from an earlier attempt, or `make` it from arguments."""
    if path.exists():
        return reused(path)
    make(*arguments)
    return created(path)

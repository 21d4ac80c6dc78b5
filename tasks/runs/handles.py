"""Data passed between tasks: small frozen handles, never tables.

Metering of a piece of work: seconds, processor time, bytes read and written.
"""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

IO = Path("/proc/self/io")
"""Bytes that this process has read and written, on Linux."""


@dataclass(frozen=True)
class Work:
    """Work of one call of a step; all of it public.

    started : seconds since 1970 at its beginning.
    cpu : processor seconds, of all its threads where it had the process to itself.
    worker : host and process of the call.
    read, written : bytes read from and written to files; None where they are unknown, or
        confidential, as the length of confidential files depends on their contents. Reads through
        a memory-mapped file are not counted.
    """

    started: float
    cpu: float
    worker: str
    read: int | None = None
    written: int | None = None


PUBLIC_STAGES = {"estimation", "postprocess", "release", "checks", "spine"}
"""Folders of stages that open nothing confidential, apart from their folders `accuracy`."""


def reads_public_files(module: str) -> bool:
    """Whether a step that is defined in a module opens public files alone.

    >>> reads_public_files("spineflow.tasks.topdown.measurement.steps")
    False
    """
    parts = set(module.split("."))
    return bool(parts & PUBLIC_STAGES) and "accuracy" not in parts


def confined_work(work: Work) -> Work:
    """Work without the bytes read and written, which depend on confidential files."""
    return replace(work, read=None, written=None)


@dataclass(eq=False)
class _Block:
    """A metered block: the thread it runs in, which has had the process to itself so far or not."""

    thread: int
    is_alone: bool


_lock = threading.Lock()
_metered: set[_Block] = set()
"""The blocks that run now; a step that calls another has them nested in one thread."""


@contextmanager
def meter_work() -> Iterator[Callable[[], Work]]:
    """Yield a function that returns the work of this thread's block so far."""
    with _lock:
        thread = threading.get_ident()
        others = [other for other in _metered if other.thread != thread]
        for other in others:
            other.is_alone = False
        block = _Block(thread, not others)
        _metered.add(block)
    started, of_thread, of_process, moved = (
        time.time(),
        time.thread_time(),
        _cpu(),
        _transferred_bytes(),
    )

    def work() -> Work:
        alone = block.is_alone
        cpu = _cpu() - of_process if alone else time.thread_time() - of_thread
        now = _transferred_bytes() if alone else None
        read, written = (
            (None, None) if now is None or moved is None else (now[0] - moved[0], now[1] - moved[1])
        )
        worker = f"{socket.gethostname()}:{os.getpid()}"
        return Work(round(started, 3), round(cpu, 3), worker, read, written)

    try:
        yield work
    finally:
        with _lock:
            _metered.remove(block)


def _cpu() -> float:
    """Processor seconds of this process and of the children that it has waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _transferred_bytes() -> tuple[int, int] | None:
    """Bytes that this process has read and written; None where the system does not report them."""
    try:
        lines = IO.read_text(encoding="ascii").splitlines()
        counters = dict(line.split(": ") for line in lines)
        return int(counters["rchar"]), int(counters["wchar"])
    except (OSError, ValueError, KeyError):
        return None


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


def once(path: Path, make: Callable[..., object], *arguments: object) -> Made:
    """Reuse the file at a path from an earlier attempt, or `make` it from arguments."""
    if path.exists():
        return reused(path)
    make(*arguments)
    return created(path)

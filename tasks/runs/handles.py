"""Data passed between tasks: small frozen handles, never tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


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

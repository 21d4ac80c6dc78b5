"""What travels between tasks: small frozen handles, never data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .metering import Work

Fact = int | float | str


@dataclass(frozen=True)
class Artifact:
    """A finished artifact of a run.

    path : where it lies, relative to the run directory.
    digest : SHA-256 of a public file, keyed digest of a confidential one, "" for a folder.
    seconds : time it took to make.
    reused : it was there already, from an earlier attempt at the same run.
    facts : public facts worth showing, such as numbers of geounits or of solves.
    work : what it took of its machine, if that was metered; two artifacts are the same without it.
    """

    path: str
    digest: str = ""
    seconds: float = 0.0
    reused: bool = False
    facts: tuple[tuple[str, Fact], ...] = ()
    work: Work | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Made:
    """What a step did, as it says itself; see `Artifact` for what is told of it.

    path : the file or folder in the run, as text what lies elsewhere; "" for the ledger.
    facts : public facts worth showing.
    reused : nothing was left to do.
    """

    path: Path | str
    facts: Mapping[str, Fact] = field(default_factory=dict)
    reused: bool = False


def made(path: Path | str, facts: Mapping[str, Fact] | None = None) -> Made:
    """What a step has just made."""
    return Made(path, facts or {})


def found(path: Path | str, facts: Mapping[str, Fact] | None = None) -> Made:
    """What an earlier attempt has left, so that the step did nothing."""
    return Made(path, facts or {}, reused=True)


def once(path: Path, make: Callable[..., object], *arguments: object) -> Made:
    """What an earlier attempt has left at a path, or else what `make` makes there of arguments."""
    if path.exists():
        return found(path)
    make(*arguments)
    return made(path)

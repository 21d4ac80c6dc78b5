"""What travels between tasks: small frozen handles, never data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Artifact:
    """A finished artifact of a run.

    path : where it lies, relative to the run directory.
    digest : SHA-256 of a public file, keyed digest of a confidential one, "" for a folder.
    seconds : time it took to make.
    reused : it was there already, from an earlier attempt at the same run.
    facts : public facts worth showing, such as numbers of geounits or of solves.
    """

    path: str
    digest: str = ""
    seconds: float = 0.0
    reused: bool = False
    facts: tuple[tuple[str, int | float | str], ...] = ()

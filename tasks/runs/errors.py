"""Errors that end a run, each with the exit code of the command line.

The text of these errors may reach the Prefect server, the console and the log, so it names
files, columns, rules, geounits and remedies; it never carries a value of a record, and carries
counts only for inputs that are not confidential.

Keeping confidential values out of errors that leave the process.

The text of an exception becomes part of a task's state on the Prefect server. The program's errors
are public sentences; any other exception may quote data, so its text and traceback go to the
run's confidential folder, and a sentence without them replaces it.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path


class SpineflowError(Exception):
    """An error whose text is one public sentence: the fault, its place, and the remedy."""

    exit_code = 1


class InputRefused(SpineflowError):
    """Settings or input files are refused; nothing has been measured."""

    exit_code = 2


@contextmanager
def refuse_errors(
    before: str = "",
    after: str = ".",
    *,
    of: type[Exception] = ValueError,
    to: type[Exception] = InputRefused,
) -> Iterator[None]:
    """Raise another error for an error inside, with its text between these two."""
    try:
        yield
    except of as error:
        raise to(f"{before}{error}{after}") from None


class BudgetRefused(SpineflowError):
    """The privacy-loss cap is reached, or the ledger cannot be used; no noise was drawn."""

    exit_code = 3


class SolveFailed(SpineflowError):
    """An optimisation problem and its fallback failed; names the geounit and the constraint."""

    exit_code = 4


class CheckFailed(SpineflowError):
    """A check of the result failed; the release is withheld."""

    exit_code = 5


class StorageFailed(SpineflowError):
    """Reading or writing failed in a way that may pass: disk full, network, permissions."""


class MemoryFailed(SpineflowError):
    """A piece of work ran out of memory."""


class UnforeseenError(SpineflowError):
    """An unforeseen error; its detail is in the run's confidential folder."""


def confined_error(
    error: Exception, run_root: str, step: str, keys: Sequence[object]
) -> SpineflowError:
    """The public error for any error of a step, called with keys on the run at `run_root`.

    Raise it outside of the handler, so that it has no reference to the error.
    """
    if isinstance(error, SpineflowError):
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)
    if isinstance(error, OSError):
        return storage_failed(error, run_root)
    if isinstance(error, MemoryError):
        keep_traceback(error, run_root)
        # The name of a piece of work is the name of its task at the server, too.
        what = " ".join(map(str, [step, *keys]))
        return MemoryFailed(f"Memory ran out in {what}; {more_memory(run_root)}.")
    return UnforeseenError(failure_sentence(error, step, run_root))


def storage_failed(error: OSError, run_root: str) -> StorageFailed:
    """The public error for an error of the storage, whose traceback is kept in confidence."""
    keep_traceback(error, run_root)
    name = Path(error.filename).name if isinstance(error.filename, str) else "a file of the run"
    # Not the error's own text, which some libraries write themselves.
    reason = os.strerror(error.errno) if error.errno else type(error).__name__
    return StorageFailed(
        f"{reason} at {name}; put that right and continue with 'spineflow resume {run_root}'."
    )


def more_memory(run_root: str) -> str:
    """Remedy for a run that has run out of memory.

    >>> more_memory("run")
    "give the run more, or fewer tasks at once (--set run.workers=N) with 'spineflow resume run'"
    """
    again = f"'spineflow resume {run_root}'"
    return f"give the run more, or fewer tasks at once (--set run.workers=N) with {again}"


def failure_sentence(error: Exception, what: str, run_root: str) -> str:
    """A public sentence on a failed step; the error's traceback is kept confidential."""
    kept = keep_traceback(error, run_root)
    detail = f"; the detail is in {kept}" if kept else ""
    return f"{what} failed with {type(error).__name__}{detail}."


def keep_traceback(error: BaseException, run_root: str) -> str | None:
    """Write the traceback under the run's confidential folder; its name, or None if it failed."""
    folder = Path(run_root) / "confidential" / "errors"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.parent.chmod(0o700)
        file = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.txt"
        file.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    except OSError:
        return None
    return f"confidential/errors/{file.name}"

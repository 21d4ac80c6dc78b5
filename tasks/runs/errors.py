"""Errors that end a run, each with the exit code of the command line.

The text of these errors may reach the Prefect server, the console and the log, so it names
files, columns, rules, geounits and remedies; it never carries a value of a record, and carries
counts only for inputs that are not confidential.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class SpineflowError(Exception):
    """An error whose text is one public sentence: what is wrong, where, and the remedy."""

    exit_code = 1


class InputRefused(SpineflowError):
    """Settings or input files are refused; nothing has been measured."""

    exit_code = 2


@contextmanager
def refused(
    before: str = "", after: str = ".", *, of: type[Exception] = ValueError
) -> Iterator[None]:
    """Raise InputRefused for an error inside, whose words stand between these two."""
    try:
        yield
    except of as error:
        raise InputRefused(f"{before}{error}{after}") from None


class BudgetRefused(SpineflowError):
    """The privacy-loss cap is reached, or the ledger cannot be used; no noise was drawn."""

    exit_code = 3


class SolveFailed(SpineflowError):
    """An optimisation problem and its fallback failed; names the geounit and the constraint."""

    exit_code = 4


class CheckFailed(SpineflowError):
    """A check of the result failed; the release is withheld."""

    exit_code = 5

"""The log of commands on standard error, and their last sentence if a signal ends them.

The log is text for people or JSON for the log of a service. SIGINT and SIGTERM raise an exception
in the main thread, so that Prefect and the manifest record it; running tasks end first. A second
signal ends the process at once; every run can be continued after that as well.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from types import FrameType
from typing import TextIO

from pythonjsonlogger.json import JsonFormatter

LOGGER = logging.getLogger("spineflow")
"""Errors, warnings and notes of a command."""

PROGRESS = LOGGER.getChild("progress")
"""Progress, such as finished stages of a run."""

TEXT, JSON = "text", "json"
"""Forms of a command's log."""

KINDS = {logging.ERROR: "spineflow", logging.WARNING: "warning", logging.INFO: "note"}
"""The first word of a line of text, by its level."""


def sentence_of(stage: str, planned: int, seconds: float) -> str:
    """Log message after all tasks of a stage have ended.

    >>> sentence_of("persons measure County", 4, 2.6)
    'persons measure County: 4 tasks, 3 s.'
    """
    return f"{stage}: {planned} task{'s' if planned != 1 else ''}, {seconds:.0f} s."


class LinesForPeople(logging.Formatter):
    """Lines of text that begin with their time if they report progress, or else their kind."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        if record.name == PROGRESS.name:
            time = datetime.fromtimestamp(record.created, UTC)
            return f"{time:%Y-%m-%dT%H:%M:%SZ} {record.getMessage()}"
        return f"{KINDS[record.levelno]}: {record.getMessage()}"


class StandardError(logging.StreamHandler[TextIO]):
    """Handler for the present standard error; a run goes on after its reader has gone."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        """Standard error."""
        return sys.stderr

    def handleError(self, record: logging.LogRecord) -> None:
        """Discard further output if its reader, such as `head`, has gone."""
        if isinstance(sys.exc_info()[1], BrokenPipeError):
            drop_output(sys.stderr)
        else:
            super().handleError(record)


def drop_output(stream: TextIO) -> None:
    """Discard further output to a stream.

    Python would write the rest once more at its end, and fail.
    """
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def logging_as(form: str) -> Iterator[None]:
    """In the block, log on standard error in a form, TEXT or JSON."""
    handler = StandardError()
    handler.setFormatter(
        LinesForPeople()
        if form == TEXT
        else JsonFormatter(
            "%(levelname)s %(message)s",
            rename_fields={"levelname": "level", "timestamp": "time"},
            timestamp=True,
        )
    )
    before = LOGGER.handlers, LOGGER.propagate, LOGGER.level
    LOGGER.handlers, LOGGER.propagate = [handler], False
    LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOGGER.handlers, LOGGER.propagate = before[:2]
        LOGGER.setLevel(before[2])


def log_json_lines() -> None:
    """Have Prefect's logs on the console be lines of JSON, in this process and its children.

    Before Prefect is imported.
    """
    os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_FORMATTER"] = "json"
    os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "INFO"


SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""The signals that end a command."""

EXIT_CODE = 1

_root: list[str] = []


def set_resume_hint(run_root: str) -> None:
    """Have an interrupted command name the run to continue."""
    if not _root:  # The runs of a run's parts are continued with it.
        _root.append(run_root)


def exit_code_of(command: Callable[[], int]) -> int:
    """The exit code of a command that a signal may end; the main thread receives all signals."""
    if threading.current_thread() is not threading.main_thread():
        return command()
    _root.clear()
    before = {number: signal.signal(number, _raise) for number in SIGNALS}
    try:
        return command()
    except BaseException as error:
        # Prefect, which handles SIGTERM while it runs a flow, raises an exception of its own.
        is_of_prefect = type(error).__name__ == "TerminationSignal"
        if not (is_of_prefect or isinstance(error, KeyboardInterrupt)):
            raise
        again = f"; continue with 'spineflow resume {_root[0]}'" if _root else ""
        LOGGER.error("interrupted%s.", again)
        return EXIT_CODE
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise(number: int, _frame: FrameType | None) -> None:
    """Raise the first signal; the next has the system's own effect."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_DFL)
    raise KeyboardInterrupt

"""Commands ended by a signal: they print a sentence with the command that continues the run.

SIGINT and SIGTERM raise an exception in the main thread, so that Prefect and the manifest record
it; running tasks end first. A second signal ends the process at once; every run can be continued
after that as well.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

from .logs import LOGGER

WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
"""The signals that end a command, and the word for each."""

EXIT_CODE = 1

_root: list[str] = []


class EndSignal(KeyboardInterrupt):
    """A signal has asked the command to end; it is the signal's word."""


def set_resume_hint(run_root: str) -> None:
    """Have an interrupted command name the run to continue."""
    if not _root:  # The runs of a run's parts are continued with it.
        _root.append(run_root)


def sentence(word: str) -> str:
    """The last sentence of an interrupted command.

    >>> sentence("interrupted")
    'interrupted.'
    """
    again = f"; continue with 'spineflow resume {_root[0]}'" if _root else ""
    return f"{word}{again}."


def exit_code_of(command: Callable[[], int]) -> int:
    """The exit code of a command that a signal may end; the main thread receives all signals."""
    if threading.current_thread() is not threading.main_thread():
        return command()
    _root.clear()
    before = {number: signal.signal(number, _raise) for number in WORDS}
    try:
        return command()
    except BaseException as error:
        word = _word_of(error)
        if word is None:
            raise
        LOGGER.error(sentence(word))
        return EXIT_CODE
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise(number: int, _frame: FrameType | None) -> None:
    """Raise the first signal; the next has the system's own effect."""
    for each in WORDS:
        signal.signal(each, signal.SIG_DFL)
    raise EndSignal(WORDS[signal.Signals(number)])


def _word_of(error: BaseException) -> str | None:
    """The word of the signal behind an exception; None for another exception."""
    if isinstance(error, EndSignal):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return WORDS[signal.SIGINT]
    # Prefect, which handles this signal while it runs a flow, raises an exception of its own.
    return WORDS[signal.SIGTERM] if type(error).__name__ == "TerminationSignal" else None

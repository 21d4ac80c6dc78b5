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

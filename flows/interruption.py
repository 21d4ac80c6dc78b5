"""Commands that are interrupted, from the keyboard or by a signal: they answer, and end soon.

The first signal is raised in the main thread, so that the manifest tells of it, and Prefect. What
is being worked on meanwhile, such as a solve in a thread, would be waited for: after a moment the
process ends without it, as if it had been killed, from which every run goes on. A second signal
ends it at once.

A signal is heard by a thread, since Python tells the main thread of it only between two
instructions of its own, and a solver's call may last for minutes.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

SECONDS_TO_END = 1.5
"""What a command takes at most from a signal to its end."""

WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
"""The signals that end a command, and what it says of each."""

EXIT_CODE = 1

LISTENER = "signals"
"""Name of the thread that listens for signals, and does nothing else."""

_root: list[str] = []
_farewells: list[Callable[[], None]] = []


class Ended(KeyboardInterrupt):
    """A signal has asked the command to end; it is the signal's word."""


def going_on(run_root: str, farewell: Callable[[], None]) -> None:
    """Have an interrupted command say with which run to go on, and call `farewell` if it has to end
    without waiting for what is being worked on."""
    if not _root:  # The runs of a run's parts are continued with it.
        _root.append(run_root)
        _farewells.append(farewell)


def sentence(word: str) -> str:
    """What an interrupted command says at its end.

    >>> sentence("interrupted")
    'spineflow: interrupted.'
    """
    again = f"; continue with 'spineflow resume {_root[0]}'" if _root else ""
    return f"spineflow: {word}{again}."


class _Watch:
    """Listens for signals, and ends the process that does not end by itself."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        os.set_blocking(self.writing, False)
        self._has_spoken = threading.Lock()
        self._thread = threading.Thread(target=self._listen, name=LISTENER, daemon=True)
        self._thread.start()

    def speak(self, word: str) -> None:
        """Say once that the command was ended; what cannot be written is not said."""
        if self._has_spoken.acquire(blocking=False):
            with suppress(OSError, ValueError):
                # A bar of progress hides the cursor.
                cursor = "\r\x1b[?25h" if sys.stderr.isatty() else ""
                print(f"{cursor}{sentence(word)}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Stop listening, as no signal came."""
        os.close(self.writing)
        self._thread.join()
        os.close(self._reading)

    def _heard(self) -> str | None:
        """The word of the next signal; None at the end."""
        while number := os.read(self._reading, 1):
            if number[0] in WORDS:
                return WORDS[signal.Signals(number[0])]
        return None

    def _listen(self) -> None:
        word = self._heard()
        if word is None:
            return
        patience = threading.Timer(SECONDS_TO_END, self._end, [word])
        patience.daemon = True
        patience.start()
        if self._heard() is not None:
            self._end(word)

    def _end(self, word: str) -> None:
        """End the process now; its children notice that, and end too."""
        self.speak(word)
        farewell = threading.Thread(target=_say_farewell, daemon=True)
        farewell.start()
        farewell.join(0.4)
        os._exit(EXIT_CODE)


def _say_farewell() -> None:
    for farewell in _farewells:
        with suppress(Exception):
            farewell()


def answered(command: Callable[[], int]) -> int:
    """The exit code of a command that a signal may end; signals come to the main thread alone.

    Once a signal has come the process ends soon, even if the caller does not.
    """
    if threading.current_thread() is not threading.main_thread():
        return command()
    watch = _Watch()
    _root.clear()
    _farewells.clear()
    raised: list[str] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        if not raised:
            raised.append(WORDS[signal.Signals(number)])
            raise Ended(raised[0])

    def unraisable(lost: sys.UnraisableHookArgs) -> None:
        # In a callback, of the garbage collection for example, the exception reaches no command:
        # the process ends after a moment all the same.
        if not isinstance(lost.exc_value, Ended):
            tell(lost)

    tell, sys.unraisablehook = sys.unraisablehook, unraisable
    before = {number: signal.signal(number, handle) for number in WORDS}
    wakeup = signal.set_wakeup_fd(watch.writing, warn_on_full_buffer=False)
    word = None
    try:
        return command()
    except BaseException as error:
        word = _word_of(error)
        if word is None:
            raise
        watch.speak(word)
        return EXIT_CODE
    finally:
        if word is None:
            sys.unraisablehook = tell
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            watch.close()


def _word_of(error: BaseException) -> str | None:
    """The word of the signal that an exception tells of; None for another exception."""
    if isinstance(error, Ended):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return WORDS[signal.SIGINT]
    # Prefect, which handles this signal while it runs a flow, raises an exception of its own.
    return WORDS[signal.SIGTERM] if type(error).__name__ == "TerminationSignal" else None

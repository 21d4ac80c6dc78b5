"""What commands say on standard error, on request as lines of JSON for the log of a service."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TextIO

TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)
"""How a command writes what it says while it works."""

LEVELS = {"warning: ": "warning", "note: ": "info", "spineflow: ": "error"}
"""How lines begin, and the level of what they say; others only inform."""


class JsonLines(io.TextIOBase):
    """A stream of text that writes each line to another stream as an object.

    It has the keys `time` (UTC), `level` and `message`.

    >>> written = io.StringIO()
    >>> print("warning: nothing caps what is spent", file=JsonLines(written))
    >>> json.loads(written.getvalue())["level"]
    'warning'
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rest = ""

    def write(self, text: str) -> int:
        """Write all lines that are whole now; returns the number of characters."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in filter(None, lines):
            self._stream.write(f"{json.dumps(_object(line))}\n")
        self._stream.flush()
        return len(text)

    def writable(self) -> bool:
        """It is."""
        return True

    def flush(self) -> None:
        """Flush the other stream; a line is written once it has ended."""
        self._stream.flush()

    def fileno(self) -> int:
        """The number of the other stream."""
        return self._stream.fileno()


def say(line: str) -> None:
    """Print a line on standard error; a run that nobody listens to any more goes on all the same.

    >>> say("warning: nothing caps what is spent")
    """
    try:
        print(line, file=sys.stderr, flush=True)
    except BrokenPipeError:
        drop_output(sys.stderr)


def drop_output(stream: TextIO) -> None:
    """Have what is still written to a stream go nowhere: who read it, such as 'head', has gone.

    Python would write the rest once more at its end, and fail.
    """
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _object(line: str) -> dict[str, str]:
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    for beginning, level in LEVELS.items():
        if line.startswith(beginning):
            return {"time": now, "level": level, "message": line.removeprefix(beginning)}
    return {"time": now, "level": "info", "message": line}


@contextmanager
def logged(form: str) -> Iterator[None]:
    """In the block, what is said on standard error has one of `FORMATS`."""
    if form == TEXT:
        yield
        return
    before = sys.stderr
    sys.stderr = JsonLines(before)
    try:
        yield
    finally:
        sys.stderr = before


def as_json_lines() -> None:
    """Have Prefect's logs on the console be lines of JSON, in this process and its children.

    Before Prefect is imported.
    """
    os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_FORMATTER"] = "json"
    os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "INFO"

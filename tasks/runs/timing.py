"""Wall-clock seconds of a block of code."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stopwatch() -> Iterator[Callable[[], float]]:
    """Yields a function that gives the seconds since the block began, rounded to milliseconds."""
    start = time.perf_counter()
    yield lambda: round(time.perf_counter() - start, 3)

"""A process that judges inputs by Great Expectations for the workers of a command.

To import that takes a second, about as long as a worker reads a state's tables: so the process that
workers are forked from forks one more, which imports it meanwhile and answers what a worker asks at
the end of its reading. What it has imported is a hundred MiB, so it goes when nobody has asked for
some seconds. Where there is none, or it has gone, whoever asks judges for itself.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import connection
from typing import Any

SECONDS_BETWEEN_LOOKS = 1.0
"""How often the process looks whether the one that it was forked from is still there."""

SECONDS_UNASKED = 3.0
"""How long the process stays after an answer for the next question."""

_address: str | None = None
"""Where the process of this one, or of that which it was forked from, is asked."""


def begin(
    listener: socket.socket,
    address: str,
    fork: Callable[[Callable[[], None]], object],
    import_all: Callable[[], object],
    judge: Callable[..., Any],
) -> None:
    """Begin the process, for this one and all that are forked from it later.

    listener, address : where it is asked. fork : forks this process; the fork keeps the listener,
        and calls a function. import_all : what it calls first. judge : what it answers with.
    """
    global _address
    fork(partial(_serve, listener, import_all, judge, os.getpid()))
    _address = address


def asked(*arguments: Any) -> Any | None:
    """What the process answers; None where there is none, or it could not answer."""
    if _address is None:
        return None
    with suppress(OSError, EOFError), connection.Client(_address) as client:
        client.send(arguments)
        return client.recv()
    return None


def _serve(
    listener: socket.socket,
    import_all: Callable[[], object],
    judge: Callable[..., Any],
    parent: int,
) -> None:
    """Answer one after the other, until nobody asks any more, or the process that this one was
    forked from has ended.

    Who asks for what raises is not answered, and has it raised where he asked.
    """
    global _address
    _address = None  # It is not to ask itself.
    import_all()
    listener.settimeout(SECONDS_BETWEEN_LOOKS)
    answered = math.inf
    while os.getppid() == parent and time.monotonic() < answered + SECONDS_UNASKED:
        with suppress(Exception):
            accepted, _ = listener.accept()
            accepted.setblocking(True)
            with connection.Connection(accepted.detach()) as client:
                try:
                    client.send(judge(*client.recv()))
                finally:
                    answered = time.monotonic()

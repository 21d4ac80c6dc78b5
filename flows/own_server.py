"""The process of the Prefect server that a command starts for its own runs.

It serves at a socket that the command has opened already, so that a client's first request waits
for it instead of failing. It ends with the command, however that ends: the command has the other
end of its standard input.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import uvicorn

from . import server_fixes


def main(socket_number: int) -> None:
    """Serve Prefect's API at an inherited, listening socket until standard input is closed."""
    server_fixes.apply()
    threading.Thread(target=_end_with_the_command, daemon=True).start()
    uvicorn.run(
        "prefect.server.api.server:create_app",
        factory=True,
        fd=socket_number,
        log_level="error",
        lifespan="on",
    )


def _end_with_the_command() -> None:
    # Not by `sys.stdin`, whose lock this thread would keep: Python aborts at its end for that.
    while os.read(0, 1):
        continue
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(int(sys.argv[1]))

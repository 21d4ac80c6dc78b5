"""Processes that are forked for commands from one that stands ready with all modules of the flows.

That one takes longer to start than most commands take, and serves all workers of a session: they
ask it at a socket. Who finds none there begins one, which ends with its beginner.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NoReturn

REPOSITORY = Path(__file__).resolve().parents[2]

SERVE = "import sys; sys.path.insert(0, sys.argv[1]); from tests.flows import forks; forks.serve()"

_shared: list[Path] = []
"""Where workers of a session find the socket that they share."""


def share(folder: Path) -> None:
    """Ask at a socket in this folder from now on, as others of the session do."""
    _shared[:] = [folder]


@cache
def _own_folder() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="spineflow-forks-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


class Fork:
    """A command in a process group of its own, as `subprocess.Popen` has it.

    `code` is a program and its arguments, `told` the files for its output and its errors.
    """

    def __init__(
        self,
        code: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        told: Sequence[Path],
    ) -> None:
        asked = [list(code), str(folder), dict(environment), [str(file) for file in told]]
        self._answers = _connected()
        self._answers.sendall(json.dumps(asked).encode() + b"\n")
        self.pid = self._number()
        self._code: int | None = None

    def poll(self) -> int | None:
        """How it ended; None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises subprocess.TimeoutExpired."""
        if self._code is None:
            if not select.select([self._answers], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("spineflow", timeout or 0)
            self._code = self._number()
            self._answers.close()
        return self._code

    def _number(self) -> int:
        line = b""
        while not line.endswith(b"\n"):
            more = self._answers.recv(1)
            assert more, "the process that commands are forked from is gone"
            line += more
        return int(line)


def _connected() -> socket.socket:
    """A connection to the process that forks, which is begun where there is none."""
    folder = _shared[0] if _shared else _own_folder()
    address = folder / "forks"
    connection = socket.socket(socket.AF_UNIX)
    with (folder / "forks.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            connection.connect(str(address))
        except (FileNotFoundError, ConnectionRefusedError):
            _begin(address)
            connection.connect(str(address))
    return connection


def _begin(address: Path) -> None:
    """Start the process, and wait until it answers at a socket."""
    address.unlink(missing_ok=True)
    command = [sys.executable, "-c", SERVE, str(REPOSITORY), str(address)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    atexit.register(process.communicate)  # Which ends its input, and waits for it.
    while not address.exists():
        assert process.poll() is None, "the process that commands are forked from did not start"
        time.sleep(0.05)


def serve() -> None:
    """Fork commands, until the input ends."""
    from spineflow.flows.registry import MODULES

    for name in (*MODULES.values(), "tests.flows.warmed"):
        import_module(name)
    gc.collect()
    gc.freeze()
    address = Path(sys.argv[2])
    ended, ending = os.pipe()
    os.set_blocking(ending, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ending)
    commands: dict[int, socket.socket] = {}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{address}.new")
        listener.listen()
        os.rename(f"{address}.new", address)
        while True:
            ready, _, _ = select.select([sys.stdin, ended, listener], [], [])
            if sys.stdin in ready:
                return
            if ended in ready:
                os.read(ended, 4096)
                _tell_of_ended(commands)
            if listener in ready:
                connection, _ = listener.accept()
                with connection.makefile() as asked:
                    code, folder, environment, told = json.loads(asked.readline())
                pid = os.fork()
                if not pid:
                    signal.set_wakeup_fd(-1)
                    with ExitStack() as closed:
                        for one in (listener, *commands.values()):
                            closed.enter_context(one)
                    os.close(ended)
                    os.close(ending)
                    _become(connection, code, folder, environment, told)
                commands[pid] = connection


def _tell_of_ended(commands: dict[int, socket.socket]) -> None:
    """Tell whoever waits for a command that has ended how it did."""
    while commands:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        if pid in commands:
            with commands.pop(pid) as connection, suppress(OSError):
                connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _become(
    connection: socket.socket,
    code: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    told: Sequence[str],
) -> NoReturn:
    """Become a command, in a process that was forked for it; end as Python does."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    with connection:
        connection.sendall(f"{os.getpid()}\n".encode())
    for number, file in enumerate((os.devnull, *told)):
        opened = os.open(file, (os.O_WRONLY | os.O_TRUNC) if number else os.O_RDONLY)
        os.dup2(opened, number)
        os.close(opened)
    status = 1
    try:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        from prefect.context import refresh_global_settings_context

        refresh_global_settings_context()
        program, *arguments = code
        sys.argv = ["-c", *arguments]
        exec(compile(program, "<command>", "exec"), {"__name__": "__main__"})
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        # The last logs are sent at the end.
        threading._shutdown()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):
                stream.flush()
        os._exit(status)

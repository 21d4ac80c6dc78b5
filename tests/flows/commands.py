"""The command as a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PATIENCE = 900

RUNS = "import sys; from spineflow.flows.cli import main; sys.exit(main(sys.argv[1:]))"

NO_CAP = ("warning: there is no ledger", "warning: dataset")
"""Beginnings of the warnings, when a run is charged, that its dataset has no cap."""

STAGE_LINE = re.compile(r"^\d{4}-\d\d-\d\dT[\d:]{8}Z .*\n", re.MULTILINE)
"""What is said of a finished stage, and where a run can be watched, off a terminal."""

DEADLY = """
import importlib, os, signal, sys

when, target, words = sys.argv[1:4]
module, _, name = target.partition(":")
owner = importlib.import_module(module)
*path, name = name.split(".")
for part in path:
    owner = getattr(owner, part)
original = getattr(owner, name)

def deadly(*arguments, **named):
    meant = words in " ".join(map(str, [*arguments, *named.values()]))
    if meant and when == "before":
        os.killpg(0, signal.SIGKILL)
    result = original(*arguments, **named)
    if meant:
        os.killpg(0, signal.SIGKILL)
    return result

setattr(owner, name, deadly)
from spineflow.flows.cli import main
sys.exit(main(sys.argv[4:]))
"""
"""Runs a command that is killed, and all its children with it, before or after a call.

The call is of `module:name` with an argument whose text holds some words.
"""


class Command:
    """A `spineflow` command in a process group of its own, in a folder, by a new Python.

    `killed` is a moment (see `DEADLY`) at which it dies, `program` Python that runs the command
    after a change of its own.
    """

    def __init__(
        self,
        *arguments: str,
        folder: Path,
        killed: tuple[str, str, str] | None = None,
        program: str = RUNS,
        **environment: str,
    ) -> None:
        code = [DEADLY, *killed] if killed else [program]
        home = {"PREFECT_HOME": str(folder / "prefect")}
        self._told = tempfile.TemporaryDirectory(prefix="spineflow-told-")
        self.output, self.errors = (Path(self._told.name) / name for name in ("output", "errors"))
        for file in (self.output, self.errors):
            file.touch()
        with self.output.open("w") as output, self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", *code, *arguments],
                cwd=folder,
                env=os.environ | home | environment,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )

    def exit_code(self) -> int | None:
        """How it ended; None while it runs."""
        return self.process.poll()

    def kill(self) -> None:
        """End it and its children as a power cut would."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self._wait(None)

    def _wait(self, timeout: float | None) -> None:
        self.process.wait(timeout)

    def ended(self) -> tuple[int, str, str]:
        """Wait for its end: exit code, output, errors."""
        try:
            self._wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        return self.exit_code(), self.output.read_text(), self._said()

    def _said(self) -> str:
        """Its errors, without the lines that tell of finished stages."""
        return re.sub(STAGE_LINE, "", self.errors.read_text())

    def wait_for(self, path: Path) -> None:
        """Return as soon as `path` exists, or the command has ended: some exist for a moment."""
        deadline = time.monotonic() + PATIENCE
        while not path.exists() and self.exit_code() != 0:
            assert self.exit_code() is None, self.errors.read_text()
            assert time.monotonic() < deadline, f"waited in vain for {path.name}"
            time.sleep(0.005)

    def first_error(self) -> str:
        """The first line of its errors, as soon as it is there."""
        deadline = time.monotonic() + PATIENCE
        while "\n" not in (told := self._said()):
            assert self.exit_code() is None and time.monotonic() < deadline, told
            time.sleep(0.05)
        return told.partition("\n")[0] + "\n"

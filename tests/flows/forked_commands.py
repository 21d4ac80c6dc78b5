"""Commands as forks of the test's process, which may be killed before any change to a folder.

A fork costs no start, and what is killed leaves exactly what a power cut leaves: nothing is undone
on the way out. It has the imports, the compiled kernels and the patches of its parent.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from spineflow.flows.cli import main

PATIENCE = 900
"""Seconds after which a command that hangs is ended, and the schedule fails."""

CHANGES = ("open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.chmod", "sqlite3.connect")
"""Audit events before which a command may be killed."""

CRITICAL = ("ledger.db", "/measurements/", "charged.json")
"""In the paths of what decides between one noise and two: half of the kills are there."""

Kill = tuple[Literal["any", "critical"], int]
"""A command is killed before this change of its folder, of any or of critical ones."""


class Deadly:
    """Audit hook that kills its process before one of the changes that it makes to a folder."""

    def __init__(self, folder: Path, kill: Kill | None) -> None:
        self.folder = str(folder)
        self.kill = kill
        self.seen = {"any": 0, "critical": 0}

    def __call__(self, event: str, arguments: tuple) -> None:
        if event not in CHANGES:
            return
        where = str(arguments[event == "os.link"])
        if self.folder not in where:
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return
        for kind in ("any", "critical") if any(name in where for name in CRITICAL) else ("any",):
            self.seen[kind] += 1
            if self.kill == (kind, self.seen[kind]):
                os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Command:
    """A command that has been begun: its process, and where its output goes."""

    process: int
    log: Path

    def ended(self) -> int | None:
        """Wait for its end: the exit code, None if it was killed by its schedule."""
        _, status = os.waitpid(self.process, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGKILL:
            return None
        assert code >= 0, f"ended by signal {-code}: {self.told()}"
        return code

    def told(self) -> str:
        """What it printed."""
        return self.log.read_text(encoding="utf-8")

    def changes(self) -> dict[str, int]:
        """How many changes it has made, if it was not killed."""
        any_, critical = self.log.with_suffix(".changes").read_text().split()
        return {"any": int(any_), "critical": int(critical)}


def begun(arguments: Sequence[str], folder: Path, logs: Path, kill: Kill | None = None) -> Command:
    """Begin a command in a fork of this process."""
    number = len(list(logs.iterdir()))
    log = logs / f"{number:05d}.log"
    log.touch()
    process = os.fork()
    if process:
        return Command(process, log)
    code = 99
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE)
        with log.open("w", encoding="utf-8") as sys.stdout:
            sys.stderr = sys.stdout
            os.dup2(sys.stdout.fileno(), 1)
            os.dup2(sys.stdout.fileno(), 2)
            deadly = Deadly(folder, kill)
            sys.addaudithook(deadly)
            code = main(arguments)
            log.with_suffix(".changes").write_text("{any} {critical}".format(**deadly.seen))
    except BaseException:
        log.write_text(traceback.format_exc(), encoding="utf-8")
    finally:
        os._exit(code)

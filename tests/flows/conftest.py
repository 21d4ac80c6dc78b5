"""What tests of the command share: the command as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

PATIENCE = 900

RUNS = "import sys; from spineflow.flows.cli import main; sys.exit(main(sys.argv[1:]))"

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
    """A `spineflow` command in a process group of its own, in a folder.

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
        self.process = subprocess.Popen(
            [sys.executable, "-c", *code, *arguments],
            cwd=folder,
            env=os.environ | home | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def kill(self) -> None:
        """End it and its children as a power cut would."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def ended(self) -> tuple[int, str, str]:
        """Wait for its end: exit code, output, errors."""
        try:
            output, errors = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        return self.process.returncode, output, errors

    def wait_for(self, path: Path) -> None:
        """Return as soon as `path` exists, or the command has ended: some exist for a moment."""
        deadline = time.monotonic() + PATIENCE
        while not path.exists() and self.process.poll() != 0:
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < deadline, f"waited in vain for {path.name}"
            time.sleep(0.005)


@pytest.fixture(scope="session")
def spineflow() -> Iterator[type[Command]]:
    """The command; what tests leave running is killed in the end."""
    started: list[Command] = []

    class Started(Command):
        def __init__(self, *arguments, **options) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    yield Started
    for command in started:
        command.kill()


@pytest.fixture(scope="session")
def settings_text(county: Path) -> str:
    """Settings of a private topdown run of the generated county, with its ledger beside them."""
    return (
        f'preset = "pl94_2020_us"\n[input]\npersons = "{county / "persons.parquet"}"\n'
        f'units = "{county / "units.parquet"}"\ngeography = "{county / "grfc.txt"}"\n'
        '[privacy]\ndataset = "county"\nledger = "ledger.db"\n'
    )

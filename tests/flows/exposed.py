"""Small runs of every product, on every runner and server, that faults can be done to."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator

import psutil
from spineflow.tasks.runs.directory import RunDirectory

from tests.flows import surroundings
from tests.flows.commands import Command
from tests.flows.faults import files_of
from tests.flows.held_up import SPEND_NOTHING, Fault, Unplayable, World, outcome


class Run:
    """A run of a product and the command that is at work on it, with what it is surrounded by."""

    def __init__(self, world: World, product: str, runner: str, server: str) -> None:
        self.world, self.product, self.runner = world, product, runner
        self.is_own = server == "own"
        self.folder = world.emptied()
        self.run = RunDirectory(self.folder / "run")
        self.run.root.mkdir()
        self.disk = surroundings.SmallDisk(megabytes=256)
        with contextlib.suppress(Unplayable):
            self.disk.mount(self.run.root)
        self.home = self.folder / "prefect"
        self.home.mkdir()
        shutil.copy(world.server.new_database, self.home / "prefect.db")
        self.before: dict[str, bytes] = {}
        self.command: Command | None = None

    def begin(self, **environment: str) -> None:
        """Begin the command, or the one that continues the run."""
        options = ["--set", f"run.runner={self.runner}", "--set", "run.workers=2"]
        begun = ["run", self.product, str(self.world.files[self.product]), "--run-dir"]
        first = ["resume"] if self.run.manifest.exists() else begun
        environment = ({} if self.is_own else self.world.server.environment) | environment
        self.command = Command(
            *(*first, str(self.run.root), *options), folder=self.folder, **environment
        )

    def children(self, *words: str) -> list[psutil.Process]:
        """The command's processes, at any depth, whose command lines hold all of some words."""
        try:
            every = psutil.Process(self.command.process.pid).children(recursive=True)
            return [one for one in every if all(word in " ".join(one.cmdline()) for word in words)]
        except psutil.Error:
            return []

    def workers(self) -> list[psutil.Process]:
        return [one for one in self.children("spawn_main") if not is_apart(one)]

    def drawn(self) -> dict[str, bytes]:
        """The noisy measurements that lie in its directory, and in those of runs within it."""
        return {
            name: (self.run.root / name).read_bytes()
            for name in files_of(self.run.root)
            if "measurements/" in name
            and "/constraints/" not in name
            and "confidential" not in name
            if name.endswith(".parquet")
        }

    def judged(self) -> None:
        """Raise `Fault` if what was drawn has changed, or was charged twice."""
        after = self.drawn()
        gone = [name for name, content in self.before.items() if after.get(name) != content]
        if gone:
            raise Fault(f"{gone[0]} has changed, or is gone")
        self.before |= after
        if self.product not in SPEND_NOTHING and (self.world.folder / "world/ledger.db").exists():
            own = self.world.draws() if after else []
            if len(set(own)) < len(own):
                raise Fault(f"it was charged twice: {own}")

    def ended(self) -> None:
        """Leave the run to itself; raise `Fault` unless it is complete then, and sound."""
        for wrong in ("it does not end", "its files are not those of its manifest"):
            self.begin()
            code, told, errors = outcome(self.command)
            if code or told:
                raise Fault(f"{wrong}: {errors}")
        if self.run.read_manifest()["status"] != "complete" or not self.run.release.is_dir():
            raise Fault("the run is not complete")
        self.judged()

    def __str__(self) -> str:
        return f"{self.product}, {self.runner}, {'own' if self.is_own else 'office'}"


@contextlib.contextmanager
def surrounded(world: World, product: str, runner: str, server: str) -> Iterator[Run]:
    """A run on a disk of its own, which is gone after the block, as is all that it has begun."""
    run = Run(world, product, runner, server)
    try:
        yield run
    finally:
        if run.command is not None:
            run.command.kill()
        if os.path.ismount(run.run.root):
            subprocess.run(["umount", "--lazy", str(run.run.root)], check=True)


def is_apart(process: psutil.Process) -> bool:
    """Whether a process of a command is no worker: its server, or a tracker of Python's."""
    line = " ".join(process.cmdline())
    return any(word in line for word in ("flows.servers", "resource_tracker"))

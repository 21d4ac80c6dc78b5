"""Small runs as commands that are held up in their middle, and judged when they have ended."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil
from spineflow.tasks.ledger.caps import summary
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.runs.directory import RunDirectory

from tests.conftest import PrefectServer
from tests.flows.commands import Command
from tests.flows.faults import measurements
from tests.flows.small_runs import of_several, settings_files

WENT_ON, HELD = "went on", "held"

HELD_UP = """
import sys, time
from pathlib import Path
from spineflow.flows.stages import Stages
from spineflow.tasks.runs.stores import StoreFile

stage, folder, more = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
entered, read = Stages._enter, StoreFile.read

def hold():
    (folder / "held").touch()
    while not (folder / "go").exists():
        time.sleep(0.05)
    exec(more, globals())

def enter(stages, name, artifacts):
    entered(stages, name, artifacts)
    if stage in name:
        hold()

def read_held(file, size=-1):
    if stage == "reading" and (folder / "run" / "manifest.json").exists():
        hold()
    return read(file, size)

Stages._enter, StoreFile.read = enter, read_held
from spineflow.flows.cli import main
sys.exit(main(sys.argv[4:]))
"""
"""Runs a command that waits once a stage is in the manifest, and then does something more; at
`reading` it waits before a started run reads a file of a store."""


SPEND_NOTHING = ("tune", "estimate")
"""What is run on data that are not confidential, or on measurements."""


class Fault(AssertionError):
    """A run has ended as it must not."""


class Unplayable(Exception):
    """What a play needs is not here, such as the right to mount."""


class World:
    """A folder with the settings of small runs of every product, and a server on a free port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "world").mkdir()
        (folder / "server").mkdir()
        self.files = settings_files(folder)
        self.files |= of_several(folder, self.files)
        self.server = PrefectServer.on_free_port(folder / "server")
        self.server.start()
        self.server.keep_new_database()

    def emptied(self) -> Path:
        """A folder for something new, under a ledger that is new as well."""
        shutil.rmtree(self.folder / "world")
        (self.folder / "world").mkdir()
        return Path(tempfile.mkdtemp(dir=self.folder))

    def draws(self) -> list[str]:
        """What the ledger has charged, by name."""
        ledger = open_ledger(self.folder / "world" / "ledger.db", must_exist=True)
        (dataset,) = summary(ledger)["datasets"].values()
        return [draw["name"] for own in dataset["products"].values() for draw in own["draws"]]


def outcome(command: Command) -> tuple[int, list[str], str]:
    """How a command ends: exit code, what it says beside warnings and notes, and all."""
    code, _, errors = command.ended()
    told = [line for line in errors.splitlines() if not line.startswith(("warning: ", "note:"))]
    return code, told, errors


class Ongoing:
    """A command on a run of a product, which is held up after a stage; with a server of its
    own unless it is `served` by that of the world, whose home is made ready by `at_home`."""

    def __init__(
        self,
        world: World,
        *options: str,
        product: str = "group-sizes",
        after: str = "ledger",
        then: str = "",
        name: str = "run",
        served: bool = True,
        at_home: Callable[[Path], None] = lambda home: None,
        **environment: str,
    ) -> None:
        self.world, self.product = world, product
        self.folder = world.emptied()
        self.home = self.folder / "prefect"
        self.home.mkdir()
        at_home(self.home)
        shutil.copy(world.server.new_database, self.home / "prefect.db")
        self.environment = world.server.environment if served else {}
        self.again: tuple[str, ...] = ()
        self.run = RunDirectory(self.folder / name)
        settings = str(world.files[product])
        overrides = [part for option in options for part in ("--set", option)]
        self.command = Command(
            *(after, str(self.folder), then),
            *("run", product, settings, "--run-dir", str(self.run.root), *overrides),
            folder=self.folder,
            program=HELD_UP,
            **(self.environment | environment),
        )
        self.command.wait_for(self.folder / "held")
        self.before = measurements(self.run.root)

    def children(self, words: str) -> list[psutil.Process]:
        """The processes that it has begun with these words in their command line."""
        every = psutil.Process(self.command.process.pid).children(recursive=True)
        return [child for child in every if words in " ".join(child.cmdline())]

    def ended(self, *, held: str | None = None, back: Callable[[], None] | None = None) -> str:
        """Let it go on, and judge how it ends; `held` are words of the sentence that is expected,
        and `back` brings back what was taken."""
        (self.folder / "go").touch()
        code, told, errors = outcome(self.command)
        if held is None and (code or told):
            raise Fault(f"it did not go on: {errors}")
        if held is not None:
            if len(told) != 1 or not told[0].startswith("spineflow: ") or held not in told[0]:
                raise Fault(f"exit code {code}, not one sentence with '{held}': {errors}")
            if back is not None:
                back()
            self.resumed()
        self.judged()
        return WENT_ON if held is None else HELD

    def resumed(self) -> None:
        """Continue it to its end."""
        arguments = ("resume", str(self.run.root), *self.again)
        again = Command(*arguments, folder=self.folder, **self.environment)
        code, _, errors = again.ended()
        if code:
            raise Fault(f"it could not be continued: {errors}")

    def judged(self) -> None:
        """Hold what it has made against what was there before, and against the ledger."""
        after = measurements(self.run.root)
        if any(after.get(name) != content for name, content in self.before.items()):
            raise Fault("a measurement has changed")
        if self.run.read_manifest()["status"] != "complete" or not self.run.release.is_dir():
            raise Fault("the run is not complete")
        if self.product in SPEND_NOTHING:
            return
        own = self.world.draws()
        if not own or len(set(own)) < len(own):
            raise Fault(f"it was not charged once: {own}")


def add_estimate(world: World) -> None:
    """Add the settings of a release from the measurements of a run, which is made for that."""
    measured = Ongoing(world, "workload.units.on_demand=false", product="topdown")
    measured.ended()
    world.files["estimate"] = world.folder / "estimate.toml"
    world.files["estimate"].write_text(
        f'[input]\nmeasurements = "{measured.run.root}/measurements"\n'
        f'geography = "{world.folder}/county/grfc.txt"\n',
        encoding="utf-8",
    )

"""What all tests share, some of it across the workers of a session.

The controller of a session makes a folder for all its workers. A generated county and a Prefect
server are made there by the first test that needs them, and the controller ends the server.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import hypothesis
import pytest
import spineflow.flows  # noqa: F401  Sets the environment before Prefect is imported.

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED = REPOSITORY.parent / "shared"
PATIENCE = 300

MEMORY, ROOM = Path("/dev/shm"), 8 * 2**30
"""Where the tests write if that many bytes are free there: a run syncs hundreds of small files."""

if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
    if os.access(MEMORY, os.W_OK) and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

_prefect_home = tempfile.TemporaryDirectory(prefix="spineflow-prefect-", ignore_cleanup_errors=True)
os.environ["PREFECT_HOME"] = _prefect_home.name
os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
# Ledgers of this machine do not concern the tests, or those of one test another.
os.environ["SPINEFLOW_LEDGERS"] = ""

# How long an example takes says how busy the machine is, and nothing of the product; every session
# has other examples.
MOST_EXAMPLES = 100 if os.environ.get("SPINEFLOW_SOAK") == "1" else 30
hypothesis.settings.register_profile("spineflow", deadline=None, max_examples=MOST_EXAMPLES)
hypothesis.settings.load_profile("spineflow")

SESSION = pytest.StashKey[dict[str, str]]()
"""What the workers have in common: their `folder`, and the `seed` that chooses soak tests."""

SOAK_SECONDS = 35
"""Time of the soak tests that are drawn, by what they are marked to take."""

FIRST = (
    "test_trips_in_process.py",
    "test_detailed_groups_rows.py",
)
"""Files that the workers begin with, in this order: they need no kernels of topdown, which are
compiled in the meantime."""


def pytest_configure(config: pytest.Config) -> None:
    """Make what the workers have in common, or take it from the controller."""
    told = getattr(config, "workerinput", {}).get("spineflow")
    config.stash[SESSION] = told or {
        "folder": tempfile.mkdtemp(prefix="spineflow-tests-"),
        "seed": os.environ.get("SPINEFLOW_SOAK_SEED") or str(random.SystemRandom().getrandbits(32)),
    }


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    """Tell a worker of pytest-xdist what it has in common with the others."""
    node.workerinput["spineflow"] = node.config.stash[SESSION]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have the kernels of topdown compiled, for a minute, beside the first tests; once for all
    workers, whose estimates wait for them as those of runs do.
    """
    if session.config.option.collectonly:
        return
    chosen = session.items
    if any(item.get_closest_marker("slow") or "topdown" in item.path.parts for item in chosen):
        from spineflow.flows.kernels import compile_in_background

        compile_in_background("topdown", seldom=True)


def pytest_report_header(config: pytest.Config) -> str:
    """How to choose the same soak tests again."""
    if os.environ.get("SPINEFLOW_SOAK") == "1":
        return "soak tests: all"
    seed = config.stash[SESSION]["seed"]
    return f"soak tests: some at random; SPINEFLOW_SOAK_SEED={seed} chooses the same again"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, object, object]:
    """Show the tracebacks that runs of a failed test have kept in their confidential folders."""
    report = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and folder is not None:
        for file in sorted(folder.rglob("confidential/errors/*.txt")):
            report.sections.append((f"kept in {file.name}", file.read_text(encoding="utf-8")))
    return report


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave nothing behind: Prefect's home, and with the last of the session its server."""
    _prefect_home.cleanup()
    if not hasattr(config, "workerinput") and SESSION in config.stash:
        folder = Path(config.stash[SESSION]["folder"])
        if (folder / "server" / "port").exists():
            PrefectServer.found(folder / "server").stop()
        shutil.rmtree(folder, ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow files first, so that no worker begins one last; of the soak tests some at random.

    SPINEFLOW_SOAK=1 runs all.
    """
    soak = [item for item in items if item.get_closest_marker("soak")]
    chosen = soak
    if os.environ.get("SPINEFLOW_SOAK") != "1":
        chosen = drawn(soak, config.stash[SESSION]["seed"])
        for item in set(soak).difference(chosen):
            item.add_marker(pytest.mark.skip(reason="some are drawn; make soak runs all"))
    slow = {item.path for item in items if item.get_closest_marker("slow") or item in chosen}
    order = {name: number for number, name in enumerate(FIRST)}
    items.sort(key=lambda item: (order.get(item.path.name, len(order)), item.path not in slow))


def drawn(soak: list[pytest.Item], seed: str) -> list[pytest.Item]:
    """Soak tests in random order until `SOAK_SECONDS` are spent; not those that take longer alone.

    All workers must choose the same, hence the seed.
    """
    seconds = {item: (item.get_closest_marker("soak").args or (10,))[0] for item in soak}
    brief = [item for item in soak if seconds[item] <= SOAK_SECONDS]
    order = random.Random(seed).sample(brief, len(brief))
    spent = itertools.accumulate((seconds[item] for item in order), initial=0)
    return [item for item, before in zip(order, spent, strict=False) if before < SOAK_SECONDS]


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Let one worker in at a time."""
    with file.open("w") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def made_once(request: pytest.FixtureRequest) -> Callable[[str, Callable[[Path], None]], Path]:
    """Function from a name and a maker to a folder that the first worker fills for all."""
    common = Path(request.config.stash[SESSION]["folder"])

    def made(name: str, make: Callable[[Path], None]) -> Path:
        folder, is_made = common / name, common / f"{name}.made"
        with locked(common / f"{name}.lock"):
            if not is_made.exists():
                # At its own place from the first, since a run remembers where its ledger is.
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                is_made.touch()
        return folder

    return made


@pytest.fixture(scope="session")
def shared() -> Path:
    """The sample data; tests that need it are skipped where it is missing."""
    if not SHARED.exists():
        pytest.skip("needs ../shared")
    return SHARED


@pytest.fixture(scope="session")
def county(made_once) -> Path:
    """Folder with the tables of a small generated county; not to be changed."""
    from spineflow.tasks.topdown.ingest.generate import generate_county

    return made_once("county", lambda folder: generate_county(folder, persons=4000, seed=3))


@pytest.fixture(scope="session")
def public_settings() -> str:
    """Settings of a topdown run of a county that is not confidential, its tables beside them.

    The last section is that on privacy, so that a test may go on with it.
    """
    return (
        'preset = "pl94_2020_us"\n[input]\npersons = "persons.parquet"\nunits = "units.parquet"\n'
        'geography = "grfc.txt"\nconfidential = false\n[privacy]\ndataset = "county"\n'
    )


@pytest.fixture(
    scope="session", params=["counties", pytest.param("state", marks=pytest.mark.soak(30))]
)
def real_tables(request: pytest.FixtureRequest, shared: Path, made_once) -> Path:
    """Folder with the tables of a third of two counties of the real state, with all their tribal
    land, and of the whole of it."""
    from tests.real_state import write_counties

    state = shared / "data" / "ri2010"
    if request.param == "state":
        return state
    return made_once("counties", lambda folder: write_counties(state, folder, every=4))


@pytest.fixture(scope="session")
def real_without_noise(real_tables: Path, made_once):
    """A finished run of these tables with an infinite budget; not to be changed."""
    from spineflow.tasks.runs.directory import RunDirectory

    from tests.real_state import run_state

    overrides = ["input.confidential=false", "privacy.infinite=true", "release.margins=false"]
    folder = made_once(
        f"without-noise-{real_tables.name}",
        lambda part: run_state(part, real_tables, overrides=overrides),
    )
    return RunDirectory(folder / "run")


NO_TELEMETRY = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}

NOTHING_DUE = {
    f"PREFECT_SERVER_SERVICES_{service}_ENABLED": "false"
    for service in (
        "CLEANUP_RECONCILER",
        "FOREMAN",
        "LATE_RUNS",
        "PAUSE_EXPIRATIONS",
        "REPOSSESSOR",
        "SCHEDULER",
    )
}
"""Environment of a server that looks for no work that is due, late or lost: flow runs of tests are
begun by those who wait for them. That of an office does, in the tests of deployments."""


SERVER = """
import sys
import uvicorn
from spineflow.flows import server_fixes
server_fixes.begin_transactions_immediately()
server_fixes.collect_garbage_in_a_thread()
app, (host, port) = "prefect.server.api.server:create_app", sys.argv[1:]
uvicorn.run(app, factory=True, host=host, port=int(port), log_level="warning")
"""
"""`prefect server start` without its pages, and corrected as a command's own server is."""


class PrefectServer:
    """A Prefect server in a process of its own; it can be stopped and started again."""

    def __init__(self, folder: Path, port: int, host: str = "127.0.0.1") -> None:
        self.folder = folder
        self.port = port
        self.host = host
        self.environment = {
            "PREFECT_HOME": str(folder),
            "PREFECT_API_URL": f"http://{host}:{port}/api",
        }

    @classmethod
    def on_free_port(cls, folder: Path) -> PrefectServer:
        """A server that has not been started."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return cls(folder, probe.getsockname()[1])

    @classmethod
    def found(cls, folder: Path) -> PrefectServer:
        """The server that was started in a folder, perhaps by another process."""
        return cls(folder, int((folder / "port").read_text()))

    @property
    def database(self) -> Path:
        """Its SQLite file."""
        return self.folder / "prefect.db"

    @property
    def new_database(self) -> Path:
        """A copy of it as of the first start; see `keep_new_database`."""
        return self.folder / "new.db"

    def keep_new_database(self) -> None:
        """Copy the database, which it takes a server seconds to make, for those that come later."""
        with (
            closing(sqlite3.connect(self.database)) as made,
            closing(sqlite3.connect(self.new_database)) as kept,
        ):
            made.backup(kept)

    def start(self) -> None:
        """Start it and wait until it answers."""
        # It imports Prefect, which must find its home in the environment.
        from spineflow.flows.servers import WITHOUT_EVENTS

        environment = {"PREFECT_HOME": str(self.folder), "PREFECT_UI_ENABLED": "0"}
        with (self.folder / "server.log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", SERVER, self.host, str(self.port)],
                env=os.environ | NO_TELEMETRY | NOTHING_DUE | WITHOUT_EVENTS | environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (self.folder / "process").write_text(str(process.pid))
        deadline = time.monotonic() + PATIENCE
        while True:
            with suppress(OSError):
                urllib.request.urlopen(f"{self.environment['PREFECT_API_URL']}/health", timeout=5)
                break
            assert process.poll() is None, (self.folder / "server.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        (self.folder / "port").write_text(str(self.port))

    def stop(self) -> None:
        """Kill it if it was started, and wait until it is gone."""
        if not (self.folder / "process").exists():
            return
        process = int((self.folder / "process").read_text())
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        # A server that another process started is not waited for: it is a child of that one.
        with suppress(ChildProcessError):
            os.waitpid(process, 0)


@pytest.fixture(scope="session")
def population_run(made_once):
    """A finished run with noise of the redistricting product of a small county, the units and the
    persons of its characteristics, and their one population; not to be changed.

    It is one of those that are recorded. It was published in `input`, where its tables are.
    """
    from spineflow.tasks.runs.directory import RunDirectory

    from tests.recorded.runs import POPULATION, RUNS, make

    return RunDirectory(made_once("population", partial(make, RUNS[POPULATION])) / "run")


@pytest.fixture(scope="session")
def real_server(made_once, request: pytest.FixtureRequest) -> PrefectServer:
    """One Prefect server for all flow runs of the session that need none of their own."""
    folder = Path(request.config.stash[SESSION]["folder"]) / "server"
    with locked(folder.with_suffix(".lock")):
        if not (folder / "port").exists():
            folder.mkdir(exist_ok=True)
            server = PrefectServer.on_free_port(folder)
            server.start()
            server.keep_new_database()
    return PrefectServer.found(folder)


@pytest.fixture(scope="session")
def prefect_server(real_server: PrefectServer) -> Iterator[None]:
    """Have flow runs in this process report to the session's server."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings({PREFECT_API_URL: real_server.environment["PREFECT_API_URL"]}):
        yield
        # What is still to be sent would keep this process waiting once the server is gone.
        APILogWorker.drain_all()
        EventsWorker.drain_all()


@pytest.fixture
def own_server(tmp_path: Path, real_server: PrefectServer) -> Iterator[PrefectServer]:
    """A Prefect server for one test, not started yet."""
    (tmp_path / "server").mkdir()
    server = PrefectServer.on_free_port(tmp_path / "server")
    shutil.copy(real_server.new_database, server.database)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def run_groups():
    """Function that runs a group-sizes settings file up to its checks, without a Prefect server."""
    from spineflow.flows.running import call_stages
    from spineflow.tasks.group_sizes.settings import GroupSizesSettings
    from spineflow.tasks.runs.directory import RunDirectory, start_run
    from spineflow.tasks.runs.settings_files import dump_settings, load_settings

    from tests.flows.in_process import judged_once, stop_after

    def run(file: Path, folder: Path) -> tuple[RunDirectory, GroupSizesSettings]:
        settings = load_settings(GroupSizesSettings, file, presets=file.parent)
        run = RunDirectory(folder)
        folder.mkdir(parents=True, exist_ok=True)
        start_run(
            run,
            product=settings.PRODUCT,
            settings_text=dump_settings(settings),
            stamp=settings.stamp,
        )
        with judged_once():
            call_stages(run, settings, ended=stop_after("tables"))
        return run, settings

    return run


@pytest.fixture(scope="session")
def groups_input(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a generated specification and persons of detailed groups, in `params`, `data`."""
    from spineflow.tasks.detailed_groups.ingest.generate import (
        generate_persons,
        generate_specification,
    )
    from spineflow.tasks.detailed_groups.workload.parameters import read_specification

    folder = tmp_path_factory.mktemp("groups")
    states = ("44", "25", "72")
    generate_specification(folder / "params", states=states, run_pr=True)
    codes = list(read_specification(str(folder / "params")).names)
    generate_persons(folder / "data", codes, persons=6000, tracts=24, states=states, seed=2)
    return folder


@pytest.fixture(scope="session")
def measured_groups(groups_input: Path, tmp_path_factory: pytest.TempPathFactory):
    """Function from overrides of settings to a run of detailed groups that has been measured.

    Returns the run directory and the settings. Noise is repeatable; equal overrides share one run.
    """
    from functools import cache

    from spineflow.flows.running import call_stages
    from spineflow.tasks.detailed_groups.settings import DetailedGroupsSettings
    from spineflow.tasks.runs.directory import RunDirectory, start_run
    from spineflow.tasks.runs.settings_files import dump_settings, load_settings

    from tests.flows.in_process import judged_once, stop_after

    @cache
    def measure(*overrides: str):
        folder = tmp_path_factory.mktemp("measured-groups")
        file = folder / "settings.toml"
        file.write_text(
            f'input = {{parameters = "{groups_input}/params", data = "{groups_input}/data", '
            'confidential = false}\nprivacy = {dataset = "groups", seed = 5}\n'
        )
        settings = load_settings(DetailedGroupsSettings, file, presets=folder, overrides=overrides)
        settings = settings.resolved()
        run = RunDirectory(folder / "run")
        run.root.mkdir()
        start_run(
            run,
            product=DetailedGroupsSettings.PRODUCT,
            settings_text=dump_settings(settings),
            stamp=settings.stamp,
        )
        with judged_once():
            call_stages(run, settings, ended=stop_after("stage 2"))
        return run, settings

    return measure

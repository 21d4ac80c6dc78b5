"""What tests of the flows share: the command as a process, and finished runs."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from spineflow.flows.cli import main
from spineflow.flows.logs import TEXT, logging_as
from spineflow.flows.running import prepare, run_stages_in_process
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county
from spineflow.tasks.topdown.ingest.generate_households import synthesize_households
from spineflow.tasks.topdown.product import TOPDOWN
from spineflow.tasks.topdown.settings import TopdownSettings

from tests.conftest import PrefectServer
from tests.flows import in_process as here
from tests.flows.commands import Command
from tests.flows.conformance.cases import CASES, Case, Finished
from tests.flows.in_process import stages_in_process, start_no_server


def noted(kind: type[Command], started: list[Command]) -> type[Command]:
    """The same kind of command, with a list of those that were begun."""

    class Noted(kind):
        def __init__(self, *arguments, **options) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    return Noted


@pytest.fixture(scope="session")
def started() -> Iterator[list[Command]]:
    """Commands that tests begin; what they leave running is killed in the end."""
    found: list[Command] = []
    yield found
    for command in found:
        command.kill()


@pytest.fixture(scope="session")
def spineflow(started: list[Command]) -> type[Command]:
    """The command as a process of its own."""
    return noted(Command, started)


@pytest.fixture(scope="session")
def new_spineflow(started: list[Command], real_server: PrefectServer) -> type[Command]:
    """The command as a user starts it, by a new Python.

    Where it has no server, the database of its embedded one exists, as it does after a first run.
    """

    class Prepared(Command):
        def __init__(self, *arguments, folder: Path, **options) -> None:
            home = folder / "prefect"
            if "PREFECT_API_URL" not in options and not home.exists():
                home.mkdir()
                shutil.copy(real_server.new_database, home / "prefect.db")
            super().__init__(*arguments, folder=folder, **options)

    return noted(Prepared, started)


@pytest.fixture(autouse=True)
def log_of_a_command() -> Iterator[None]:
    """Functions log on standard error, as they do in a command."""
    with logging_as(TEXT):
        yield


@pytest.fixture(autouse=True)
def no_server_of_commands_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that are called as functions start no server of their own."""
    start_no_server(monkeypatch)


@pytest.fixture
def in_process() -> Iterator[None]:
    """Have commands and `running.run_stages` run the stages in this process, without a flow run.

    The input is sound, and so judged by our own code alone.
    """
    with stages_in_process(judged_twice=False):
        yield


@pytest.fixture
def judged_in_process() -> Iterator[None]:
    """The same of input that may be wrong: Great Expectations is asked as well."""
    with stages_in_process():
        yield


@pytest.fixture
def uncompared() -> Iterator[None]:
    """Have no release of topdown compared with the truth."""
    with here.uncompared():
        yield


@pytest.fixture(scope="session")
def smallest_county(made_once) -> Path:
    """Folder with the tables of a county of the fewest persons, which has nineteen blocks, with
    facilities of all types, an AIAN area and geounits to bypass; not to be changed."""
    return made_once(
        "smallest-county", lambda folder: generate_county(folder, persons=FEWEST_PERSONS, seed=3)
    )


@pytest.fixture(scope="session")
def settings_text(county: Path) -> str:
    """Settings of a private topdown run of the generated county, with its ledger beside them.

    The last section is that on the release, which has no margins and no tables: they would be half
    of the run.
    """
    return (
        f'preset = "pl94_2020_us"\n[input]\npersons = "{county / "persons.parquet"}"\n'
        f'units = "{county / "units.parquet"}"\ngeography = "{county / "grfc.txt"}"\n'
        '[privacy]\ndataset = "county"\nledger = "ledger.db"\n'
        "[release]\nmargins = false\ntables = false\n"
    )


def run_case(folder: Path, *, case: Case) -> None:
    """Write the input of a case, and run it to the end."""
    settings = case.write(folder)
    command = ["run", case.product, str(settings), "--run-dir", str(folder / "run")]
    with (
        stages_in_process(judged_twice=False),
        contextlib.redirect_stdout(None),
        contextlib.redirect_stderr(None),
    ):
        assert main(command) == 0


@pytest.fixture(scope="session")
def finished_run(made_once) -> Callable[[str], Finished]:
    """Function from the name of a case to its finished run, which is not to be changed."""

    def made(name: str) -> Finished:
        place = f"finished-{name.replace(' ', '-')}"
        return Finished(CASES[name], made_once(place, partial(run_case, case=CASES[name])))

    return made


REDISTRICTING = """
preset = "pl94_2020_us"
[input]
persons = "persons.parquet"
units = "untold.parquet"
geography = "grfc.txt"
confidential = false
[privacy]
dataset = "county"
infinite = true
[release]
margins = false
tables = false
"""


@pytest.fixture(scope="session")
def redistricting_without_noise(made_once) -> RunDirectory:
    """A finished redistricting run of a small county without noise, of microdata alone, in a folder
    with its tables; not to be changed. `untold` are its units without the columns that their
    members tell."""

    def make(folder: Path) -> None:
        generate_county(folder / "raw", persons=FEWEST_PERSONS, seed=3)
        synthesize_households(folder / "raw", folder, seed=4)
        units = pd.read_parquet(folder / "units.parquet")
        units.drop(columns=["HHT", "PAOC", "P65", "HHLDRAGE"]).to_parquet(folder / "untold.parquet")
        file = folder / "settings.toml"
        file.write_text(REDISTRICTING, encoding="utf-8")
        settings = TOPDOWN.load(file)
        with here.judged_once(), here.uncompared():
            run_stages_in_process(TOPDOWN, prepare(settings, folder / "pl94_2020_us"), settings)

    return RunDirectory(made_once("redistricting-without-noise", make) / "pl94_2020_us")


@pytest.fixture(scope="session")
def held_without_noise(
    redistricting_without_noise: RunDirectory, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., tuple[RunDirectory, RunDirectory, TopdownSettings]]:
    """Function from a preset, and tables other than those of persons, to that run, and one of the
    preset that is held to it, with its settings; it has no margins."""

    def made(preset: str, **tables: str) -> tuple[RunDirectory, RunDirectory, TopdownSettings]:
        source, folder = redistricting_without_noise.root.parent, tmp_path_factory.mktemp("held")
        own = {"persons": "persons.parquet", "geography": "grfc.txt"} | tables
        named = "".join(f'{table} = "{source / name}"\n' for table, name in own.items())
        file = folder / f"{preset}.toml"
        file.write_text(
            f'preset = "{preset}"\n[input]\n{named}confidential = false\n'
            f'redistricting = "{redistricting_without_noise.root}"\n'
            '[privacy]\ndataset = "county"\ninfinite = true\n',
            encoding="utf-8",
        )
        settings = TOPDOWN.load(file)
        run = prepare(settings, folder / "run")
        with here.judged_once():
            run_stages_in_process(TOPDOWN, run, settings)
        return redistricting_without_noise, run, settings

    return made


@pytest.fixture(scope="session")
def held_run(population_run) -> Callable[[str], tuple[RunDirectory, RunDirectory, TopdownSettings]]:
    """Of `population_run`, the redistricting run, and the run of a product of that name that is
    held to it, with its settings."""

    def found(product: str) -> tuple[RunDirectory, RunDirectory, TopdownSettings]:
        redistricting, run = (RunDirectory(population_run.root / x) for x in ("topdown", product))
        return redistricting, run, frozen_settings(TopdownSettings, run.settings)

    return found

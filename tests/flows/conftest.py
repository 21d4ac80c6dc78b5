"""What tests of the command share: the command as a process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import PrefectServer
from tests.flows.commands import Command, ForkedCommand
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
    """The command as a process of its own, forked from one that has imported everything."""
    return noted(ForkedCommand, started)


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


@pytest.fixture(scope="session")
def settings_text(county: Path) -> str:
    """Settings of a private topdown run of the generated county, with its ledger beside them.

    The last section is that on the release, which has no margins: they would be a third of the run.
    """
    return (
        f'preset = "pl94_2020_us"\n[input]\npersons = "{county / "persons.parquet"}"\n'
        f'units = "{county / "units.parquet"}"\ngeography = "{county / "grfc.txt"}"\n'
        '[privacy]\ndataset = "county"\nledger = "ledger.db"\n[release]\nmargins = false\n'
    )

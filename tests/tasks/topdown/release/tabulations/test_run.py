from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from spineflow.tasks.census.invariants import read_geography
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.paths import geography_file
from spineflow.tasks.topdown.release.microdata import write_universe
from spineflow.tasks.topdown.release.tabulations.run import RunTables
from spineflow.tasks.topdown.release.tabulations.tables import write_tables
from spineflow.tasks.topdown.spine.files import RunUniverse

from tests.tabulated import tabulate, write_legacy
from tests.tasks.topdown.checks.accuracy.conftest import make_run


@pytest.fixture(scope="module")
def estimated(exact, tmp_path_factory: pytest.TempPathFactory):
    """A run directory of two counties up to estimates, and the same with microdata."""
    run, settings = make_run(tmp_path_factory.mktemp("estimated"), exact.inputs, seed=7)
    for universe in settings.run.universes:
        write_universe(RunUniverse(run, settings, universe))
    return run, settings


@pytest.fixture
def run(estimated, tmp_path: Path) -> RunDirectory:
    """A run directory whose estimates are written and nothing after."""
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(estimated[0].root, run.root)
    shutil.rmtree(run.unchecked_release)
    return run


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of all files of a folder, by path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def counted_from_microdata(estimated, folder: Path) -> dict[str, bytes]:
    """What the tables of a run are, by its microdata."""
    run, settings = estimated
    tabulation = tabulate(
        run.unchecked_release, read_geography(geography_file(run)), settings.run.universes
    )
    write_tables([tabulation.tables()], folder)
    write_legacy(tabulation, folder)
    return contents(folder)


@pytest.mark.slow
def test_tables_are_those_of_the_microdata(estimated, run: RunDirectory, tmp_path: Path) -> None:
    RunTables(run, estimated[1]).write()
    written = contents(run.unchecked_release)
    assert len(written) == 20
    assert written == counted_from_microdata(estimated, tmp_path / "counted")

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from spineflow.tasks.census.invariants import read_geography
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.paths import geography_file
from spineflow.tasks.topdown.release.microdata import write_universe
from spineflow.tasks.topdown.release.tabulations.run import (
    has_legacy,
    tables_of_run,
    tabulated_universes,
)
from spineflow.tasks.topdown.release.tabulations.tables import (
    write_tables,
)
from spineflow.tasks.topdown.settings import TopdownSettings

from tests.tabulated import tabulate, write_legacy
from tests.tasks.topdown.checks.accuracy.conftest import make_run

SETTINGS = """\
preset = "pl94_2020_us"
[input]
persons = "p"
units = "u"
geography = "g"
[privacy]
dataset = "d"
"""

NO_RACE = """\
[budget.persons.queries]
{queries}
[workload.persons]
attributes = ["hhgq", "votingage"]
[workload.persons.passes.other]
least_squares = [["all"]]
rounder = [["total", "detailed"]]
"""


def standing(run: RunDirectory, settings: TopdownSettings) -> Path | None:
    """The last file of the tables, where all stand."""
    files = tables_of_run(run, settings).files()
    return files[-1] if files and all(path.exists() for path in files) else None


def settings_of(folder: Path, *overrides: str, text: str = SETTINGS) -> TopdownSettings:
    file = folder / "settings.toml"
    file.write_text(text)
    return load_settings(TopdownSettings, file, presets=PRESETS, overrides=overrides)


@pytest.fixture(scope="module")
def estimated(exact, tmp_path_factory: pytest.TempPathFactory):
    """A run directory of two counties up to estimates, and the same with microdata."""
    run, settings = make_run(tmp_path_factory.mktemp("estimated"), exact.inputs, seed=7)
    for universe in settings.run.universes:
        write_universe(run, settings, universe)
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
    write_tables([tabulation], folder)
    write_legacy(tabulation, folder)
    return contents(folder)


@pytest.mark.slow
def test_tables_are_those_of_the_microdata(estimated, run: RunDirectory, tmp_path: Path) -> None:
    tables_of_run(run, estimated[1]).write()
    written = contents(run.unchecked_release)
    assert len(written) == 20
    assert written == counted_from_microdata(estimated, tmp_path / "counted")


def test_tables_and_legacy_files_by_default(run: RunDirectory, tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    assert tabulated_universes(settings) == ("persons", "units") and has_legacy(settings)
    assert standing(run, settings) is None
    files = tables_of_run(run, settings).write()
    assert len(files) == 2 * 8 + 4
    assert all(file.is_file() and run.unchecked_release in file.parents for file in files)
    assert standing(run, settings) == files[-1]
    assert files[-1] == run.unchecked_release / "pl94171" / "nm000032020.pl"


def test_legacy_files_can_be_left_out(run: RunDirectory, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "release.pl94171=false")
    files = tables_of_run(run, settings).write()
    assert len(files) == 2 * 8 and not (run.unchecked_release / "pl94171").exists()
    assert standing(run, settings) == files[-1]


def test_nothing_is_tabulated_where_tables_are_off(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "release.tables=false")
    assert not tabulated_universes(settings) and not has_legacy(settings)


def test_legacy_files_need_every_table(tmp_path: Path) -> None:
    one = settings_of(tmp_path, 'run.universes=["persons"]')
    assert tabulated_universes(one) == ("persons",) and not has_legacy(one)
    shares = '{ total = "1/2", hhgq = "1/2" }'
    geolevels = ("US", "State", "County", "Tract", "Block_Group", "Block")
    queries = "\n".join(f"{name} = {shares}" for name in geolevels)
    text = SETTINGS + NO_RACE.format(queries=queries)
    smaller = settings_of(tmp_path, text=text)
    assert tabulated_universes(smaller) == ("persons", "units") and not has_legacy(smaller)
    none = settings_of(tmp_path, text=text.replace("hhgq", "sex"))
    assert tabulated_universes(none) == ("units",)

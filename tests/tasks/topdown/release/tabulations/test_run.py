from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.flows.running import PRESETS
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.paths import geography_file
from spineflow.tasks.topdown.release.tabulations.run import (
    has_legacy,
    tabulated_universes,
    write_release_tables,
    written_tables,
)
from spineflow.tasks.topdown.settings import TopdownSettings

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


def settings_of(folder: Path, *overrides: str, text: str = SETTINGS) -> TopdownSettings:
    file = folder / "settings.toml"
    file.write_text(text)
    return load_settings(TopdownSettings, file, presets=PRESETS, overrides=overrides)


@pytest.fixture
def run(exact, tmp_path: Path) -> RunDirectory:
    """A run directory whose microdata are written and nothing after."""
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(exact.directory, run.unchecked_release)
    geography_file(run).parent.mkdir()
    geography = pa.Table.from_pandas(exact.geography, preserve_index=False)
    pq.write_table(geography, geography_file(run))
    return run


def test_tables_and_legacy_files_by_default(run: RunDirectory, tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    assert tabulated_universes(settings) == ("persons", "units") and has_legacy(settings)
    assert written_tables(run, settings) is None
    files = write_release_tables(run, settings)
    assert len(files) == 2 * 8 + 4
    assert all(file.is_file() and run.unchecked_release in file.parents for file in files)
    assert written_tables(run, settings) == files[-1]
    assert files[-1] == run.unchecked_release / "pl94171" / "nm000032020.pl"


def test_legacy_files_can_be_left_out(run: RunDirectory, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "release.pl94171=false")
    files = write_release_tables(run, settings)
    assert len(files) == 2 * 8 and not (run.unchecked_release / "pl94171").exists()
    assert written_tables(run, settings) == files[-1]


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

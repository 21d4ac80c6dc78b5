"""Steps that find a release in its place make nothing of it again."""

from __future__ import annotations

import pytest
from prefect.states import State
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.settings_files import dump_settings, load_settings
from spineflow.tasks.topdown.release.margins import FILES
from spineflow.tasks.topdown.release.steps import (
    keep_estimates,
    write_margin_piece,
    write_microdata,
    write_microdata_part,
    write_redistricting_tables,
    write_table_piece,
)
from spineflow.tasks.topdown.settings import TopdownSettings


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory, public_settings: str) -> RunDirectory:
    """Settings, and the name of a file in a release, of a run that has nothing else."""
    run = RunDirectory(tmp_path_factory.mktemp("released"))
    file = run.root / "own.toml"
    file.write_text(public_settings, encoding="utf-8")
    settings = load_settings(TopdownSettings, file, presets=PRESETS)
    run.settings.write_text(dump_settings(settings), encoding="utf-8")
    run.release.mkdir()
    (run.release / "mdf_persons.csv").touch()
    return run


@pytest.mark.parametrize(
    ("step", "keys", "place"),
    [
        (write_microdata, ["persons"], "release/mdf_persons.csv"),
        (keep_estimates, [], "intervals"),
        (write_margin_piece, [FILES, "persons"], "release"),
        (write_microdata_part, ["persons", 0, 2], "release/mdf_persons.csv"),
        (write_redistricting_tables, [], "release"),
        (write_table_piece, [0, 2], "release"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_is_released_is_found(released: RunDirectory, step, keys, place) -> None:
    before = sorted(released.root.rglob("*"))
    state = step.fn(str(released.root), *keys)
    assert isinstance(state, State) and state.name == "Reused"
    assert state.data.path == place and state.data.reused
    assert sorted(released.root.rglob("*")) == before

"""Whose data a run is charged for: not without digests, and not with others'."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.tasks.ledger.digests import INPUT_DIGESTS, InputDigest
from spineflow.tasks.ledger.identity import (
    digests_to_charge,
    refuse_changed_input,
    store_identity,
    whole_digests,
)
from spineflow.tasks.runs.directory import RunDirectory, start_run
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import dump_settings, load_settings
from spineflow.tasks.topdown.settings import TopdownSettings

PEOPLE = {"persons": InputDigest("00", ("01", "02"))}


def started(tmp_path: Path, more: str = ""):
    file = tmp_path / "settings.toml"
    file.write_text(
        f'preset = "pl94_2020_us"\n[input]\npersons = "p"\nunits = "u"\ngeography = "g"\n{more}'
    )
    presets = Path(__file__).resolve().parents[3] / "flows" / "settings"
    settings = load_settings(TopdownSettings, file, presets=presets)
    run = RunDirectory(tmp_path / "run")
    run.root.mkdir()
    start_run(run, product="topdown", settings_text=dump_settings(settings), stamp=settings.stamp)
    return run, settings


def test_a_run_is_charged_for_the_people_that_were_read(tmp_path: Path) -> None:
    run, settings = started(tmp_path, '[privacy]\ndataset = "d"\n')
    store_identity(run, settings, lambda key: PEOPLE)
    run.update_manifest(input_digests=whole_digests(run))
    assert digests_to_charge(run, settings) == PEOPLE


@pytest.mark.parametrize("how", ["missing", "altered"])
def test_digests_that_went_away_are_not_no_digests(tmp_path: Path, how: str) -> None:
    run, settings = started(tmp_path, '[privacy]\ndataset = "d"\n')
    store_identity(run, settings, lambda key: PEOPLE)
    run.update_manifest(input_digests=whole_digests(run))
    path = run.confidential / INPUT_DIGESTS
    path.unlink() if how == "missing" else path.write_text(path.read_text().replace("00", "ff"))
    with pytest.raises(InputRefused, match=f"{INPUT_DIGESTS} is {how}"):
        digests_to_charge(run, settings)


def test_runs_that_are_not_private_need_none(tmp_path: Path) -> None:
    more = 'confidential = false\n[privacy]\ndataset = "d"\ninfinite = true\n'
    run, settings = started(tmp_path, more)
    assert digests_to_charge(run, settings) == {}


def test_a_new_file_of_a_table_is_a_change(tmp_path: Path) -> None:
    for name in ("p/a.parquet", "p/b.parquet", "u", "g"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("rows")
    run, settings = started(tmp_path, '[privacy]\ndataset = "d"\n')
    store_identity(run, settings, lambda key: PEOPLE)
    refuse_changed_input(run, settings)
    (tmp_path / "p" / "c.parquet").write_text("rows")
    with pytest.raises(InputRefused, match="c.parquet is new among the files of the input"):
        refuse_changed_input(run, settings)
    (tmp_path / "p" / "c.parquet").rename(tmp_path / "p" / "b.parquet")
    with pytest.raises(InputRefused, match="b.parquet has changed since this run read it"):
        refuse_changed_input(run, settings)

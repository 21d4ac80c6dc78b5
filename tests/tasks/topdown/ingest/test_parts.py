"""Ingest in parts: the files of a run that reads its input as a whole, after a kill as well."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.flows.order import call_here
from spineflow.flows.running import prepare
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.ingest import parts as ingest_parts
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.ingest.parts import n_parts
from spineflow.tasks.topdown.order import ingest_of
from spineflow.tasks.topdown.settings import TopdownSettings

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A county with its persons in three files, and a ledger."""
    generate_county(tmp_path, persons=500, seed=2)
    open_ledger(tmp_path / "ledger.db")
    frame = pd.read_parquet(tmp_path / "persons.parquet")
    part = np.random.default_rng(2).integers(0, 3, len(frame))
    (tmp_path / "persons").mkdir()
    for number in range(3):
        rows = frame[part == number]
        rows.to_parquet(tmp_path / "persons" / f"{number}.parquet", index=False)
    return tmp_path


def started(folder: Path, name: str) -> tuple[RunDirectory, TopdownSettings]:
    file = folder / "settings.toml"
    file.write_text(
        'preset = "pl94_2020_us"\n[input]\npersons = "persons"\nunits = "units.parquet"\n'
        'geography = "grfc.txt"\n[privacy]\ndataset = "county"\n'
    )
    settings = load_settings(TopdownSettings, file, presets=PRESETS)
    return prepare(settings, folder / name), settings


def contents(run: RunDirectory) -> dict[str, bytes]:
    files = [p for p in run.root.rglob("*") if p.suffix in (".parquet", ".json")]
    names = {str(path.relative_to(run.root)): path for path in files}
    return {
        name: path.read_bytes()
        for name, path in names.items()
        if name.startswith(("spine", "confidential")) and not name.startswith("confidential/.")
    }


def test_a_run_in_parts_writes_what_one_piece_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, settings = started(folder, "whole")
    assert n_parts(run, settings) == 0
    for call in ingest_of(run, settings)["ingest"]:
        call_here(run, call)
    whole = contents(run)

    monkeypatch.setattr(ingest_parts, "PARTED_BYTES", 0)
    run, settings = started(folder, "parts")
    wave = ingest_of(run, settings)
    assert [len(calls) for calls in wave.values()] == [1, 3, 1]
    steps = [call for calls in wave.values() for call in calls]
    # A killed run has the addresses and a part; what it left counts nobody twice.
    for call in steps[:2]:
        assert not call_here(run, call).reused
    run, settings = started(folder, "parts")
    assert [call_here(run, call).reused for call in steps] == [True, True, False, False, False]
    assert contents(run) == whole
    assert not (run.confidential / "ingest").exists()
    assert n_parts(run, settings) == 0


def test_parts_of_files_that_have_changed_are_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_parts, "PARTED_BYTES", 0)
    run, settings = started(folder, "parts")
    wave = ingest_of(run, settings)
    for call in (*wave["ingest addresses"], *wave["ingest persons"]):
        call_here(run, call)
    file = folder / "persons" / "1.parquet"
    frame = pd.read_parquet(file)
    frame.loc[frame.index[0], "CENRACE"] = frame["CENRACE"].iloc[0]
    frame["CENRACE"] = frame["CENRACE"].astype(str)
    frame.loc[frame.index[0], "CENRACE"] = "64"
    frame.to_parquet(file, index=False)
    with pytest.raises(InputRefused, match="CENRACE"):
        call_here(run, wave["ingest"][0])
    assert not (run.confidential / "ingest").exists()

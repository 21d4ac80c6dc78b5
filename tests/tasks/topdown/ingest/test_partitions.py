"""Ingest of partitions in little memory: the same files as of whole tables in memory."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.flows.running import prepare
from spineflow.tasks.census import histograms
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.tables import columns
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.ingest.ingest import ingest_input
from spineflow.tasks.topdown.settings import TopdownSettings


def ingested(folder: Path, persons: str, units: str) -> RunDirectory:
    file = folder / f"{persons}.toml"
    file.write_text(
        f'preset = "pl94_2020_us"\n[input]\npersons = "{persons}"\nunits = "{units}"\n'
        'geography = "grfc.txt"\n[privacy]\ndataset = "county"\n'
    )
    settings = load_settings(TopdownSettings, file, presets=PRESETS)
    run = prepare(settings, folder / f"run of {persons}")
    ingest_input(run, settings)
    return run


@pytest.mark.slow
def test_partitions_that_do_not_fit_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate_county(tmp_path, persons=600, seed=1)
    open_ledger(tmp_path / "ledger.db")
    whole = ingested(tmp_path, "persons.parquet", "units.parquet")

    rng = np.random.default_rng(1)
    for table in ("persons", "units"):
        frame = pd.read_parquet(tmp_path / f"{table}.parquet")
        part = rng.integers(0, 3, len(frame))
        (tmp_path / table).mkdir()
        for number in range(3):
            rows = frame[part == number]
            rows.to_parquet(tmp_path / table / f"{number}.parquet", index=False)
    monkeypatch.setattr(columns, "MOST_BYTES", 100)
    monkeypatch.setattr(histograms, "_FEWEST_HELD", 50)
    monkeypatch.setattr(histograms, "_MOST_ENTRIES", 100)
    folders = set()
    temporary_file = tempfile.TemporaryFile

    def recorded(*, dir: Path):
        folders.add(dir)
        return temporary_file(dir=dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", recorded)
    parts = ingested(tmp_path, "persons", "units")
    # Rows of persons are confidential in whatever file they lie.
    assert folders == {parts.confidential}
    made = {path.relative_to(whole.root) for path in whole.root.rglob("*") if path.is_file()}
    assert made == {
        path.relative_to(parts.root) for path in parts.root.rglob("*") if path.is_file()
    }
    compared = [p for p in made if p.suffix == ".parquet" or p.name.endswith("digests.json")]
    assert len(compared) >= 5
    for path in compared:
        assert (parts.root / path).read_bytes() == (whole.root / path).read_bytes(), path

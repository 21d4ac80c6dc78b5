"""The ingest of a run: refused deltas, and tables in several files that do not fit in memory."""

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
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.tables import columns
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county
from spineflow.tasks.topdown.ingest.ingest import ingest_input, refuse_large_deltas
from spineflow.tasks.topdown.settings import TopdownSettings

ACCEPTED = "privacy.large_delta=a person may be published outright"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deltas")
    generate_county(folder, persons=FEWEST_PERSONS, seed=1)
    file = folder / "settings.toml"
    file.write_text(
        'preset = "pl94_2020_us"\n[input]\npersons = "persons.parquet"\nunits = "units.parquet"\n'
        'geography = "grfc.txt"\n[privacy]\ndataset = "county"\n'
    )
    return file


def settings_of(file: Path, *overrides: str) -> TopdownSettings:
    return load_settings(TopdownSettings, file, presets=PRESETS, overrides=overrides)


@pytest.mark.parametrize(
    ("overrides", "is_refused"),
    [
        ((), False),
        (("budget.persons.delta=1/501",), False),
        (("budget.persons.delta=1/500",), True),
        (("budget.units.delta=1/2",), True),
        (("budget.units.delta=1/2", "run.universes=['persons']"), False),
        (("budget.persons.delta=1/500", ACCEPTED), False),
        (("budget.persons.delta=1/500", "input.confidential=false"), False),
        (
            ("budget.persons.delta=1/500", "input.confidential=false", "privacy.seed=1"),
            False,
        ),
    ],
)
def test_a_large_delta_is_refused_for_confidential_input(
    file: Path, overrides: tuple[str, ...], is_refused: bool
) -> None:
    settings = settings_of(file, *overrides)
    if not is_refused:
        refuse_large_deltas(settings, FEWEST_PERSONS)
        return
    with pytest.raises(InputRefused, match=r"budget\.\w+\.delta is not below one over the number"):
        refuse_large_deltas(settings, FEWEST_PERSONS)


@pytest.mark.slow
def test_the_ingest_refuses_it_before_anything_is_kept(file: Path, tmp_path: Path) -> None:
    settings = settings_of(file, "budget.persons.delta=1/500")
    run = prepare(settings, tmp_path / "run")
    with pytest.raises(InputRefused, match="is not below one over the number") as refused:
        ingest_input(run, settings)
    assert "500" not in str(refused.value)
    assert not (file.parent / "ledger.db").exists()
    assert not run.histogram("persons").exists()


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

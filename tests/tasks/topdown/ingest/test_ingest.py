"""The ingest of a run: refused deltas, and tables in several files that do not fit in memory."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.flows.running import prepare
from spineflow.flows.stages import Local, Stages, Stopped
from spineflow.flows.topdown import read_input
from spineflow.tasks.census import histograms
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.tables import columns
from spineflow.tasks.topdown.ingest import steps
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county
from spineflow.tasks.topdown.ingest.ingest import ingest_input, refuse_large_deltas
from spineflow.tasks.topdown.ingest.steps import n_shares
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


@pytest.fixture
def county_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A county that is large enough for three shares of persons, who are in three files."""
    generate_county(tmp_path, persons=500, seed=2)
    open_ledger(tmp_path / "ledger.db")
    frame = pd.read_parquet(tmp_path / "persons.parquet")
    part = np.random.default_rng(2).integers(0, 3, len(frame))
    (tmp_path / "persons").mkdir()
    for number in range(3):
        rows = frame[part == number]
        rows.to_parquet(tmp_path / "persons" / f"{number}.parquet", index=False)
    monkeypatch.setattr(steps, "AREAS_PER_SHARE", 1)
    monkeypatch.setattr(steps, "MOST_SHARES", 3)
    return tmp_path


def started(folder: Path, name: str) -> tuple[RunDirectory, TopdownSettings]:
    file = folder / "settings.toml"
    file.write_text(
        'preset = "pl94_2020_us"\n[input]\npersons = "persons"\nunits = "units.parquet"\n'
        'geography = "grfc.txt"\n[privacy]\ndataset = "county"\n'
    )
    settings = load_settings(TopdownSettings, file, presets=PRESETS)
    return prepare(settings, folder / name), settings


def reading_tasks(run: RunDirectory, settings: TopdownSettings) -> list[Local]:
    """The tasks that read the input; none of them is begun."""
    stages = Stages(run, settings, None)

    def read(run: RunDirectory, settings: TopdownSettings) -> None:
        read_input(run, settings)
        raise Stopped

    stages.run(read)
    return stages._stages["ingest"].futures


def contents(run: RunDirectory) -> dict[str, bytes]:
    folders = (run.root / "spine", run.confidential, run.checks)
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(run.root).as_posix(): path.read_bytes() for path in files}


def test_shares_write_what_one_task_writes(county_in_files: Path) -> None:
    run, settings = started(county_in_files, "whole")
    ingest_input(run, settings)
    whole = contents(run)
    run, settings = started(county_in_files, "shares")
    tasks = reading_tasks(run, settings)
    assert len(tasks) == 1 + 3 + 1 + 3 + 1
    # A killed run has the tables and a share; what it left counts nobody twice.
    assert not any(task.result().reused for task in tasks[:2])
    run, settings = started(county_in_files, "shares")
    tasks = reading_tasks(run, settings)
    assert [task.result().reused for task in tasks] == [True, True, *[False] * 7]
    assert contents(run) == whole
    assert len(reading_tasks(run, settings)) == 1


def test_shares_of_refused_or_changed_files_are_not_used(county_in_files: Path) -> None:
    run, settings = started(county_in_files, "run")
    file = county_in_files / "persons" / "1.parquet"
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    for _ in range(2):
        with pytest.raises(InputRefused, match="1.parquet: the Parquet file is truncated"):
            for task in reading_tasks(run, settings):
                task.result()
        assert not (run.confidential / "ingest").exists()
    file.write_bytes(whole)
    *others, last = reading_tasks(run, settings)
    for task in others:
        task.result()
    pd.read_parquet(file).assign(CENRACE="64").to_parquet(file, index=False)
    with pytest.raises(InputRefused, match="CENRACE"):
        last.result()
    assert not (run.confidential / "ingest").exists()


def test_the_number_of_shares_tells_nothing_of_the_records(
    county_in_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threat model: confidential numbers in public counts."""
    monkeypatch.setattr(steps, "MOST_SHARES", 1000)
    run, settings = started(county_in_files, "run")
    persons, n = county_in_files / "persons", n_shares(run, settings)
    assert 1 < n < 1000
    frame = pd.read_parquet(persons / "0.parquet")
    for number in range(3, 20):
        pd.concat([frame] * number).to_parquet(persons / f"{number}.parquet", index=False)
    assert n_shares(run, settings) == n
    for number in range(1, 20):
        (persons / f"{number}.parquet").unlink()
    assert n_shares(run, settings) == n


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

"""Ingest in parts: the files of a run that reads its input as a whole, after a kill as well."""

from __future__ import annotations

import shutil
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
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.tables import columns
from spineflow.tasks.topdown.ingest import ingest as ingest_parts
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county
from spineflow.tasks.topdown.ingest.ingest import (
    ingest_input,
    n_counting_tasks,
    refuse_large_deltas,
)
from spineflow.tasks.topdown.settings import TopdownSettings


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


def started(
    folder: Path, name: str, persons: str = "persons"
) -> tuple[RunDirectory, TopdownSettings]:
    file = folder / "settings.toml"
    file.write_text(
        f'preset = "pl94_2020_us"\n[input]\npersons = "{persons}"\nunits = "units.parquet"\n'
        'geography = "grfc.txt"\n[privacy]\ndataset = "county"\n'
    )
    settings = load_settings(TopdownSettings, file, presets=PRESETS)
    return prepare(settings, folder / name), settings


def planned(run: RunDirectory, settings: TopdownSettings) -> dict[str, list[Local]]:
    """The tasks that read the input, by stage; none of them is begun."""
    stages = Stages(run, settings, None)

    def read(run: RunDirectory, settings: TopdownSettings) -> None:
        read_input(run, settings)
        raise Stopped

    stages.run(read)
    return {name: own.futures for name, own in stages._stages.items()}


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
    with monkeypatch.context() as patched:
        patched.setattr(ingest_parts, "COUNTING_TASKS", 0)
        (calls,) = planned(run, settings).values()
        for call in calls:
            call.result()
    whole = contents(run)

    monkeypatch.setattr(ingest_parts, "COUNTING_TASKS", 2)
    run, settings = started(folder, "parts")
    wave = planned(run, settings)
    assert [len(calls) for calls in wave.values()] == [1, 2, 1]
    steps = [call for calls in wave.values() for call in calls]
    # A killed run has the addresses and a part; what it left counts nobody twice.
    for call in steps[:2]:
        assert not call.result().reused
    run, settings = started(folder, "parts")
    steps = [call for calls in planned(run, settings).values() for call in calls]
    assert [call.result().reused for call in steps] == [True, True, False, False]
    assert contents(run) == whole
    assert not (run.confidential / "ingest").exists()
    assert n_counting_tasks(run, settings) == 0


@pytest.mark.slow
def test_the_number_of_tasks_tells_nothing_of_the_files(folder: Path) -> None:
    """Neither how many there are nor how large: the same for one, three and a hundred files.

    Threat model: confidential numbers in visible facts.
    """
    run, settings = started(folder, "run")
    seen = [[len(calls) for calls in planned(run, settings).values()]]
    rows = pd.read_parquet(folder / "persons" / "0.parquet")
    for number in range(3, 100):
        rows[:1].to_parquet(folder / "persons" / f"{number}.parquet", index=False)
    seen.append([len(calls) for calls in planned(run, settings).values()])
    for number in range(1, 100):
        (folder / "persons" / f"{number}.parquet").unlink()
    (folder / "persons" / "0.parquet").write_bytes(bytes(1 << 27))
    seen.append([len(calls) for calls in planned(run, settings).values()])
    assert seen == [[1, ingest_parts.COUNTING_TASKS, 1]] * 3
    shutil.copy(folder / "persons.parquet", folder / "single.parquet")
    for n_bytes in (0, 1 << 27):
        with (folder / "single.parquet").open("ab") as file:
            file.write(bytes(n_bytes))
        run, settings = started(folder, f"single {n_bytes}", persons="single.parquet")
        assert [len(calls) for calls in planned(run, settings).values()] == [1]


def test_parts_of_files_that_have_changed_are_not_used(folder: Path) -> None:
    run, settings = started(folder, "parts")
    wave = planned(run, settings)
    for call in (*wave["ingest addresses"], *wave["ingest persons"]):
        call.result()
    file = folder / "persons" / "1.parquet"
    frame = pd.read_parquet(file)
    frame.loc[frame.index[0], "CENRACE"] = frame["CENRACE"].iloc[0]
    frame["CENRACE"] = frame["CENRACE"].astype(str)
    frame.loc[frame.index[0], "CENRACE"] = "64"
    frame.to_parquet(file, index=False)
    with pytest.raises(InputRefused, match="CENRACE"):
        wave["ingest"][0].result()
    assert not (run.confidential / "ingest").exists()


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

"""What is held against the manifest, and what is removed so that it is made again."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.tasks.runs.damage import mend, record_files
from spineflow.tasks.runs.directory import RunDirectory, start_run

ACCURACY, ATTACK = "evidence/found/rounding-1-1/accuracy.json", "evidence/found/other-1-1/a.json"
TABLES = ("evidence/published/rounding-1-1/tables.npz", "evidence/published/other-1-1/tables.npz")
FIGURES = "intervals/persons/summary/classes.parquet"
ASKED_FOR = "intervals/entities.parquet"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    begun = RunDirectory(tmp_path / "run")
    start_run(begun, product="p", settings_text="x", stamp="NOT PRIVATE")
    for name in (ACCURACY, ATTACK, *TABLES, FIGURES, ASKED_FOR):
        path = begun.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("as it was made")
    record_files(begun)
    return begun


def test_what_a_run_has_made_is_recorded_and_not_what_people_have_asked_for(run) -> None:
    assert set(run.read_manifest()["beside"]) == {ACCURACY, ATTACK, *TABLES, FIGURES}


@pytest.mark.parametrize("is_deleted", [False, True])
def test_how_accurate_a_release_is_is_found_with_the_release_alone(
    run: RunDirectory, is_deleted: bool
) -> None:
    path = run.root / ACCURACY
    path.unlink() if is_deleted else path.write_text("altered")
    (told,) = mend(run)
    assert told.startswith(ACCURACY) and told.endswith("and is made again")
    assert not path.exists() and not (run.root / TABLES[0]).exists()
    assert (run.root / TABLES[1]).exists() and (run.root / ATTACK).exists()


def test_altered_figures_of_margins_are_removed_with_those_beside_them(run: RunDirectory) -> None:
    (run.root / FIGURES).write_text("altered")
    (told,) = mend(run)
    assert told == f"{FIGURES} was altered since the run made it, and is made again"
    assert not (run.root / FIGURES).parent.exists() and (run.root / ASKED_FOR).exists()


@pytest.mark.parametrize("stamp", [None, "NOT PRIVATE"])
def test_noise_of_a_run_that_was_killed_is_left_to_its_ledger(
    tmp_path: Path, stamp: str | None
) -> None:
    """What is altered then, and put back, must not be what the manifest has."""
    run, name = RunDirectory(tmp_path / "run"), "measurements/p/US/dpqueries/00000.parquet"
    start_run(run, product="p", settings_text="x", stamp=stamp)
    constraints = "measurements/p/constraints/US/00000.parquet"
    for each in (name, constraints):
        (run.root / each).parent.mkdir(parents=True, exist_ok=True)
        (run.root / each).write_text("as it was made")
    (run.root / name).write_text("altered")
    record_files(run)
    assert set(run.read_manifest()["beside"]) == ({name, constraints} if stamp else {constraints})
    (run.root / name).write_text("as it was made")
    run.release.mkdir()
    record_files(run)
    assert set(run.read_manifest()["beside"]) == {name, constraints}
    assert mend(run) == []


def test_a_spine_that_nothing_was_charged_with_is_built_again_as_a_whole(tmp_path: Path) -> None:
    run, folder = RunDirectory(tmp_path / "run"), "spine/persons"
    start_run(run, product="estimate", settings_text="x")
    (run.root / folder).mkdir(parents=True)
    for name in ("spine.arrow", "shards.parquet", "blocks.parquet"):
        (run.root / folder / name).write_text("as it was made")
    record_files(run)
    (run.root / folder / "spine.arrow").unlink()
    (told,) = mend(run)
    assert told == f"{folder}/spine.arrow is missing, and is made again"
    assert not (run.root / folder / "shards.parquet").exists()


def test_measurements_of_others_are_recorded_at_once(tmp_path: Path) -> None:
    run, name = RunDirectory(tmp_path / "run"), "measurements/p/US/dpqueries/00000.parquet"
    start_run(run, product="estimate", settings_text="x")
    (run.root / name).parent.mkdir(parents=True)
    (run.root / name).write_text("as it was published")
    record_files(run)
    (run.root / name).write_text("altered")
    (told,) = mend(run)
    assert told.endswith("and is made again") and not (run.root / name).exists()

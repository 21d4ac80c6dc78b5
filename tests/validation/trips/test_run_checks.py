"""Every check fails on a run that was tampered with where it looks, and names itself."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.flows.running import call_stages
from spineflow.flows.trips import tree_to_table
from spineflow.tasks.runs.directory import RunDirectory, start_run
from spineflow.tasks.runs.settings_files import dump_settings, load_settings
from spineflow.tasks.trips.ingest.files import plan_of
from spineflow.tasks.trips.ingest.files import read_tree as read_run_tree
from spineflow.tasks.trips.ingest.generate import CountrySize, generate_country
from spineflow.tasks.trips.ingest.ingest import ingest_input
from spineflow.tasks.trips.measurement.charge import expected_of
from spineflow.tasks.trips.settings import TripsSettings
from spineflow.tasks.trips.workload.neighbors import Contribution, squared_sensitivity
from spineflow.tasks.trips.workload.plan import make_plan
from spineflow.validation.outcome import Failures
from spineflow.validation.trips.privacy_loss import ExpectedTrips, check_noise
from spineflow.validation.trips.privacy_loss import squared_sensitivity as recomputed_sensitivity
from spineflow.validation.trips.run_checks import ALWAYS, TOP_DOWN, run_checks
from spineflow.validation.trips.run_files import read_tree

from tests.flows.in_process import judged_once

SMALL = CountrySize(regions=2, provinces=4, municipalities=20, pairs=200, commuters=30_000)
MEASURED = "measurements/trips/level_03/dpqueries/00000.parquet"
ESTIMATES = "estimates/trips/level_03/00000.parquet"


@pytest.fixture(scope="module")
def good_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ExpectedTrips]:
    """A run that is ready to be checked, and what its settings promise."""
    folder = tmp_path_factory.mktemp("run")
    settings = load_settings(TripsSettings, generate_country(folder, SMALL, seed=1), presets=folder)
    run = RunDirectory(folder / "run")
    run.root.mkdir()
    start_run(run, product="trips", settings_text=dump_settings(settings))
    with judged_once():
        ingest_input(run, settings)
    call_stages(run, settings, tree_to_table)
    return run.root, expected_of(settings, plan_of(run, settings))


def failed(root: Path, expected: ExpectedTrips, *, is_private: bool = True) -> set[str]:
    outcomes = run_checks(
        root, expected, release_directory=root / "release-unchecked", is_private=is_private
    )
    assert {outcome.name for outcome in outcomes} == {*ALWAYS, *TOP_DOWN}
    return {outcome.name for outcome in outcomes if not outcome.passed}


def change_rows(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def with_column(table: pa.Table, name: str, values) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, [pa.array(values)])


def moved(table: pa.Table, name: str, by: int = 1) -> pa.Table:
    """One trip from the second row to the first, or more."""
    values = table[name].to_numpy().copy()
    values[:2] += [by, -by]
    return with_column(table, name, values)


def edit_text(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


TAMPERED: dict[str, tuple[Callable[[Path], None], set[str]]] = {
    "a measured node is missing": (
        lambda root: change_rows(root / MEASURED, lambda t: t.slice(1)),
        {"measurements_are_complete"},
    ),
    "a node is measured twice": (
        lambda root: change_rows(root / MEASURED, lambda t: pa.concat_tables([t, t.slice(0, 1)])),
        {"measurements_are_complete"},
    ),
    "a shard is missing": (
        lambda root: (root / MEASURED).unlink(),
        {"measurements_are_complete"},
    ),
    "more was spent": (
        lambda root: change_rows(root / MEASURED, lambda t: with_column(t, "plb", ["1"] * len(t))),
        {"measured_loss_is_the_budget"},
    ),
    "less noise than was paid for": (
        lambda root: change_rows(
            root / MEASURED, lambda t: with_column(t, "variance", [1.0] * len(t))
        ),
        {"measured_loss_is_the_budget"},
    ),
    "estimates do not add up": (
        lambda root: change_rows(root / ESTIMATES, lambda t: moved(t, "count")),
        {"children_add_to_parents"},
    ),
    "an estimate is negative": (
        lambda root: change_rows(root / ESTIMATES, lambda t: moved(t, "count", -10_000_000)),
        {"children_add_to_parents", "counts_are_positive"},
    ),
    "the total is another": (
        lambda root: edit_text(root / "spine/trips/tree.json", '"total": 30000', '"total": 30001'),
        {"total_is_kept"},
    ),
    "the table is another": (
        lambda root: change_rows(
            root / "release-unchecked/trips.parquet", lambda t: moved(t, "count")
        ),
        {"table_is_the_estimates"},
    ),
    "the text is another": (
        lambda root: edit_text(root / "release-unchecked/trips.csv", "\n", "\nX,Y,1\n"),
        {"table_is_the_estimates"},
    ),
    "the text has a stamp that it is not due": (
        lambda root: edit_text(root / "release-unchecked/trips.csv", "", "# NOT PRIVATE\n"),
        {"table_is_the_estimates"},
    ),
    "range queries are others": (
        lambda root: change_rows(
            root / "release-unchecked/range_queries.parquet", lambda t: moved(t, "count")
        ),
        {"range_queries_add_up"},
    ),
    "a file is unreadable": (
        lambda root: (root / MEASURED).write_bytes(b"PAR1"),
        {"measurements_are_complete", "measured_loss_is_the_budget"},
    ),
    "areas contradict each other": (
        lambda root: change_rows(
            root / "spine/trips/areas.parquet",
            lambda t: with_column(t, "code", ["x"] * len(t)),
        ),
        {*ALWAYS, *TOP_DOWN},
    ),
}


def test_a_good_run_passes(good_run: tuple[Path, ExpectedTrips]) -> None:
    assert failed(*good_run) == set()


@pytest.mark.parametrize("case", TAMPERED)
def test_tampering_is_seen(case: str, good_run, tmp_path: Path) -> None:
    root, expected = good_run
    copy = tmp_path / "run"
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns("confidential"))
    tamper, broken = TAMPERED[case]
    tamper(copy)
    found = failed(copy, expected)
    assert broken <= found
    assert found - broken <= {"measurements_are_complete"}


def test_promises_of_other_settings_are_not_met(good_run) -> None:
    root, expected = good_run
    double = dataclasses.replace(expected, loss=2 * expected.loss)
    assert failed(root, double) == {"measured_loss_is_the_budget"}
    unbounded = dataclasses.replace(expected, bounded=False)
    assert failed(root, unbounded) == {"measured_loss_is_the_budget"}
    stamped = {"table_is_the_estimates", "range_queries_add_up"}
    assert failed(root, expected, is_private=False) == stamped


@pytest.mark.parametrize(
    ("overrides", "factor", "is_sound"),
    [
        ((), Fraction(1), True),
        ((), Fraction(99, 100), False),
        ((), Fraction(0), False),
        (("privacy.neighbors=unbounded",), Fraction(1), True),
        (("mechanism.name=stability_histogram",), Fraction(1), True),
        (("mechanism.name=stability_histogram",), Fraction(1, 2), False),
        (("privacy.infinite=true",), Fraction(1), True),
    ],
)
def test_noise_must_cost_the_budget_before_it_is_drawn(
    good_run, overrides: tuple[str, ...], factor: Fraction, is_sound: bool
) -> None:
    root, _ = good_run
    settings = load_settings(
        TripsSettings, root / "settings.toml", presets=root, overrides=overrides
    )
    plan = make_plan(settings, read_run_tree(RunDirectory(root)).tree)
    noise = {level: parameter * factor for level, parameter in plan.noise.items()}
    failures = Failures()
    check_noise(read_tree(root), noise, expected_of(settings, plan), failures)
    assert (failures.count == 0) == is_sound


@pytest.mark.parametrize("trips", [1, 3, 40])
@pytest.mark.parametrize("distinct", [True, False])
def test_sensitivities_are_recomputed_alike(good_run, trips: int, distinct: bool) -> None:
    root, expected = good_run
    promise = dataclasses.replace(expected, trips_per_person=trips, distinct=distinct)
    tree = read_tree(root)
    run = RunDirectory(root)
    settings = load_settings(TripsSettings, root / "settings.toml", presets=root)
    own = plan_of(run, settings).tree
    contribution = Contribution(trips=trips, are_distinct=distinct)
    for level in range(own.depth + 1):
        theirs = recomputed_sensitivity(tree, level, promise)
        assert theirs == squared_sensitivity(own, level, contribution)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "spine/trips/tree.json",
        "spine/trips/areas.parquet",
        "measurements/trips/level_03/cuts.json",
        MEASURED,
        ESTIMATES,
        "release-unchecked/trips.parquet",
        "release-unchecked/trips.csv",
        "release-unchecked/range_queries.parquet",
    ],
)
def test_unusable_files_fail(good_run, tmp_path: Path, passes_when_damaged, name: str) -> None:
    """A file that cannot be used fails the checks, whatever is wrong with it; none crashes."""
    root, expected = good_run
    copy = Path(shutil.copytree(root, tmp_path / "run"))

    def outcomes():
        release = copy / "release-unchecked"
        return run_checks(copy, expected, release_directory=release, is_private=True)

    assert passes_when_damaged(copy / name, outcomes, unread={"level"}) == []

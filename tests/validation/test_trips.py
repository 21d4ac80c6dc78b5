"""Every check fails on a run that was tampered with where it looks, and names itself."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.flows.running import call_stages
from spineflow.flows.trips import tree_to_table
from spineflow.tasks.products.product import product
from spineflow.tasks.runs.directory import RunDirectory, start_run
from spineflow.tasks.runs.settings_files import dump_settings, load_settings
from spineflow.tasks.trips.ingest.generate import CountrySize, generate_country
from spineflow.tasks.trips.ingest.ingest import ingest_input
from spineflow.tasks.trips.plan import read_plan, squared_sensitivity
from spineflow.tasks.trips.settings import TripsPrivacy, TripsSettings
from spineflow.validation.plan import sha256
from spineflow.validation.trips import ALWAYS, TOP_DOWN, read_tree, run_checks
from spineflow.validation.trips import squared_sensitivity as recomputed_sensitivity

from tests.flows.in_process import judged_once
from tests.validation.mutations import (
    PRIVACY,
    Place,
    assert_field_is_checked,
    assert_file_is_checked,
    fields_of_plan,
    noticed,
)

SMALL = CountrySize(regions=2, provinces=4, municipalities=20, pairs=200, commuters=30_000)
MEASURED = "measurements/trips/level_03/dpqueries/00000.parquet"
ESTIMATES = "estimates/trips/level_03/00000.parquet"


OWN = product("trips")


def tabulated(folder: Path, *overrides: str) -> tuple[RunDirectory, TripsSettings]:
    """A run that is ready to be checked."""
    file = generate_country(folder, SMALL, seed=1)
    settings = load_settings(TripsSettings, file, presets=folder, overrides=overrides)
    run = RunDirectory(folder / "run")
    run.root.mkdir()
    text = dump_settings(settings)
    start_run(run, product="trips", settings_text=text, stamp=settings.stamp)
    with judged_once():
        ingest_input(run, settings)
    call_stages(run, settings, tree_to_table)
    return run, settings


@pytest.fixture(scope="module")
def good_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, TripsSettings]:
    return tabulated(tmp_path_factory.mktemp("run"))


@pytest.fixture
def root(good_run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good_run[0].root, tmp_path / "run"))


def failed(root: Path) -> set[str]:
    outcomes = run_checks(root, root / "release-unchecked")
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
    "areas contradict each other": (
        lambda root: change_rows(
            root / "spine/trips/areas.parquet",
            lambda t: with_column(t, "code", ["x"] * len(t)),
        ),
        {*ALWAYS, *TOP_DOWN},
    ),
}


def test_a_good_run_passes(root: Path) -> None:
    shutil.rmtree(root / "confidential")
    assert failed(root) == set()


@pytest.mark.parametrize("case", TAMPERED)
def test_tampering_is_seen(case: str, root: Path) -> None:
    tamper, broken = TAMPERED[case]
    tamper(root)
    found = failed(root)
    assert broken <= found
    assert found - broken <= {"measurements_are_complete", PRIVACY}


@pytest.mark.parametrize("place", fields_of_plan(), ids=".".join)
def test_every_field_of_the_plan_is_checked(good_run, place: Place) -> None:
    assert_field_is_checked(OWN, *good_run, place)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("settings.toml", PRIVACY),
        ("plan/plan.json", PRIVACY),
        ("spine/trips/tree.json", PRIVACY),
        ("spine/trips/areas.parquet", PRIVACY),
        ("spine/trips/plan.json", PRIVACY),
        (MEASURED, "measurements_are_complete"),
        (ESTIMATES, "children_add_to_parents"),
        ("release-unchecked/trips.parquet", "table_is_the_estimates"),
        ("release-unchecked/trips.csv", "table_is_the_estimates"),
        ("release-unchecked/range_queries.parquet", "range_queries_add_up"),
        ("release-unchecked/range_queries.csv", "range_queries_add_up"),
    ],
)
def test_every_file_is_checked(good_run, name: str, check: str) -> None:
    assert_file_is_checked(OWN, *good_run, name, check)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('neighbors = "bounded"', 'neighbors = "unbounded"'),
        ("trips_per_person = 1", 'total = "measured"\ntrips_per_person = 2'),
        ("infinite = false", "infinite = true"),
        ('name = "inftda"', 'name = "gaussian_leaves"'),
        ('shares = "uniform"', 'shares = "geometric"\nshare_ratio = "1/2"'),
        ('dataset = "', 'dataset = "other'),
        ('epsilon = "', 'epsilon = "1'),
        ('delta = "1/', 'delta = "1/1'),
    ],
)
def test_a_plan_of_other_settings_is_seen(root: Path, before: str, after: str) -> None:
    """Its fields agree with each other, and with every file that it names."""
    path, plan = root / "settings.toml", root / "plan" / "plan.json"
    text, was = path.read_text(), sha256(path)
    if "share_ratio" in after:
        text = "\n".join(line for line in text.splitlines() if "share_ratio" not in line) + "\n"
    assert before in text
    path.write_text(text.replace(before, after))
    plan.write_text(plan.read_text().replace(was, sha256(path)))
    assert PRIVACY in failed(root)


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ("privacy.neighbors=unbounded",),
        ("mechanism.name=stability_histogram",),
        ("mechanism.name=gaussian_leaves", "privacy.infinite=true"),
        ("mechanism.name=inftda_full_information", "privacy.conversion=tight"),
        ("mechanism.shares=optimised", "privacy.trips_per_person=3", "privacy.total=measured"),
    ],
)
def test_runs_of_other_settings_pass(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    run, settings = tabulated(tmp_path, *overrides)
    assert noticed(OWN, run, settings) == set()
    if "inftda_full_information" in overrides[0]:
        change_rows(next(run.root.glob(MEASURED)), lambda t: t.slice(1))
        assert "measurements_are_complete" in noticed(OWN, run, settings)


@pytest.mark.parametrize("trips", [1, 3, 40])
@pytest.mark.parametrize("distinct", [True, False])
def test_sensitivities_are_recomputed_alike(good_run, trips: int, distinct: bool) -> None:
    run, settings = good_run
    told = {"trips_per_person": trips, "distinct_trips": distinct, "neighbors": "bounded"}
    own = read_plan(run).tree
    privacy = TripsPrivacy(dataset="d", trips_per_person=trips, distinct_trips=distinct)
    for level in range(own.depth + 1):
        theirs = recomputed_sensitivity(read_tree(run.root), level, told)
        assert theirs == squared_sensitivity(own, level, privacy)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "spine/trips/tree.json",
        "spine/trips/areas.parquet",
        MEASURED,
        ESTIMATES,
        "release-unchecked/trips.parquet",
        "release-unchecked/trips.csv",
        "release-unchecked/range_queries.parquet",
    ],
)
def test_unusable_files_fail(root: Path, passes_when_damaged, name: str) -> None:
    """A file that cannot be used fails the checks, whatever is wrong with it; none crashes."""

    def outcomes():
        return run_checks(root, root / "release-unchecked")

    assert passes_when_damaged(root / name, outcomes, unread={"level"}) == []

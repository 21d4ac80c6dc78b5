"""Whole runs without an orchestrator: every mechanism, every kind of neighbours, and the truth."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from spineflow.flows.running import call_stages
from spineflow.flows.trips import tree_to_table
from spineflow.tasks.ledger.caps import summary
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.runs.directory import RunDirectory, start_run
from spineflow.tasks.runs.errors import BudgetRefused, InputRefused, SpineflowError
from spineflow.tasks.runs.files import NOT_PRIVATE
from spineflow.tasks.runs.settings_files import dump_settings, load_settings
from spineflow.tasks.trips import plan as workload_budget
from spineflow.tasks.trips.charge import curve_of_change
from spineflow.tasks.trips.estimation.estimate import estimate_level
from spineflow.tasks.trips.ingest.generate import CountrySize, generate_country
from spineflow.tasks.trips.ingest.ingest import ingest_input
from spineflow.tasks.trips.measurement import read_nodes
from spineflow.tasks.trips.plan import estimates_file, measured_file, read_plan, write_plan
from spineflow.tasks.trips.product import TRIPS
from spineflow.tasks.trips.release import released_level
from spineflow.tasks.trips.settings import TripsSettings
from spineflow.tasks.trips.tree import read_tree, read_truth

from tests.flows.in_process import judged_once
from tests.tasks.ledger.exact_charges import check_exact_charge, check_noise_of_curve

SMALL = CountrySize(regions=3, provinces=8, municipalities=40, pairs=500, commuters=60_000)

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def one_opinion() -> Iterator[None]:
    """Our own code alone judges the input, which is sound where a run goes on."""
    with judged_once():
        yield


@pytest.fixture(scope="module")
def country(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("country")
    generate_country(folder, SMALL, seed=5)
    return folder


def started(country: Path, folder: Path, *overrides: str) -> tuple[RunDirectory, TripsSettings]:
    for name in ("trips.parquet", "areas.csv", "settings.toml"):
        shutil.copy(country / name, folder / name)
    settings = load_settings(
        TripsSettings, folder / "settings.toml", presets=folder, overrides=overrides
    )
    run = RunDirectory(folder / "run")
    run.root.mkdir()
    start_run(run, product="trips", settings_text=dump_settings(settings), stamp=settings.stamp)
    return run, settings


def finished(country: Path, folder: Path, *overrides: str) -> RunDirectory:
    run, settings = started(country, folder, *overrides)
    call_stages(run, settings)
    return run


MECHANISMS = {
    "inftda": (),
    "origin tree": ("mechanism.tree=origin",),
    "highs": ("mechanism.name=tda_chebyshev",),
    "all nodes": ("mechanism.name=inftda_full_information", "mechanism.projection=euclidean"),
    "selected nodes": (
        "mechanism.name=inftda_full_information",
        "mechanism.most_nodes=1",
        "mechanism.shares=optimised",
    ),
    "unbounded": (
        "privacy.neighbors=unbounded",
        "mechanism.shares=geometric",
        "mechanism.share_ratio=2",
    ),
    "several trips": (
        "privacy.trips_per_person=3",
        "privacy.total=measured",
        "privacy.distinct_trips=true",
    ),
}


@pytest.mark.parametrize("case", MECHANISMS)
def test_top_down_mechanisms_keep_consistency_at_every_level(
    case: str, country: Path, tmp_path: Path
) -> None:
    """The checks that `run_in_process` raises for, and the same sums once more here."""
    run = finished(country, tmp_path, *MECHANISMS[case])
    tree = read_tree(run).tree
    table = pq.read_table(run.release / "trips.parquet").to_pandas()
    assert list(table) == ["origin", "destination", "count"]
    assert (table["count"] > 0).all() and not table.duplicated(["origin", "destination"]).any()
    lines = (run.release / "trips.csv").read_text().splitlines()
    is_stamped = lines[0] == "# NOT PRIVATE"
    assert is_stamped == (run.read_manifest()["privacy"] == NOT_PRIVATE)
    options = pacsv.ReadOptions(skip_rows=int(is_stamped))
    text = pacsv.read_csv(run.release / "trips.csv", read_options=options).to_pandas()
    pd.testing.assert_frame_equal(text, table, check_dtype=False)
    below = None
    for level in range(tree.depth, -1, -1):
        nodes = released_level(run.release, tree, level)
        estimates = read_nodes(estimates_file(run, level), tree, level, "count")
        assert dict(zip(nodes.keys, nodes.counts, strict=True)) == dict(
            zip(estimates.keys, estimates.counts, strict=True)
        )
        if below is not None:
            sums = pd.Series(below.counts).groupby(tree.parent_keys(level + 1, below.keys)).sum()
            assert sums.to_dict() == dict(zip(nodes.keys, nodes.counts, strict=True))
        below = nodes
    if read_tree(run).total is not None:
        assert table["count"].sum() == SMALL.commuters
    assert sorted(path.name for path in run.release.iterdir()) == [
        "certificate.html",
        "certificate.json",
        "certificate.md",
        "range_queries.csv",
        "range_queries.parquet",
        "trips.csv",
        "trips.parquet",
    ]


DEGENERATE = {
    "inftda": (),
    "selected nodes": ("mechanism.name=inftda_full_information", "mechanism.most_nodes=1"),
}


@pytest.mark.parametrize("case", DEGENERATE)
def test_levels_that_only_repeat_counts_are_not_measured(
    case: str, country: Path, tmp_path: Path
) -> None:
    """A nation above the regions, and one district in every municipality."""
    areas = pd.read_csv(country / "areas.csv", dtype=str, keep_default_na=False)
    levels = list(dict.fromkeys(areas["level"]))
    coarsest, finest = areas["level"] == levels[0], areas["level"] == levels[-1]
    areas.loc[coarsest, "parent"] = "nation"
    nation = pd.DataFrame({"level": ["nation"], "area": ["nation"], "parent": [""]})
    below = areas[finest].assign(level="district", parent=areas.loc[finest, "area"])
    run, settings = started(country, tmp_path, *DEGENERATE[case])
    pd.concat([nation, areas, below]).to_csv(tmp_path / "areas.csv", index=False)
    call_stages(run, settings)
    plan = read_plan(run)
    n_nodes = [plan.tree.n_nodes(level) for level in range(plan.tree.depth + 1)]
    assert len(n_nodes) == 2 * 5 + 1
    assert all(n_nodes[level] != n_nodes[level - 1] for level in plan.levels if level)
    plain = tmp_path / "plain"
    plain.mkdir()
    other, same = started(country, plain, *DEGENERATE[case])
    ingest_input(other, same)
    expected = read_plan(other).measures
    assert [own.noise for own in plan.measures.values()] == [own.noise for own in expected.values()]
    for level in plan.inferred:
        if level:
            above = released_level(run.release, plan.tree, level - 1)
            own = released_level(run.release, plan.tree, level)
            assert (np.sort(own.counts) == np.sort(above.counts)).all()


@pytest.mark.parametrize("skipped", [3, 5])
def test_a_level_that_must_be_measured_is_missed(country: Path, tmp_path: Path, skipped) -> None:
    run, settings = started(country, tmp_path)
    ingest_input(run, settings)
    plan = read_plan(run)
    shares = workload_budget.geometric_shares([level for level in plan.levels if level != skipped])
    measures = workload_budget.level_measures(plan.tree, settings.privacy, settings.rho, shares)
    write_plan(run, replace(plan, measures=measures))
    with pytest.raises(BudgetRefused, match=f"level {skipped} is not measured"):
        TRIPS.charge_run(run, settings)


def test_trips_beyond_those_of_a_person_are_refused_or_dropped(
    country: Path, tmp_path: Path
) -> None:
    trips = pd.read_parquet(country / "trips.parquet").head(200)
    rows = trips.loc[trips.index.repeat(3), ["origin", "destination"]].reset_index(drop=True)
    rows["pid"] = [f"p{i // 5}" for i in range(len(rows))]
    overrides = ("input.person=pid", "privacy.trips_per_person=2", "privacy.total=measured")
    for folder, more in (("refused", ()), ("dropped", ("privacy.excess_trips=dropped",))):
        (tmp_path / folder).mkdir()
        run, _ = started(country, tmp_path / folder)
        rows.to_parquet(tmp_path / folder / "trips.parquet")
        file = tmp_path / folder / "settings.toml"
        file.write_text(re.sub("\ncount = .*", "", file.read_text()))
        settings = load_settings(
            TripsSettings, file, presets=tmp_path, overrides=(*overrides, *more)
        )
        if not more:
            with pytest.raises(InputRefused, match="no pid may have more than 2 trips"):
                ingest_input(run, settings)
            continue
        ingest_input(run, settings)
        assert read_truth(run).leaves.total == 2 * rows["pid"].nunique()
        assert read_plan(run).measures[1].moved == 8


@pytest.mark.parametrize(("factor", "fits"), [("1", True), ("3/2", False), ("2/3", False)])
def test_noise_has_the_variance_of_its_share(
    factor: str, fits: bool, country: Path, tmp_path: Path
) -> None:
    """Mean square of the noise at the leaves of a wholly measured tree, within five s.d."""
    run, settings = started(
        country, tmp_path, "mechanism.name=inftda_full_information", "privacy.seed=11"
    )
    ingest_input(run, settings)
    call_stages(run, settings, tree_to_table)
    plan, truth = read_plan(run), read_truth(run)
    level = plan.tree.depth
    noisy = read_nodes(measured_file(run, level), plan.tree, level, "value")
    noise = noisy.counts - truth.leaves.counts_of(noisy.keys)
    n = noise.size
    assert n == SMALL.municipalities**2
    sigma_squared = float(level / settings.rho * Fraction(factor))
    deviation = sigma_squared * (2 / n) ** 0.5
    assert (abs((noise.astype(float) ** 2).mean() - sigma_squared) < 5 * deviation) == fits


def test_a_measurement_that_the_ledger_does_not_know_is_not_the_runs_own(
    country: Path, tmp_path: Path
) -> None:
    run, settings = started(country, tmp_path)
    ingest_input(run, settings)
    TRIPS.charge_run(run, settings)
    foreign = measured_file(run, 3)
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"from another run")
    with pytest.raises(BudgetRefused, match="level_03.* the ledger does not know it"):
        TRIPS.charge_run(run, settings)
    foreign.unlink()
    TRIPS.charge_run(run, settings)


def test_noise_that_does_not_cover_a_person_is_not_drawn(
    country: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(workload_budget, "squared_sensitivity", lambda *arguments: 1)
    run, settings = started(country, tmp_path)
    ingest_input(run, settings)
    with pytest.raises(BudgetRefused, match="level_01 has another moved"):
        TRIPS.charge_run(run, settings)
    assert summary(open_ledger(tmp_path / "ledger.db"))["datasets"] == {}


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("privacy.neighbors=unbounded",),
        ("privacy.trips_per_person=3", "privacy.total=measured"),
        ("privacy.trips_per_person=3", "privacy.neighbors=unbounded"),
    ],
    ids=" ".join,
)
def test_the_ledger_has_the_curve_of_who_is_changed(
    country: Path, tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    run, settings = started(country, tmp_path, *overrides)
    ingest_input(run, settings)
    (draw,) = TRIPS.plan(settings, run).universes
    check_noise_of_curve(draw)
    check_exact_charge(
        lambda: TRIPS.charge_run(run, settings),
        tmp_path / "ledger.db",
        curve_of_change(read_plan(run), settings.privacy),
    )


def test_where_no_curve_is_known_rho_counts(country: Path, tmp_path: Path) -> None:
    run, settings = started(country, tmp_path, "mechanism.name=stability_histogram")
    ingest_input(run, settings)
    (draw,) = TRIPS.plan(settings, run).universes
    assert draw.curve is None
    TRIPS.charge_run(run, settings)
    (spent,) = summary(open_ledger(tmp_path / "ledger.db"), is_exact=True)["datasets"].values()
    assert spent["epsilon"]["exact"] is None


def test_estimates_that_changed_after_measuring_are_refused(country: Path, tmp_path: Path) -> None:
    run, settings = started(country, tmp_path)
    ingest_input(run, settings)
    call_stages(run, settings, tree_to_table)
    level = 3
    above = estimates_file(run, level - 1)
    pq.write_table(pq.read_table(above).slice(1), above)
    with pytest.raises(SpineflowError, match="differ from those that decided"):
        estimate_level(run, settings, level)

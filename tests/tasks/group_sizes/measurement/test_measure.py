"""Charging and measuring: what the ledger is told, and what is published once."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import chi2
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.group_sizes.ingest.read import (
    ingest_groups,
    read_plan,
    read_regions,
    true_counts,
)
from spineflow.tasks.group_sizes.measurement import exact_curve, measure_level, plan_of
from spineflow.tasks.group_sizes.plan import UNIVERSE, plan_file
from spineflow.tasks.group_sizes.product import GROUP_SIZES
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.ledger.caps import summary
from spineflow.tasks.ledger.store import open_ledger
from spineflow.tasks.runs.directory import RunDirectory, start_run
from spineflow.tasks.runs.errors import BudgetRefused
from spineflow.tasks.runs.settings_files import dump_settings, load_settings

from tests.tasks.ledger.exact_charges import check_exact_charge, check_noise_of_curve

pytestmark = pytest.mark.usefixtures("judged_once")


def settings_of(
    folder: Path, *overrides: str, groups: int = 900, states: int = 3, loss: str = "epsilon"
) -> GroupSizesSettings:
    dataset = census_like(
        groups=groups, counties=9, states=states, largest=40 if groups == 900 else 2000
    )
    file = write_dataset(folder, dataset)
    file.write_text(file.read_text().replace('epsilon = "1"', f'{loss} = "1"'))
    return load_settings(GroupSizesSettings, file, presets=folder, overrides=overrides)


def zcdp_settings(folder: Path, *overrides: str, **dataset) -> GroupSizesSettings:
    return settings_of(folder, "privacy.rho=1/2", *overrides, loss="rho", **dataset)


def ingested(folder: Path, settings: GroupSizesSettings) -> RunDirectory:
    run = RunDirectory(folder / "run")
    run.root.mkdir()
    text = dump_settings(settings)
    start_run(run, product="group-sizes", settings_text=text, stamp=settings.stamp)
    ingest_groups(run, settings)
    return run


@pytest.mark.parametrize(
    ("neighbors", "rho"), [("unbounded", Fraction(2)), ("bounded", Fraction(1, 2))]
)
def test_the_ledger_is_charged_epsilon_between_the_neighbours_meant(
    tmp_path: Path, neighbors: str, rho: Fraction
) -> None:
    settings = settings_of(tmp_path, f"privacy.neighbors={neighbors}")
    run = ingested(tmp_path, settings)
    GROUP_SIZES.charge_run(run, settings)
    GROUP_SIZES.charge_run(run, settings)
    spent = summary(open_ledger(tmp_path / "ledger.db"))["datasets"]["census-like"]
    (draw,) = spent["products"]["group-sizes"]["draws"]
    assert draw["definition"] == "pure_dp"
    assert draw["parameter"] == "1"
    assert draw["neighbors"] == neighbors
    assert Fraction(spent["rho"]) == read_plan(run).universe.promised.bounded_rho == rho


@pytest.mark.parametrize(("neighbors", "rho"), [("unbounded", 2), ("bounded", Fraction(1, 2))])
def test_the_ledger_is_charged_rho_between_the_neighbours_meant(
    tmp_path: Path, neighbors: str, rho: Fraction
) -> None:
    settings = zcdp_settings(tmp_path, f"privacy.neighbors={neighbors}")
    run = ingested(tmp_path, settings)
    GROUP_SIZES.charge_run(run, settings)
    spent = summary(open_ledger(tmp_path / "ledger.db"))["datasets"]["census-like"]
    (draw,) = spent["products"]["group-sizes"]["draws"]
    assert (draw["definition"], draw["parameter"]) == ("zcdp", "1/2")
    assert draw["neighbors"] == neighbors
    assert Fraction(spent["rho"]) == rho


@pytest.mark.parametrize("loss", ["epsilon", "rho"])
@pytest.mark.parametrize("neighbors", ["unbounded", "bounded"])
def test_the_ledger_has_the_curve_of_who_moves(tmp_path: Path, loss: str, neighbors: str) -> None:
    settings = settings_of(tmp_path, f"privacy.neighbors={neighbors}", loss=loss)
    run = ingested(tmp_path, settings)
    (draw,) = plan_of(settings, run).universes
    check_noise_of_curve(draw)
    check_exact_charge(
        lambda: GROUP_SIZES.charge_run(run, settings),
        tmp_path / "ledger.db",
        exact_curve(read_plan(run), is_bounded=True),
    )


def test_gaussian_noise_has_its_variance(tmp_path: Path) -> None:
    """The right variance is accepted, and one that is a tenth larger or smaller is not."""
    settings = zcdp_settings(tmp_path, "mechanism.name=hierarchical_dp", groups=9_000)
    run = ingested(tmp_path, settings)
    GROUP_SIZES.charge_run(run, settings)
    measure_level(run, settings, "county")
    plan, hierarchy = read_plan(run), read_regions(run)
    table = pq.read_table(run.dpqueries(UNIVERSE, "county")).to_pandas()
    assert set(table["plb"]) == {"1/6"}
    assert set(table["variance"]) == {6.0}
    noise = np.stack(table["value"]) - true_counts(run, hierarchy, plan)[2]
    statistic = (noise**2).sum() / 6
    low, high = chi2.ppf([1e-7, 1 - 1e-7], noise.size)
    assert low < statistic < high
    assert not low < statistic / 1.1 < high
    assert not low < statistic * 1.1 < high


def test_too_little_gaussian_noise_stops_the_run(tmp_path: Path) -> None:
    settings = zcdp_settings(tmp_path)
    run = ingested(tmp_path, settings)
    plan = json.loads(plan_file(run).read_text())
    plan["levels"][2]["noise"]["parameter"] = "299/100"
    plan_file(run).write_text(json.dumps(plan))
    with pytest.raises(BudgetRefused, match="parameter of county does not follow"):
        GROUP_SIZES.charge_run(run, settings)


def test_levels_are_published_once(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    run = ingested(tmp_path, settings)
    GROUP_SIZES.charge_run(run, settings)
    measure_level(run, settings, "state")
    path = run.dpqueries(UNIVERSE, "state")
    before = path.read_bytes()
    table = pq.read_table(path).to_pandas()
    assert table["geocode"].tolist() == ["01", "02", "03"]
    assert set(table["query_name"]) == {"cumulative_group_sizes_dpq"}
    assert set(table["plb"]) == {"1/3"}
    assert all(len(value) == 40 for value in table["value"])
    assert np.isclose(table["variance"], 1 / (np.cosh(1 / 3) - 1)).all()
    measure_level(run, settings, "state")
    assert path.read_bytes() == before
    path.unlink()
    with pytest.raises(BudgetRefused, match="never drawn again"):
        measure_level(run, settings, "state")
    path.write_bytes(before)
    GROUP_SIZES.charge_run(run, settings)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("epsilon", "10", "nation has another loss"),
        ("bounded", True, "groups has another change"),
        ("largest_size", 41, "the largest_size in hierarchy/plan.json"),
        ("levels", [], "lacks measures"),
    ],
)
def test_a_plan_that_was_tampered_with_stops_the_run(
    tmp_path: Path, key: str, value: object, sentence: str
) -> None:
    settings = settings_of(tmp_path)
    run = ingested(tmp_path, settings)
    plan = json.loads(plan_file(run).read_text()) | {key: value}
    plan_file(run).write_text(json.dumps(plan))
    with pytest.raises(BudgetRefused, match=sentence):
        GROUP_SIZES.charge_run(run, settings)
    assert not summary(open_ledger(tmp_path / "ledger.db"))["datasets"]


def test_without_noise_nothing_is_charged(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "privacy.infinite=true")
    run = ingested(tmp_path, settings)
    GROUP_SIZES.charge_run(run, settings)
    measure_level(run, settings, "nation")
    assert not (tmp_path / "ledger.db").exists()
    table = pq.read_table(run.dpqueries(UNIVERSE, "nation"))
    assert table["plb"].to_pylist() == ["inf"]
    assert table["value"][0].as_py()[-1] == 900
    path = run.dpqueries(UNIVERSE, "nation")
    assert pq.read_metadata(path).metadata[b"spineflow"] == b"NOT PRIVATE"
    cost = GROUP_SIZES.plan(settings, run).costs[0].to_json()
    assert (cost["rho"], cost["epsilon"]["tight"]) == ("inf", "inf")
    with pytest.raises(ValueError, match="has no guarantee"):
        read_plan(run).universe.promised  # noqa: B018

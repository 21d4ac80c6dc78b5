"""The report's figures against a recomputation from the run's Parquet files with pandas alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.topdown.checks.accuracy.compared import compute_figures
from spineflow.tasks.topdown.checks.accuracy.errors import read_figures, write_figures
from spineflow.tasks.topdown.paths import geography_file, invariants_file

LEVELS = {
    "state": slice(0, 2),
    "county": slice(0, 5),
    "tract": slice(0, 11),
    "block group": slice(0, 12),
    "block": slice(0, 16),
}
COLUMNS = {"county subdivision": "COUSUBFP", "place": "PLACEFP", "AIAN area": "AIANNHCE"}
OUTSIDE = ("99999", "9999")


@pytest.fixture(scope="module")
def figures(public_run):
    run, settings = public_run
    return compute_figures(run, settings)


def records(run, universe: str) -> pd.DataFrame:
    """Truth and release by block and cell, with the attributes that the cell stands for."""
    truth = pd.read_parquet(run.histogram(universe)).rename(columns={"block_geocode": "block"})
    paths = (run.root / "estimates" / universe / "Block").glob("*.parquet")
    released = pd.concat(map(pd.read_parquet, paths))
    released = released.assign(block=released["geocode"].str[-16:])
    keys = ["block", "cell"]
    both = pd.concat(
        [truth.assign(side="truth"), released[[*keys, "count"]].assign(side="released")]
    ).pivot_table(index=keys, columns="side", values="count", aggfunc="sum", fill_value=0)
    both = both.reset_index()
    cell = both["cell"]
    if universe == "units":
        return both.assign(group=np.where(cell == 1, "occupied", "vacant"))
    return both.assign(
        hhgq=cell // 252,
        adult=cell // 126 % 2 == 1,
        hispanic=cell // 63 % 2 == 1,
        race=np.minimum(cell % 63, 6),
    )


def entities(run, level: str) -> pd.Series:
    """Entity of each block that can hold somebody; blocks outside all are left out."""
    invariants = pd.read_parquet(invariants_file(run)).set_index("block_geocode")
    geography = pd.read_parquet(geography_file(run)).set_index("block_geocode")
    geography = geography[(invariants > 0).any(axis=1)]
    if level in LEVELS:
        return pd.Series(geography.index.str[LEVELS[level]], index=geography.index)
    codes = geography[COLUMNS[level]]
    codes = codes[~codes.isin(OUTSIDE)]
    prefix = 5 if level == "county subdivision" else 2
    return pd.Series(codes.index.str[:prefix], index=codes.index) + codes


def by_entity(run, counts: pd.DataFrame, level: str, groups: list) -> pd.DataFrame:
    """truth and released of every entity and group, zeros included."""
    entity = entities(run, level)
    counts = counts[counts["block"].isin(entity.index)]
    sums = counts.groupby([counts["block"].map(entity), counts["group"]])[["truth", "released"]]
    every = pd.MultiIndex.from_product([sorted(set(entity)), groups])
    return sums.sum().reindex(every, fill_value=0)


def quantity_records(run, quantity: str) -> tuple[pd.DataFrame, list]:
    counts = records(run, "units" if quantity == "occupancy" else "persons")
    if quantity == "occupancy":
        return counts, ["occupied", "vacant"]
    if quantity == "total population":
        return counts.assign(group=0), [0]
    if quantity == "voting age":
        return counts[counts["adult"]].assign(group=0), [0]
    if quantity == "race":
        return counts.assign(group=counts["race"]), list(range(7))
    return counts.assign(group=counts["hispanic"] * 7 + counts["race"]), list(range(14))


@pytest.mark.parametrize("level", [*LEVELS, *COLUMNS])
@pytest.mark.parametrize("quantity", ["total population", "hispanic by race", "occupancy"])
def test_errors_are_those_of_the_parquet_files(public_run, figures, quantity, level) -> None:
    run, _ = public_run
    counts, groups = quantity_records(run, quantity)
    expected = by_entity(run, counts, level, groups)
    if quantity == "occupancy":
        has_units = expected["truth"].groupby(level=0).transform("sum") > 0
        expected = expected[has_units]
    errors = figures.errors
    rows = errors[(errors["quantity"] == quantity) & (errors["level"] == level)]
    found = rows[(rows["answer"] == "all") & (rows["size_class"] == "all")].iloc[0]
    error = expected["released"] - expected["truth"]
    has_any = expected["truth"] > 0
    percent = 100 * error.abs()[has_any] / expected["truth"][has_any]
    assert found["pairs"] == len(expected)
    assert found["entities"] == expected.index.get_level_values(0).nunique()
    for name, value in {
        "mean_absolute_error": error.abs().mean(),
        "bias": error.mean(),
        "root_mean_square_error": (error**2).mean() ** 0.5,
        "mean_absolute_percent_error": percent.mean(),
        "largest": error.abs().max(),
        "absolute_q90": error.abs().quantile(0.9),
        "absolute_q99": error.abs().quantile(0.99),
        "error_q05": error.quantile(0.05),
        "beyond_10": (error.abs() > 10).mean(),
        "beyond_5_percent": (percent > 5).mean(),
        "false_zeros": (expected["released"][has_any] == 0).mean(),
        "false_positives": (expected["released"][~has_any] > 0).mean(),
    }.items():
        assert found[name] == pytest.approx(value, nan_ok=True), name
    assert np.isfinite(found["predicted_standard_deviation"])


@pytest.mark.parametrize("level", ["block group", "place", "block"])
def test_size_classes_go_by_the_true_population(public_run, figures, level: str) -> None:
    run, _ = public_run
    counts, _ = quantity_records(run, "total population")
    expected = by_entity(run, counts, level, [0])
    rows = figures.errors.query(
        f"quantity == 'total population' and level == '{level}' and answer == 'all'"
    ).set_index("size_class")
    medium = expected[(expected["truth"] >= 10) & (expected["truth"] < 100)]
    if len(medium):
        error = (medium["released"] - medium["truth"]).abs()
        assert rows.loc["10 to 99", "entities"] == len(medium)
        assert rows.loc["10 to 99", "mean_absolute_error"] == pytest.approx(error.mean())
    assert rows["entities"].drop("all").sum() == rows.loc["all", "entities"]


@pytest.mark.parametrize("level", ["tract", "block"])
def test_group_quarters_are_those_with_a_facility(public_run, figures, level: str) -> None:
    run, _ = public_run
    counts = records(run, "persons")
    counts = counts[counts["hhgq"] > 0].assign(group=counts["hhgq"])
    invariants = pd.read_parquet(invariants_file(run)).set_index("block_geocode")
    facilities = invariants[[f"facilities_{kind}" for kind in range(1, 8)]].groupby(
        entities(run, level)
    )
    has = facilities.sum() > 0
    has.columns = range(1, 8)
    has = has.stack()
    expected = by_entity(run, counts, level, list(range(1, 8))).loc[has[has].index]
    errors = figures.errors
    rows = errors[(errors["quantity"] == "group quarters") & (errors["level"] == level)]
    found = rows[(rows["answer"] == "all") & (rows["size_class"] == "all")].iloc[0]
    error = (expected["released"] - expected["truth"]).abs()
    assert found["pairs"] == len(expected)
    assert found["mean_absolute_error"] == pytest.approx(error.mean())
    nursing = rows[rows["answer"] == "nursing"].iloc[0]
    of_nursing = error[error.index.get_level_values(1) == 3]
    assert nursing["mean_absolute_error"] == pytest.approx(of_nursing.mean())


@pytest.mark.parametrize("level", ["county subdivision", "tract", "block group", "place"])
@pytest.mark.parametrize("population", ["total population", "voting age"])
def test_criterion_is_that_of_the_parquet_files(public_run, figures, level, population) -> None:
    run, _ = public_run
    counts = records(run, "persons")
    if population == "voting age":
        counts = counts[counts["adult"]]
    counts = counts.assign(group=np.where(counts["hispanic"], 7, counts["race"]))
    groups = by_entity(run, counts, level, list(range(8)))
    truth, released = groups["truth"].unstack(), groups["released"].unstack()
    large = truth.sum(axis=1) >= 500
    truth, released = truth[large], released[large]
    largest = truth.idxmax(axis=1)
    points = [
        100 * abs(released.loc[e, g] / released.loc[e].sum() - truth.loc[e, g] / truth.loc[e].sum())
        for e, g in largest.items()
    ]
    criterion = figures.criterion
    found = criterion[(criterion["level"] == level) & (criterion["population"] == population)].iloc[
        0
    ]
    assert found["entities"] == len(points) > 0
    assert found["share_within"] == pytest.approx(np.mean(np.array(points) <= 5))
    assert found["difference_q95"] == pytest.approx(
        np.quantile(points, 0.95, method="inverted_cdf")
    )


def test_figures_are_kept_in_the_confidential_folder(public_run, figures) -> None:
    run, _ = public_run
    before = set(run.root.rglob("*"))
    write_figures(run, figures)
    added = {path.relative_to(run.root) for path in set(run.root.rglob("*")) - before}
    assert added and {path.parts[0] for path in added} == {"confidential"}
    again = read_figures(run)
    pd.testing.assert_frame_equal(again.errors, figures.errors, check_dtype=False)
    pd.testing.assert_frame_equal(again.criterion, figures.criterion, check_dtype=False)

"""Replicate studies of the estimators: how accurate they are, and that budget buys accuracy."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.geography.levels import OF_THE_SPINE
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.checks.replicate import study, with_estimator
from spineflow.tasks.topdown.design.problem import shares_of, to_fractions
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.settings import TopdownSettings

from benchmarks.query_errors import query_errors

PRODUCTION = Fraction(293764, 114921)
QUERIES = ["total", "hispanic * cenrace", "detailed"]


def settings_of(folder: Path, tables: Path) -> TopdownSettings:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "settings.toml"
    path.write_text(
        f'preset = "pl94_2020_us"\n[input]\npersons = "{tables / "persons.parquet"}"\n'
        f'units = "{tables / "units.parquet"}"\ngeography = "{tables / "grfc.txt"}"\n'
        'confidential = false\n[privacy]\ndataset = "study"\n[run]\nuniverses = ["persons"]\n'
    )
    return load_settings(TopdownSettings, path, presets=PRESETS)


def with_rho(settings: TopdownSettings, rho: Fraction) -> TopdownSettings:
    persons = settings.budget["persons"].model_copy(update={"rho": rho})
    return settings.model_copy(update={"budget": {**settings.budget, "persons": persons}})


def without_noise(settings: TopdownSettings) -> TopdownSettings:
    privacy = settings.privacy.model_copy(update={"infinite": True})
    return settings.model_copy(update={"privacy": privacy})


def by_seed(frame: pd.DataFrame, choice: str) -> pd.DataFrame:
    """Mean absolute errors: a row a seed, a column a query and geolevel of the spine."""
    kept = frame[(frame["choice"] == choice) & frame["query"].isin(QUERIES)]
    # The geounits that are measured: under a name of their own where they differ from the areas.
    names = set(kept["geolevel"])
    kept = kept[[name + OF_THE_SPINE not in names for name in kept["geolevel"]]]
    kept = kept.assign(geolevel=kept["geolevel"].str.removesuffix(OF_THE_SPINE))
    return kept.pivot(index="seed", columns=["query", "geolevel"], values="mean_absolute_error")


def score(difference: pd.DataFrame) -> pd.Series:
    """Mean over its standard error; 0 where nothing ever differs."""
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return (difference.mean() / error.where(error > 0, np.inf)).fillna(0)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "tables"
    generate_county(folder, persons=8000, seed=4)
    return folder


@pytest.mark.soak(40)
def test_full_information_beats_topdown_beats_blocks(tables: Path, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, tables)
    names = ("block_by_block", "topdown", "full_information")
    choices = {name: with_estimator(settings, name) for name in names}
    frame = pd.concat(study(choices, range(30), tmp_path / "study", query_errors))
    blocks, topdown, full = (by_seed(frame, name) for name in names)
    compared = score(full - topdown)
    for geolevel in ("US", "State", "Tract", "Block_Group"):
        assert compared["hispanic * cenrace", geolevel] < -2
        assert compared["detailed", geolevel] < -2
    # A county's number of people is known and shared by two tracts: no worse is all there can be.
    assert compared["total", "Tract"] < 2
    assert compared["total", "Block_Group"] < -2
    assert (score(topdown - blocks) < -2).all()


@pytest.mark.soak(40)
@pytest.mark.parametrize("estimator", ["topdown", "full_information"])
def test_budget_always_buys_accuracy(estimator: str, tables: Path, tmp_path: Path) -> None:
    """From production to a thousand times its rho; with an infinite budget nothing is wrong."""
    settings = with_estimator(settings_of(tmp_path, tables), estimator)
    choices = {
        str(times): with_rho(settings, PRODUCTION * times)
        for times in (1, 3, 10, 30, 100, 300, 1000)
    }
    choices["inf"] = without_noise(settings)
    frame = pd.concat(study(choices, range(20), tmp_path / "study", query_errors))
    errors = {choice: by_seed(frame, choice) for choice in choices}
    for less, more in zip(choices, list(choices)[1:], strict=False):
        assert (score(errors[more] - errors[less]) <= 2).all(), (less, more)
    assert (errors["1"].mean() > errors["1000"].mean()).any()
    assert not errors["inf"].to_numpy().any()


PARTS = 100_000


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> TopdownSettings:
    folder = tmp_path_factory.mktemp("county")
    generate_county(folder, persons=600, seed=1)
    (folder / "settings.toml").write_text("""\
preset = "pl94_2020_us"
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
confidential = false
[privacy]
dataset = "county"
[run]
universes = ["persons"]
""")
    return load_settings(TopdownSettings, folder / "settings.toml", presets=PRESETS)


def with_random_allocation(settings: TopdownSettings, seed: int) -> TopdownSettings:
    """Shares of which most are 0, and the others differ by many orders."""
    budget = settings.budget_of("persons")
    geolevels = tuple(budget.geolevel_shares)
    queries = sorted({name for shares in budget.query_shares.values() for name in shares})
    rng = np.random.default_rng(seed)
    p = np.exp(rng.normal(0.0, 4.0, (len(geolevels), len(queries))))
    p[rng.random(p.shape) < 0.6] = 0.0
    for row in p:
        row[rng.integers(len(row))] += 1e-3 * p.sum()
    shares = shares_of(to_fractions(p / p.sum(), PARTS), geolevels, queries)
    update: dict[str, dict[str, object]] = {"geolevels": shares[0], "queries": shares[1]}
    assert sum(shares[0].values()) == Fraction(1)
    changed = settings.budget["persons"].model_copy(update=update)
    return settings.model_copy(update={"budget": {**settings.budget, "persons": changed}})


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.soak(5)) for seed in (2, 4))]
)
def test_any_allocation_is_estimated(settings: TopdownSettings, seed: int, tmp_path: Path):
    """The state's total is an invariant, and everything else is noisy or unknown."""
    drawn = with_random_allocation(settings, seed)
    choices = {name: with_estimator(drawn, name) for name in ("topdown", "full_information")}
    for errors in study(choices, [seed + 1], tmp_path / "study", query_errors):
        of_root = errors[(errors["query"] == "total") & (errors["geolevel"] == "US")]
        assert (of_root["largest_error"] == 0).all()

"""Whatever a budget is spent on, its measurements can be estimated."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.checks.replicate import study, with_estimator
from spineflow.tasks.topdown.design.allocation import as_fractions, shares_of
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.settings import TopdownSettings

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
    shares = shares_of(as_fractions(p / p.sum(), PARTS), geolevels, queries)
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
    for errors in study(choices, [seed + 1], tmp_path / "study"):
        of_root = errors[(errors["query"] == "total") & (errors["geolevel"] == "US")]
        assert (of_root["largest_error"] == 0).all()

"""Differences of errors between allocations, and allocations whose shares add up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.flows.cli import main
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.design.comparison import (
    allocations,
    compare_allocations,
)
from spineflow.tasks.topdown.design.design import design_universe
from spineflow.tasks.topdown.design.settings import ComparisonSettings
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.ingest.ingest import public_tables
from spineflow.tasks.topdown.workload.exact_loss import exact_epsilon

SETTINGS = """\
preset = "pl94_2020_us"
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
confidential = {confidential}
[privacy]
dataset = "county"
[run]
universes = ["persons"]
[design.persons.targets]
tracts = {{ query = "total", level = "tract" }}
[comparison]
replicates = 2
estimators = ["topdown", "block_by_block"]
"""


def settings_of(folder: Path, confidential: str = "false") -> Path:
    generate_county(folder, persons=600, seed=5)
    path = folder / "settings.toml"
    path.write_text(SETTINGS.format(confidential=confidential), encoding="utf-8")
    return path


def test_differences_are_taken_seed_by_seed() -> None:
    head = {"universe": "persons", "quantity": "total", "level": "tract", "estimator": "topdown"}
    rows = []
    for seed, (own, designed) in enumerate([(2.0, 3.0), (4.0, 5.0), (9.0, 9.0)], 1):
        for allocation, error in (("as set", own), ("designed", designed)):
            figures = {
                "mean_absolute_error": error,
                "root_mean_square_error": 2 * error,
                "bias": -error,
            }
            rows.append({**head, "allocation": allocation, "seed": seed, **figures})
    found = compare_allocations(pd.DataFrame(rows)).set_index(["allocation", "statistic"])
    designed = found.loc["designed", "mean_absolute_error"]
    assert designed["mean"] == pytest.approx(17 / 3)
    assert designed["difference"] == pytest.approx(2 / 3)
    # Differences 1, 1, 0 have the variance 1/3, and their mean a ninth.
    assert designed["difference_standard_error"] == pytest.approx(1 / 3)
    assert found.loc["designed", "bias"]["difference"] == pytest.approx(-2 / 3)
    assert np.isnan(found.loc["as set", "bias"]["difference"])


def test_confidential_input_is_refused(tmp_path: Path, capsys) -> None:
    path = settings_of(tmp_path, "true")
    assert main(["run", "design", str(path), "--run-dir", str(tmp_path / "run")]) == 2
    assert "which no ledger records" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.soak(2)
@pytest.mark.slow
def test_all_allocations_keep_the_same_exact_guarantee(tmp_path: Path) -> None:
    file = settings_of(tmp_path)
    exact = 'epsilon = "8"\ndelta = "1e-6"\naccounting = "exact"'
    file.write_text(f"{file.read_text(encoding='utf-8')}[budget.persons]\n{exact}\n", "utf-8")
    settings = load_settings(ComparisonSettings, file, presets=PRESETS).resolved()
    geography, invariants = public_tables(settings.topdown)
    designs = {"persons": design_universe(settings, "persons", (geography, invariants))}
    rhos = {}
    for name, made in allocations(settings, designs).items():
        budget = made.budget_of("persons")
        rhos[name] = budget.total
        assert 7.999 < exact_epsilon(budget, budget.delta) <= 8
        assert sum(budget.geolevel_shares.values()) == 1
        assert all(sum(shares.values()) == 1 for shares in budget.query_shares.values())
        is_even = len(set(budget.geolevel_shares.values())) == 1
        assert is_even == (name == "uniform")
    assert rhos["as set"] == settings.budget["persons"].rho
    assert len(set(rhos.values())) == 3

"""Searches among settings of trips, group sizes and detailed groups."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tomli_w
from spineflow.flows.cli import main
from spineflow.flows.replicates import DETAILED_GROUPS, GROUP_SIZES, TRIPS, RunTrials
from spineflow.flows.tune import PRODUCT as TUNE
from spineflow.tasks.detailed_groups.ingest.generate import generate_persons, generate_specification
from spineflow.tasks.detailed_groups.workload.parameters import read_specification
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.study.search import loss_grid
from spineflow.tasks.trips.ingest.generate import CountrySize, generate_country

from tests.flows.in_process import tasks_in_threads

Tree = dict[str, Any]


def trips(folder: Path) -> Tree:
    """A search among trips, where one variant has a hundred times the budget of the other."""
    file = generate_country(folder, CountrySize(2, 4, 20, 100, 5_000))
    own = tomllib.loads(file.read_text())
    return {
        "input": own["input"],
        "privacy": {"dataset": "d", "delta": "1e-8", "conversion": "tight"},
        "trips": {"mechanism": {"shares": "geometric", "share_ratio": "2"}},
        "variants": {
            "poor": {"privacy": {"epsilon": "1/10"}},
            "rich": {"privacy": {"epsilon": "10"}},
        },
        "criterion": {"level": "6"},
        "search": {"method": "fixed", "replicates": 2},
    }


def group_sizes(folder: Path) -> Tree:
    """A search for the smallest rho of group sizes."""
    file = write_dataset(folder, census_like(groups=3_000, counties=6, states=2, largest=20))
    own = tomllib.loads(file.read_text())
    return {
        "input": own["input"],
        "privacy": {"dataset": "d", "rho": "1"},
        "group-sizes": {"invariants": own["invariants"], "mechanism": {"largest_size": 20}},
        "criterion": {"level": "county", "at_most": 300.0},
        "search": {
            "method": "total",
            "replicates": 2,
            "lowest": "1/1000",
            "highest": "10",
            "step": "16",
        },
    }


def detailed_groups(folder: Path) -> Tree:
    """A search among thresholds and stages of detailed groups."""
    generate_specification(folder / "params", detailed=6, ethnicities=2, states=("44",))
    codes = list(read_specification(str(folder / "params")).names)
    generate_persons(folder / "data", codes, persons=300, tracts=4)
    return {
        "input": {"parameters": "params", "data": "data", "confidential": False},
        "privacy": {"dataset": "d"},
        "detailed-groups": {},
        "variants": {
            "as configured": {},
            "less of stage 1": {"mechanism": {"stage_1_fraction": "1/20"}},
            "low thresholds": {"mechanism": {"thresholds": {"COUNTY": {"1": [5, 10, 20]}}}},
        },
        "criterion": {"level": "COUNTY:1"},
        "search": {"method": "fixed", "replicates": 1},
    }


def written(folder: Path, tree: Tree) -> Path:
    file = folder / "tune.toml"
    file.write_text(tomli_w.dumps(tree), encoding="utf-8")
    return file


def searched_in(file: Path, run: Path) -> None:
    """Search to the end, as the functions that its flow calls; the input is sound."""
    with tasks_in_threads():
        assert main(["run", "tune", str(file), "--run-dir", str(run)]) == 0


def test_the_better_variant_is_found_and_ready_to_run(tmp_path: Path, capsys) -> None:
    file, run = written(tmp_path, trips(tmp_path)), tmp_path / "run"
    searched_in(file, run)
    said = capsys.readouterr().out
    assert "is the least of all variants" in said
    variants = pd.read_csv(run / "release" / "variants.csv")
    assert variants["variant"].tolist() == ["rich", "poor"]
    assert variants["criterion"].is_monotonic_increasing
    errors = pd.read_csv(run / "release" / "errors.csv")
    values = [
        json.loads(path.read_text())["value"]
        for trial in sorted((run / "trials").iterdir())
        if '"10"' in (trial / "settings.toml").read_text()
        for path in sorted(trial.glob("*.json"))
    ]
    rich = errors[(errors["variant"] == "rich") & (errors["level"] == 6)].iloc[0]
    assert len(values) == 2
    assert rich["mean_absolute_error"] == pytest.approx(sum(values) / 2)
    assert rich["mean_absolute_error, s.e."] == pytest.approx(abs(values[0] - values[1]) / 2)
    report = (run / "report" / "report.html").read_text()
    assert "mean absolute error of trips at 6" in report and "±" in report
    found = run / "release" / "settings.toml"
    assert tomllib.loads(found.read_text())["privacy"]["epsilon"] == "10"
    assert main(["check", "trips", str(found)]) == 0


def test_the_smallest_total_is_found(tmp_path: Path) -> None:
    tree = group_sizes(tmp_path)
    run = tmp_path / "run"
    searched_in(written(tmp_path, tree), run)
    tried = {}
    for trial in (run / "trials").iterdir():
        own = tomllib.loads((trial / "settings.toml").read_text())
        values = [json.loads(path.read_text())["value"] for path in trial.glob("*.json")]
        tried[Fraction(own["privacy"]["rho"])] = sum(values) / len(values)
    found = tomllib.loads((run / "release" / "settings.toml").read_text())
    rho = Fraction(found["privacy"]["rho"])
    grid = loss_grid(Fraction(1, 1000), Fraction(10), Fraction(16))
    below = grid[grid.index(rho) - 1]
    assert rho > grid[0] and tried[rho] <= 300 < tried[below]


@pytest.mark.parametrize(
    ("searched", "write"),
    [(TRIPS, trips), (GROUP_SIZES, group_sizes), (DETAILED_GROUPS, detailed_groups)],
    ids=["trips", "group-sizes", "detailed-groups"],
)
def test_what_is_spent_can_be_scaled(
    searched: RunTrials, write: Callable[[Path], Tree], tmp_path: Path
) -> None:
    settings = TUNE.load(written(tmp_path, write(tmp_path)))
    variant = next(iter(settings.variants.values()))
    own = searched.losses(variant, searched.universe)
    assert searched.losses(
        searched.with_losses(variant, searched.universe, own), searched.universe
    ) == dict(own)
    double = {name: 2 * loss for name, loss in own.items()}
    richer = searched.with_losses(variant, searched.universe, double)
    assert searched.losses(richer, searched.universe) == double
    before, after = (searched.epsilon(one, searched.universe) for one in (variant, richer))
    assert after > before

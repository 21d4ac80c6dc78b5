"""Designs of trips budgets: settings that run, and errors that replicates follow."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.flows.cli import main
from spineflow.tasks.noise.distributions import SeededRandom
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.trips.charge import TripsDesignSettings, optimize_shares
from spineflow.tasks.trips.ingest.ingest import check_input
from spineflow.tasks.trips.plan import make_plan
from spineflow.tasks.trips.tree import TrueTree

from benchmarks.trips_replicates import replicate

TEXT = """\
[input]
trips = "trips.csv"
origin = "home"
destination = "work"
count = "n"
areas = "areas.csv"
confidential = false
[privacy]
dataset = "commuters"
epsilon = "1"
delta = "1e-8"
[mechanism]
name = "tda_l2"
[design]
objective = "smallest_budget"
[design.targets.2]
margin = 20
[design.targets."origin town, destination town"]
margin = 30
"""
N_REGIONS, N_TOWNS = 4, 3


def write(folder: Path, text: str = TEXT) -> Path:
    """Twelve towns of four regions; thousands of trips between any two of them."""
    towns = {f"r{i}t{j}": f"r{i}" for i in range(N_REGIONS) for j in range(N_TOWNS)}
    areas = [("region", f"r{i}", "") for i in range(N_REGIONS)]
    areas += [("town", town, region) for town, region in towns.items()]
    columns = ["level", "area", "parent"]
    pd.DataFrame(areas, columns=columns).to_csv(folder / "areas.csv", index=False)
    random = np.random.default_rng(5)
    rows = [(*pair, random.integers(2000, 9000)) for pair in product(towns, towns)]
    pd.DataFrame(rows, columns=["home", "work", "n"]).to_csv(folder / "trips.csv", index=False)
    file = folder / "settings.toml"
    file.write_text(text)
    return file


def load(file: Path, *overrides: str) -> TripsDesignSettings:
    return load_settings(TripsDesignSettings, file, presets=file.parent, overrides=overrides)


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ("mechanism.name=tda_l2",),
        ("mechanism.name=inftda_full_information", "mechanism.projection=euclidean"),
        ("mechanism.name=tda_l2", "privacy.neighbors=unbounded"),
    ],
    ids=["top-down", "full information", "unbounded"],
)
def test_errors_of_replicates_are_those_designed(tmp_path: Path, overrides) -> None:
    """Where counts are large; noise a tenth wider would be noticed."""
    found, settings = optimize_shares(load(write(tmp_path), *overrides))
    found_input = check_input(settings).accepted()
    truth = TrueTree(found_input.shape.tree, found_input.leaves)
    plan = make_plan(settings, truth.tree)
    assert plan.guarantee.parameter == found.total
    assert tuple(plan.shares.values()) == settings.mechanism.shares
    places = {name: level for level, name in found.errors.names.items()}
    squares = dict.fromkeys(places, 0.0)
    replicates = 250
    for number in range(replicates):
        source = SeededRandom(2, *overrides, str(number))
        released = replicate(plan, truth, settings.mechanism, source)
        for name, level in places.items():
            away = -truth.levels[level].counts_of(np.arange(plan.tree.n_nodes(level)))
            away[released[level].keys] += released[level].counts
            squares[name] += float(np.mean(away.astype(float) ** 2)) / replicates
    for target in found.targets:
        realised = found.errors.margin_factor * math.sqrt(squares[target["level"]])
        assert 0.93 * target["designed"] < realised < 1.07 * target["designed"]
        assert target["designed"] <= target["wanted"]


@pytest.mark.parametrize("objective", ["largest_ratio", "weighted_sum"])
def test_another_split_of_the_same_budget_keeps_what_is_spent(
    tmp_path: Path, objective: str
) -> None:
    text = TEXT.replace("smallest_budget", objective).replace("margin = ", "# ")
    settings = load(
        write(tmp_path, text), 'mechanism.shares="geometric"', "mechanism.share_ratio=2"
    )
    found, chosen = optimize_shares(settings)
    assert chosen.privacy == settings.privacy
    assert found.total == found.before == settings.rho
    assert chosen.mechanism.share_ratio == 1
    worst = max(target["designed"] / target["now"] for target in found.targets)
    assert worst < 1 or objective == "weighted_sum"


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("mechanism.name=stability_histogram", "stability_histogram shares no budget among levels"),
        ("mechanism.name=gaussian_leaves", "gaussian_leaves shares no budget among levels"),
        ("design.targets.9.margin=3", "design 9: name a measured level: 1 (destination region)"),
        ("design.targets.4.margin=3", "a level is given twice"),
        ("privacy.infinite=true", "leaves no noise to design"),
    ],
)
def test_what_cannot_be_designed_is_refused_in_a_sentence(
    tmp_path: Path, capsys, override: str, sentence: str
) -> None:
    file = write(tmp_path)
    assert main(["design", "trips", str(file), "--set", override]) == 2
    errors = capsys.readouterr().err
    assert sentence in errors and errors.count("\n") == 1
    assert not (tmp_path / "settings-designed.toml").exists()

"""Designs of group-sizes budgets: settings that run, and errors that replicates follow."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.flows.cli import main
from spineflow.tasks.group_sizes.estimation.estimate import estimate_plan
from spineflow.tasks.group_sizes.ingest.read import plan_of, public_hierarchy
from spineflow.tasks.group_sizes.measurement import (
    GroupSizesDesignSettings,
    optimize_shares,
    true_vector,
)
from spineflow.tasks.ledger.charging import UnchargedNoise
from spineflow.tasks.noise.distributions import SeededRandom
from spineflow.tasks.products.measurement import with_noise
from spineflow.tasks.runs.settings_files import load_settings

TEXT = """\
[input]
sizes = "sizes.csv"
regions = "regions.csv"
[invariants]
groups = true
[mechanism]
largest_size = 8
name = "hierarchical_dp"
[privacy]
dataset = "households"
rho = "1/50"
[design]
objective = "smallest_budget"
[design.targets.nation]
margin = 12
[design.targets.county]
margin = 25
"""
N_STATES, N_COUNTIES, N_SIZES = 4, 5, 8


def write(folder: Path, text: str = TEXT) -> Path:
    """A nation of 4 states of 5 counties each, with thousands of groups of every size."""
    states = [f"s{i}" for i in range(N_STATES)]
    counties = {f"{s}c{i}": s for s in states for i in range(N_COUNTIES)}
    regions = [("nation", "n", "")]
    regions += [("state", s, "n") for s in states]
    regions += [("county", c, s) for c, s in counties.items()]
    columns = ["level", "region", "parent"]
    pd.DataFrame(regions, columns=columns).to_csv(folder / "regions.csv", index=False)
    random = np.random.default_rng(4)
    rows = [(c, n, random.integers(2000, 9000)) for c in counties for n in range(1, N_SIZES + 1)]
    columns = ["region", "size", "count"]
    pd.DataFrame(rows, columns=columns).to_csv(folder / "sizes.csv", index=False)
    file = folder / "settings.toml"
    file.write_text(text)
    return file


def load(file: Path, *overrides: str) -> GroupSizesDesignSettings:
    return load_settings(GroupSizesDesignSettings, file, presets=file.parent, overrides=overrides)


@pytest.mark.parametrize("mechanism", ["hierarchical_dp", "cumulative_dp", "topdown"])
def test_errors_of_replicates_are_those_designed(tmp_path: Path, mechanism: str) -> None:
    """Where counts are large: of the noisy entries, before and after the design.

    Noise a tenth wider would be noticed.
    """
    file = write(tmp_path)
    found, settings = optimize_shares(load(file, f"mechanism.name={mechanism}"))
    hierarchy = public_hierarchy(settings)
    sizes = pd.read_csv(tmp_path / "sizes.csv")
    finest = sizes["count"].to_numpy().reshape(N_STATES * N_COUNTIES, N_SIZES)
    truth = hierarchy.sum_up(finest)
    plan = plan_of(settings, hierarchy, int(finest.sum()))
    assert {level.level: level.share for level in plan.levels} == settings.mechanism.levels
    replicates = 250
    squares = dict.fromkeys(("nation", "county"), 0.0)
    for replicate in range(replicates):
        draws = UnchargedNoise(SeededRandom(2, mechanism, str(replicate)))
        noisy = [
            with_noise(true_vector(plan.vector, counts), level.noise, draws)
            for level, counts in zip(plan.levels, truth, strict=True)
        ]
        estimates = estimate_plan(plan, hierarchy, noisy)
        for depth, name in ((0, "nation"), (2, "county")):
            entries = [true_vector(plan.vector, own[depth]) for own in (estimates, truth)]
            # The number of all groups is public, which makes the last cumulative count exact.
            away = (entries[0] - entries[1])[:, : N_SIZES - 1].astype(float)
            squares[name] += float((away**2).mean()) / replicates
    for target in found.targets:
        realised = found.errors.margin_factor * math.sqrt(squares[target["level"]])
        # The public total takes an eighth of the nation's variance among sizes.
        low = 0.88 if target["level"] == "nation" and mechanism != "cumulative_dp" else 0.93
        assert low * target["designed"] < realised < 1.07 * target["designed"]
        assert target["designed"] <= target["wanted"]


def test_pure_differential_privacy_has_the_closed_form(tmp_path: Path) -> None:
    """Own measurements alone: the epsilon of each level by its margin, added up."""
    file = write(tmp_path, TEXT.replace('rho = "1/50"', 'epsilon = "1/5"'))
    found, settings = optimize_shares(load(file))
    # Scales 2 / epsilon of sizes, whose margins are log(20) scales.
    needed = {name: 2 * math.log(20) / margin for name, margin in (("nation", 12), ("county", 25))}
    total = sum(needed.values())
    assert float(found.total) == pytest.approx(total / (1 - 1 / 1000), rel=3e-3)
    assert settings.privacy.epsilon == found.total and settings.privacy.rho is None
    assert float(settings.mechanism.levels["nation"]) == pytest.approx(
        needed["nation"] / total, abs=2e-3
    )
    assert "own measurements" in found.certificate


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("privacy.infinite=true", "privacy.infinite leaves no noise to design"),
        ("design.objective=best", "design.objective"),
        ("design.targets.county.margin=-1", "margin must be above 0"),
        ("design.targets.tract.margin=3", "design tract: name a measured level"),
    ],
)
def test_what_cannot_be_designed_is_refused_in_a_sentence(
    tmp_path: Path, capsys, override: str, sentence: str
) -> None:
    file = write(tmp_path)
    overrides = ["--set", override, "--set", "input.confidential=false"]
    assert main(["design", "group-sizes", str(file), *overrides]) == 2
    errors = capsys.readouterr().err
    assert sentence in errors and errors.count("\n") == 1
    assert not (tmp_path / "settings-designed.toml").exists()

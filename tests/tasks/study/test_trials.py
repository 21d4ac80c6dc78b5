"""Trials: their names, their folders, and what is kept of their replicates."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.study.search import new_trial, settings_of
from spineflow.tasks.study.settings import TuneSettings
from spineflow.tasks.study.trials import (
    dataset,
    errors_of,
    mean_errors,
    prepare_trial,
    replicate_path,
    run_replicate,
    values_of,
)
from spineflow.tasks.topdown.settings import TopdownSettings

from tests.flows.in_process import judged_once

HALVES = {"country": Fraction(1, 2), "region": Fraction(1, 2), "section": Fraction(1)}


def test_a_trial_spends_its_losses(town_search: TuneSettings) -> None:
    budget = settings_of(town_search, "as it is", HALVES).budget_of("residents")
    assert budget.total == 2
    assert budget.geolevel_shares == {name: loss / 2 for name, loss in HALVES.items()}


def test_equal_settings_are_one_trial_whatever_the_variant_is_called(
    run: RunDirectory, town_search: TuneSettings
) -> None:
    trials = [
        new_trial(run, town_search, variant, losses)
        for variant, losses in (
            ("as it is", HALVES),
            ("sections first", HALVES),
            ("as it is", HALVES | {"region": Fraction(1)}),
        )
    ]
    first, renamed, other = trials
    assert first == renamed != other
    assert len(first) == 12 and set(first) <= set("0123456789abcdef")
    assert {path.name for path in (run.root / "trials").iterdir()} == {first, other}
    kept = frozen_settings(TopdownSettings, run.root / "trials" / other / "settings.toml")
    assert kept.budget_of("residents").total == Fraction(5, 2)
    assert kept.run.universes == ("residents",)


@pytest.fixture(scope="module")
def searched(
    town_search: TuneSettings, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RunDirectory, str, list[Path]]:
    """A run with a trial of two replicates."""
    run = RunDirectory(tmp_path_factory.mktemp("search"))
    with judged_once():
        town_search.SEARCHED.read_input(town_search.reading, dataset(run))
    losses = {"country": Fraction(1), "region": Fraction(1), "section": Fraction(2)}
    trial = new_trial(run, town_search, "as it is", losses)
    prepare_trial(run, town_search.SEARCHED, trial)
    value_of = town_search.criterion.value_of
    paths = [run_replicate(run, town_search.SEARCHED, value_of, trial, seed) for seed in (1, 2)]
    return run, trial, paths


def test_of_a_replicate_its_figures_alone_are_kept(searched) -> None:
    run, trial, paths = searched
    folder = run.root / "trials" / trial
    assert paths == [folder / "1.json", folder / "2.json"]
    assert {path.name for path in folder.iterdir()} == {
        *("settings.toml", "layout", "1.json", "2.json"),
    }
    for path in paths:
        kept = json.loads(path.read_text())
        rows = {(row["quantity"], row["level"]): row for row in kept["errors"]}
        assert kept["value"] == rows["total", "section"]["mean_absolute_error"]
        # Sections are measured with a standard deviation below 1 and estimated among others.
        assert 0 < kept["value"] < 3


def test_a_replicate_is_drawn_from_its_seed(searched, town_search: TuneSettings) -> None:
    run, trial, paths = searched
    first, second = (path.read_text() for path in paths)
    assert first != second
    paths[0].unlink()
    value_of = town_search.criterion.value_of
    again = run_replicate(run, town_search.SEARCHED, value_of, trial, 1)
    assert again.read_text() == first


def write_replicate(run: RunDirectory, seed: int, value: float, **errors: float | None) -> None:
    path = replicate_path(run, "abc", seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"level": level, "mae": own} for level, own in errors.items()]
    path.write_text(json.dumps({"value": value, "errors": rows}))


def test_means_and_standard_errors_are_over_the_replicates(run: RunDirectory) -> None:
    """Of 1, 2, 6 the mean is 3 and the variance 7; a level counts in those that have it."""
    write_replicate(run, 1, 1.0, tract=1.0, block=10.0)
    write_replicate(run, 2, 2.0, tract=2.0, block=None)
    write_replicate(run, 3, 6.0, tract=6.0)
    mean, error = values_of(run, "abc", (1, 2, 3))
    assert (mean, error) == (3.0, pytest.approx(math.sqrt(7 / 3)))
    means = mean_errors(errors_of(run, "abc", (1, 2, 3)), ["level"], ["mae"])
    assert means["level"].tolist() == ["tract", "block"]
    assert means["mae"].tolist() == [3.0, 10.0]
    assert means["mae, s.e."].iloc[0] == pytest.approx(math.sqrt(7 / 3))
    assert np.isnan(means["mae, s.e."].iloc[1])

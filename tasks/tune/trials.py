"""Trials: some settings under some losses, replicated; everything that is finished is kept.

<run>/dataset/                        the input, read once
<run>/trials/<trial>/settings.toml    topdown settings of the trial
                     layout/          spines and constraints
                     <seed>.json      value of the criterion and errors of a replicate
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from spineflow.tasks.noise.mechanisms import DISCRETE_LAPLACE
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.files import replacing
from spineflow.tasks.runs.settings_files import dump_settings, frozen_settings
from spineflow.tasks.topdown.checks.accuracy.errors import ALL_ANSWERS, ALL_SIZES
from spineflow.tasks.topdown.checks.accuracy.figures import compute_figures
from spineflow.tasks.topdown.estimation.replicate import (
    estimate,
    lay_out,
    measure,
    read_dataset,
    with_seed,
)
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.tune.criterion import value_of
from spineflow.tasks.tune.settings import TuneSettings

REPORTED = ("mean_absolute_error", "predicted_standard_deviation")


@dataclass(frozen=True)
class Trial:
    """Settings to be tried, and what they are called.

    losses : loss of each geolevel, root first; rho, or epsilon under the discrete Laplace.
    """

    name: str
    variant: str
    losses: Mapping[str, Fraction]

    @property
    def total(self) -> Fraction:
        """Loss of the whole."""
        return sum(self.losses.values(), Fraction(0))


@dataclass(frozen=True)
class Outcome:
    """What a trial's replicates came to: mean of the criterion's value and its standard error."""

    trial: Trial
    mean: float
    standard_error: float
    met: bool


def with_losses(
    settings: TopdownSettings, universe: str, losses: Mapping[str, Fraction]
) -> TopdownSettings:
    """Topdown settings that spend these losses on a universe's geolevels."""
    total = sum(losses.values(), Fraction(0))
    budget = settings.budget[universe]
    is_pure = budget.mechanism == DISCRETE_LAPLACE
    spent = budget.model_copy(
        update={
            "rho": None if is_pure else total,
            "epsilon": total if is_pure else None,
            "geolevels": {geolevel: loss / total for geolevel, loss in losses.items()},
        }
    )
    return settings.model_copy(update={"budget": {**settings.budget, universe: spent}})


def new_trial(
    run: RunDirectory, settings: TuneSettings, variant: str, losses: Mapping[str, Fraction]
) -> Trial:
    """A trial of a variant under some losses, with its settings written to its folder.

    Only the universe of the criterion is measured. The same settings are the same trial.
    """
    universe = settings.criterion.universe
    tried = with_losses(settings.variants[variant], universe, losses)
    tried = tried.model_copy(
        update={"run": tried.run.model_copy(update={"universes": (universe,)})}
    )
    text = dump_settings(tried)
    trial = Trial(hashlib.sha256(text.encode()).hexdigest()[:12], variant, losses)
    with replacing(_folder(run, trial.name) / "settings.toml") as part:
        part.write_text(text, encoding="utf-8")
    return trial


def read_input(run: RunDirectory, settings: TuneSettings) -> None:
    """Read the input of all trials, unless an earlier attempt has."""
    dataset = _dataset(run)
    if dataset.state_totals.exists():
        return
    shutil.rmtree(dataset.root, ignore_errors=True)
    variant = next(iter(settings.variants.values()))
    universes = variant.run.model_copy(update={"universes": (settings.criterion.universe,)})
    read_dataset(variant.model_copy(update={"run": universes}), dataset.root)


def prepare_trial(run: RunDirectory, name: str) -> None:
    """Build the spine and the constraints of a trial, unless an earlier attempt has."""
    folder = _folder(run, name)
    layout, unfinished = folder / "layout", folder / "layout-unfinished"
    if layout.exists():
        return
    shutil.rmtree(unfinished, ignore_errors=True)
    lay_out(_dataset(run), _settings_of(run, name), unfinished)
    unfinished.rename(layout)


def run_replicate(run: RunDirectory, settings: TuneSettings, name: str, seed: int) -> Path:
    """Measure and estimate one replicate of a prepared trial; keeps its figures alone."""
    path = replicate_path(run, name, seed)
    seeded = with_seed(_settings_of(run, name), seed)
    layout = RunDirectory(_folder(run, name) / "layout")
    with TemporaryDirectory(dir=_folder(run, name)) as temporary:
        made = Path(temporary)
        measured = measure(layout, seeded, made / "measured")
        estimated = estimate(measured, seeded, made / "estimated")
        figures = compute_figures(estimated, seeded)
    errors = figures.errors
    errors = errors[(errors["answer"] == ALL_ANSWERS) & (errors["size_class"] == ALL_SIZES)]
    kept = errors[["quantity", "level", "on_spine", *REPORTED]]
    found = {
        "value": value_of(figures, settings.criterion),
        "errors": json.loads(kept.to_json(orient="records")),
    }
    with replacing(path) as part:
        part.write_text(json.dumps(found) + "\n", encoding="utf-8")
    return path


def replicate_path(run: RunDirectory, name: str, seed: int) -> Path:
    """Where a replicate's figures are kept."""
    return _folder(run, name) / f"{seed}.json"


def values_of(run: RunDirectory, name: str, seeds: Sequence[int]) -> tuple[float, float]:
    """Mean and standard error of the criterion's value; the error is NaN for one replicate."""
    values = pd.Series([_read(run, name, seed)["value"] for seed in seeds])
    return float(values.mean()), float(values.std() / math.sqrt(len(values)))


def errors_of(run: RunDirectory, name: str, seeds: Sequence[int]) -> pd.DataFrame:
    """Errors averaged over replicates, by quantity and level, in the order of the report."""
    frames = [pd.DataFrame(_read(run, name, seed)["errors"]) for seed in seeds]
    keys = ["quantity", "level", "on_spine"]
    return pd.concat(frames).groupby(keys, sort=False)[list(REPORTED)].mean().reset_index()


def _read(run: RunDirectory, name: str, seed: int) -> dict:
    return json.loads(replicate_path(run, name, seed).read_text(encoding="utf-8"))


def _settings_of(run: RunDirectory, name: str) -> TopdownSettings:
    return frozen_settings(TopdownSettings, _folder(run, name) / "settings.toml")


def _folder(run: RunDirectory, name: str) -> Path:
    return run.root / "trials" / name


def _dataset(run: RunDirectory) -> RunDirectory:
    return RunDirectory(run.root / "dataset")

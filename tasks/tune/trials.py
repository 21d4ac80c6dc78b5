"""Trials: some settings under some losses, replicated; everything that is finished is kept.

<run>/dataset/                        the input, read once
<run>/trials/<trial>/settings.toml    settings of the trial
                     layout/          spines and constraints
                     <seed>.json      value of the criterion and errors of a replicate
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from ..products.searched import Losses, SearchedProduct
from ..runs.directory import RunDirectory
from ..runs.files import write_text
from ..runs.names import below
from ..runs.settings import ProductSettings
from ..runs.settings_files import dump_settings, frozen_settings
from .criterion import value_of
from .settings import TuneSettings

KEYS = ["quantity", "level"]


@dataclass(frozen=True)
class Trial:
    """Settings to be tried, and what they are called.

    losses : loss of each geolevel, root first.
    weights : what the shares of queries are multiplied with, 1 where left out.
    """

    name: str
    variant: str
    losses: Losses
    weights: Mapping[str, Fraction] = field(default_factory=dict)

    @property
    def total(self) -> Fraction:
        """Loss of the whole."""
        return sum(self.losses.values(), Fraction(0))


@dataclass(frozen=True)
class TrialOutcome:
    """What a trial's replicates came to: mean of the criterion's value and its standard error."""

    trial: Trial
    mean: float
    standard_error: float
    met: bool


def settings_of(settings: TuneSettings, trial: Trial) -> ProductSettings:
    """What a trial tries: the choice of its name under its losses and weights."""
    searched, universe = settings.SEARCHED, settings.criterion.universe
    tried = searched.with_losses(settings.choices[trial.variant], universe, trial.losses)
    return searched.with_weights(tried, universe, trial.weights) if trial.weights else tried


def new_trial(
    run: RunDirectory,
    settings: TuneSettings,
    variant: str,
    losses: Losses,
    weights: Mapping[str, Fraction],
) -> Trial:
    """A trial of a choice under some losses and weights, its settings written to its folder.

    Only the universe of the criterion is measured. The same settings are the same trial.
    """
    universe = settings.criterion.universe
    tried = settings_of(settings, Trial("", variant, losses, weights))
    text = dump_settings(settings.SEARCHED.measuring_only(tried, universe))
    name = hashlib.sha256(text.encode()).hexdigest()[:12]
    trial = Trial(name, variant, losses, weights)
    write_text(_folder(run, trial.name) / "settings.toml", text)
    return trial


def read_input(run: RunDirectory, settings: TuneSettings) -> None:
    """Read the input of all trials, unless an earlier attempt has."""
    searched, variant = settings.SEARCHED, next(iter(settings.variants.values()))
    only = searched.measuring_only(variant, settings.criterion.universe)
    searched.read_input(only, _dataset(run))


def prepare_trial(run: RunDirectory, searched: SearchedProduct, name: str) -> None:
    """Make what the replicates of a trial share, unless an earlier attempt has."""
    folder = _folder(run, name)
    layout, unfinished = folder / "layout", folder / "layout-unfinished"
    if layout.exists():
        return
    shutil.rmtree(unfinished, ignore_errors=True)
    searched.lay_out(_dataset(run), _settings_of(run, searched, name), unfinished)
    unfinished.rename(layout)


def run_replicate(run: RunDirectory, settings: TuneSettings, name: str, seed: int) -> Path:
    """Measure and estimate one replicate of a prepared trial; keeps its figures alone."""
    path = replicate_path(run, name, seed)
    searched, folder = settings.SEARCHED, _folder(run, name)
    own = _settings_of(run, searched, name)
    with TemporaryDirectory(dir=folder) as temporary:
        figures = searched.replicate(folder / "layout", own, seed, Path(temporary))
    found = {
        "value": value_of(figures, settings.criterion),
        "errors": json.loads(figures.reported.to_json(orient="records")),
    }
    write_text(path, json.dumps(found) + "\n")
    return path


def replicate_path(run: RunDirectory, name: str, seed: int) -> Path:
    """Where a replicate's figures are kept."""
    return _folder(run, name) / f"{seed}.json"


def values_of(run: RunDirectory, name: str, seeds: Sequence[int]) -> tuple[float, float]:
    """Mean and standard error of the criterion's value; the error is NaN for one replicate."""
    values = pd.Series([_read(run, name, seed)["value"] for seed in seeds])
    return float(values.mean()), float(values.std() / math.sqrt(len(values)))


def errors_of(
    run: RunDirectory, name: str, seeds: Sequence[int]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Errors averaged over replicates, and standard errors of these means, NaN for one replicate.

    Rows by quantity and level, in the order of the report. A row that only some replicates have
    counts where it is.
    """
    together = pd.concat([pd.DataFrame(_read(run, name, seed)["errors"]) for seed in seeds])
    statistics = [column for column in together.columns if column not in KEYS]
    together[statistics] = together[statistics].astype(float)
    by_key = together.groupby(KEYS, sort=False)[statistics]
    return by_key.mean().reset_index(), by_key.sem().reset_index()


def _read(run: RunDirectory, name: str, seed: int) -> dict:
    return json.loads(replicate_path(run, name, seed).read_text(encoding="utf-8"))


def _settings_of(run: RunDirectory, searched: SearchedProduct, name: str) -> ProductSettings:
    return frozen_settings(searched.settings, _folder(run, name) / "settings.toml")


def _folder(run: RunDirectory, name: str) -> Path:
    return below(run.root / "trials", name)


def _dataset(run: RunDirectory) -> Path:
    return run.root / "dataset"

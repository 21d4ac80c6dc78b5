"""Trials: settings whose releases are replicated; everything that is finished is kept.

<run>/dataset/                        the input, read once
<run>/trials/<trial>/settings.toml    settings of the trial
                     layout/          spines and constraints
                     <seed>.json      value of the criterion and errors of a replicate

A study uses a product only through its `SearchedProduct`.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from ..products.product import product
from ..runs.directory import RunDirectory
from ..runs.files import write_text
from ..runs.names import below
from ..runs.settings import ProductSettings
from ..runs.settings_files import dump_settings, frozen_settings

Losses = Mapping[str, Fraction]
"""Loss of every geolevel, root first; rho, or epsilon under the discrete Laplace."""
ALL = "all"
"""Name of all answers of a quantity, and of areas of all sizes, taken together."""
KEYS = ["universe", "quantity", "level"]
"""Columns that identify the errors of a replicate; the others are statistics."""


def _no_criterion() -> float:
    raise KeyError("redistricting")


@dataclass(frozen=True, eq=False)
class Figures:
    """The accuracy of one replicate.

    errors : universe, quantity, answer, level, size_class, then statistics of the errors.
    redistricting : the share of targeted entities in which the largest group's share is within 5
        points; raises InputRefused if the data have nothing that it could be computed from.
    """

    errors: pd.DataFrame
    redistricting: Callable[[], float] = _no_criterion

    @property
    def reported(self) -> pd.DataFrame:
        """`KEYS` and statistics, of all answers and sizes of areas together."""
        errors = self.errors
        errors = errors[(errors["answer"] == ALL) & (errors["size_class"] == ALL)]
        return errors.drop(columns=["answer", "size_class", "on_spine"], errors="ignore")


class SearchedProduct(ABC):
    """A product whose runs can be replicated; the `settings` of its methods are of its model.

    By default a product has one universe; its settings promise nothing
    but their total; and every replicate is a whole run, which reads its input.

    Its settings have a field `input`, and `privacy` and `run` as every product's do. An instance is
    passed to the workers by its module and name, so it is made at the top of a module.
    """

    settings: type[ProductSettings]
    """Model of the product's settings."""
    methods: tuple[str, ...]
    """The methods of a search that have a meaning for the product."""

    @abstractmethod
    def universes(self, settings: Any) -> tuple[str, ...]:
        """The universes that a run of these settings measures."""

    def attributes(self, settings: Any, universe: str) -> tuple[str, ...]:
        """The attributes counted in a universe; variants of one search must share them. None where
        variants may count different attributes, and are compared by the criterion alone."""
        return ()

    @abstractmethod
    def losses(self, settings: Any, universe: str) -> Losses:
        """Losses of a universe's geolevels as the settings have them."""

    @abstractmethod
    def with_losses(self, settings: Any, universe: str, losses: Losses) -> Any:
        """Settings that spend these losses on a universe's geolevels."""

    def apply_guarantee(self, settings: Any, changed: Any, universe: str) -> Any:
        """Settings whose split has been changed, with the total that keeps the guarantee of the
        first; as they are where settings promise nothing but their total."""
        return changed

    def largest_total(self, settings: Any, universe: str) -> Fraction | None:
        """The largest total at which the settings' split keeps their guarantee; None where they
        promise nothing but their total."""
        return None

    def variations(
        self, settings: Any, universe: str, estimators: Sequence[str], strategies: Sequence[str]
    ) -> Mapping[str, Any]:
        """Settings under each estimator and query strategy that a search names, by the suffix of
        the variant's name; raises ValueError for unknown names."""
        if estimators or strategies:
            raise ValueError("tries estimators or strategies, which belong to topdown")
        return {"": settings}

    def measuring_only(self, settings: Any, universe: str) -> Any:
        """Settings of a run that measures one universe alone."""
        return settings

    def epsilon(self, settings: Any, universe: str) -> float | str:
        """Cost of a universe, as epsilon at the settings' delta; words where it has no bound. By
        default the largest cost in a run."""
        costs = product(settings.PRODUCT).costs(settings).values()
        return max(cost.epsilons["tight"] for cost in costs)

    def read_input(self, settings: Any, folder: Path) -> None:
        """Read and check the input tables, which all trials share, unless the folder has them.

        Files of an interrupted attempt are removed.
        """
        folder.mkdir(parents=True, exist_ok=True)

    def lay_out(self, dataset: Path, settings: Any, folder: Path) -> None:
        """Make in a new folder the files shared by a trial's replicates, from the input that was
        read."""
        folder.mkdir(parents=True)

    @abstractmethod
    def replicate(self, layout: Path, settings: Any, seed: int, folder: Path) -> Figures:
        """Measure, estimate and judge one replicate, in an empty folder that is then removed."""


def write_trial(run: RunDirectory, settings: ProductSettings) -> str:
    """Write settings to the folder of their trial, and return its name; the same settings are the
    same trial."""
    text = dump_settings(settings)
    name = hashlib.sha256(text.encode()).hexdigest()[:12]
    write_text(_folder(run, name) / "settings.toml", text)
    return name


def dataset(run: RunDirectory) -> Path:
    """The input, as it was read."""
    return run.root / "dataset"


def prepare_trial(run: RunDirectory, searched: SearchedProduct, name: str) -> None:
    """Make the files shared by the replicates of a trial, unless an earlier attempt has."""
    layout = layout_of(run, name)
    unfinished = layout.with_name("layout-unfinished")
    if layout.exists():
        return
    shutil.rmtree(unfinished, ignore_errors=True)
    searched.lay_out(dataset(run), _settings_of(run, searched, name), unfinished)
    unfinished.rename(layout)


def run_replicate(
    run: RunDirectory,
    searched: SearchedProduct,
    value_of: Callable[[Figures], float],
    name: str,
    seed: int,
) -> Path:
    """Measure and estimate one replicate of a prepared trial; keeps its figures alone."""
    path, own = replicate_path(run, name, seed), _settings_of(run, searched, name)
    with TemporaryDirectory(dir=_folder(run, name)) as temporary:
        figures = searched.replicate(layout_of(run, name), own, seed, Path(temporary))
    found = {
        "value": value_of(figures),
        "errors": json.loads(figures.reported.to_json(orient="records", double_precision=15)),
    }
    write_text(path, json.dumps(found) + "\n")
    return path


def layout_of(run: RunDirectory, name: str) -> Path:
    """Folder of the files shared by the replicates of a trial."""
    return _folder(run, name) / "layout"


def replicate_path(run: RunDirectory, name: str, seed: int) -> Path:
    """Where a replicate's figures are kept."""
    return _folder(run, name) / f"{seed}.json"


def values_of(run: RunDirectory, name: str, seeds: Sequence[int]) -> tuple[float, float]:
    """Mean and standard error of the criterion's value; the error is NaN for one replicate."""
    values = pd.Series([_read(run, name, seed)["value"] for seed in seeds])
    return float(values.mean()), float(values.std() / math.sqrt(len(values)))


def errors_of(run: RunDirectory, name: str, seeds: Sequence[int]) -> pd.DataFrame:
    """The errors of all replicates of a trial: `KEYS`, statistics, and seed."""
    found = [pd.DataFrame(_read(run, name, seed)["errors"]).assign(seed=seed) for seed in seeds]
    together = pd.concat(found, ignore_index=True)
    statistics = [column for column in together.columns if column not in KEYS]
    return together.astype(dict.fromkeys(statistics, float))


def mean_errors(
    errors: pd.DataFrame,
    keys: Sequence[str],
    statistics: Sequence[str],
    spread: tuple[str, str] = ("sem", "s.e."),
) -> pd.DataFrame:
    """Statistics averaged over replicates by the keys, with their standard errors under the names
    with a suffix, NaN for one replicate, or the statistic named by `spread`.

    Rows that only some replicates have count where they are.
    """
    by_key = errors.groupby(list(keys), sort=False)[list(statistics)]
    return by_key.mean().join(by_key.agg(spread[0]).add_suffix(f", {spread[1]}")).reset_index()


def _read(run: RunDirectory, name: str, seed: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(replicate_path(run, name, seed).read_text(encoding="utf-8"))
    return found


def _settings_of(run: RunDirectory, searched: SearchedProduct, name: str) -> ProductSettings:
    return frozen_settings(searched.settings, _folder(run, name) / "settings.toml")


def _folder(run: RunDirectory, name: str) -> Path:
    return below(run.root / "trials", name)

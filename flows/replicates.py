"""Replicates on data that may be disclosed, and the settings of searches that compare their errors.

topdown has its own trials, which lay out a spine once for all replicates. The other products are
run from their input to their checked release, in the process of the task, as a command would. The
settings of a search have the table of the product whose settings are compared:

[input]                          # as for the product; confidential = false
[privacy]
dataset = "commuters-2011"
rho = "1/50"
[trips]                          # the rest of its settings file; the table's name is the product's
[variants.uniform]
[variants.optimised]
mechanism = { shares = "optimised" }
[criterion]
level = "8"
[search]
method = "fixed"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pandas as pd
from pydantic import create_model

from ..tasks.detailed_groups.ingest.ingest import parameters_of
from ..tasks.detailed_groups.release.accuracy import with_all_tables
from ..tasks.detailed_groups.settings import DetailedGroupsSettings
from ..tasks.group_sizes.settings import GroupSizesSettings
from ..tasks.products.comparison import ComparedRun
from ..tasks.products.product import Product, product
from ..tasks.runs.directory import RunDirectory, start_run
from ..tasks.runs.errors import InputRefused
from ..tasks.runs.names import FileName
from ..tasks.runs.settings import ProductSettings
from ..tasks.runs.settings_files import dump_settings
from ..tasks.study.settings import Criterion, TuneSettings
from ..tasks.study.trials import ALL, Figures, SearchedProduct, mean_errors
from ..tasks.topdown.trials import TRIALS
from ..tasks.trips.settings import TripsSettings
from .registry import DECIDED_ON_THE_WAY
from .running import call_stages


def mean_errors_of_runs(asked: Product, settings: Any, n: int, folder: Path) -> pd.DataFrame:
    """Mean of every figure over n runs of settings, and its standard deviation; the runs are made
    in a folder and removed. Raises InputRefused for a product without figures."""
    found = []
    for seed in range(1, n + 1):
        with TemporaryDirectory(dir=folder) as temporary:
            found.append(run_under_seed(asked, settings, seed, Path(temporary) / "run").errors)
    assert asked.accuracy.figures is not None, "others are refused"
    keys, figures = list(asked.accuracy.figures.keys), list(asked.accuracy.figures.words)
    together = pd.concat([one[[*keys, *figures]] for one in found])
    together = together.astype(dict.fromkeys(figures, float))
    return mean_errors(together, keys, figures, ("std", "s.d."))


def run_under_seed(asked: Product, settings: Any, seed: int, folder: Path) -> ComparedRun:
    """Run settings in a folder, in this process and under a seed, and return it with its errors.

    Raises InputRefused for a product whose steps follow no order or that has no errors.
    """
    if asked.name in DECIDED_ON_THE_WAY or asked.accuracy.figures is None:
        raise InputRefused(f"There are no replicates of {asked.name}.")
    seeded = settings.with_section("privacy", seed=seed)
    run = RunDirectory(folder)
    run.root.mkdir()
    start_run(run, product=asked.name, settings_text=dump_settings(seeded), stamp=seeded.stamp)
    call_stages(run, seeded)
    return asked.compared(run, seeded)


@dataclass(frozen=True)
class RunTrials(SearchedProduct):
    """Trials of a product that is run whole, on data that are not confidential.

    universe : subject of the errors, in a word.
    own_losses, spending : the losses of settings, and settings that spend such losses.
    placed : quantity and level of every row of a run's errors, and rows over several of these.
    """

    settings: type[ProductSettings]
    universe: str
    own_losses: Callable[[Any], dict[str, Fraction]]
    spending: Callable[[Any, Mapping[str, Fraction]], Any]
    placed: Callable[[pd.DataFrame], pd.DataFrame]
    methods: tuple[str, ...] = ("fixed", "total")

    def universes(self, settings: ProductSettings) -> tuple[str, ...]:
        """The only one."""
        return (self.universe,)

    def losses(self, settings: ProductSettings, universe: str) -> dict[str, Fraction]:
        """Losses by level; raises InputRefused where noise is switched off."""
        if settings.privacy.infinite:
            raise InputRefused("A search is for noise; remove privacy.infinite.")
        return self.own_losses(settings)

    def with_losses(
        self, settings: ProductSettings, universe: str, losses: Mapping[str, Fraction]
    ) -> ProductSettings:
        """The settings with other losses."""
        return self.spending(settings, losses)

    def replicate(
        self, layout: Path, settings: ProductSettings, seed: int, folder: Path
    ) -> Figures:
        """Run the settings under a seed, and place the errors of the release."""
        asked = product(settings.PRODUCT)
        table = self.placed(run_under_seed(asked, settings, seed, folder / "run").errors)
        words = () if asked.accuracy.figures is None else asked.accuracy.figures.words
        figures = [name for name in words if name in table]
        placed = table[["quantity", "level", *figures]].assign(
            universe=self.universe, answer=ALL, size_class=ALL
        )
        return Figures(placed)


def _loss_of_all_levels(settings: Any) -> dict[str, Fraction]:
    """rho or epsilon, whichever is given."""
    privacy = settings.privacy
    return {"all levels": privacy.rho if privacy.epsilon is None else privacy.epsilon}


def _spending_on_all_levels(settings: Any, losses: Mapping[str, Fraction]) -> Any:
    name = "rho" if settings.privacy.epsilon is None else "epsilon"
    return settings.with_section("privacy", **{name: sum(losses.values(), Fraction(0))})


def _budgets(settings: DetailedGroupsSettings) -> dict[str, Fraction]:
    """Budget of every measured level of population groups, such as TRACT:2."""
    (budgets,) = parameters_of(settings).budgets.values()
    return {f"{region_type}:{level}": budget for (region_type, level), budget in budgets.items()}


def _with_budgets(
    settings: DetailedGroupsSettings, losses: Mapping[str, Fraction]
) -> DetailedGroupsSettings:
    budgets = {name: dict(levels) for name, levels in settings.mechanism.budgets.items()}
    for place, loss in losses.items():
        region_type, _, level = place.partition(":")
        budgets.setdefault(region_type, {})[level] = loss
    # A search moves budgets away from the values set by wanted margins.
    return settings.with_section("mechanism", budgets=budgets, margins=None)


GROUP_SIZES = RunTrials(
    GroupSizesSettings,
    "groups",
    _loss_of_all_levels,
    _spending_on_all_levels,
    lambda errors: errors.assign(quantity="groups"),
)
TRIPS = RunTrials(
    TripsSettings,
    "trips",
    _loss_of_all_levels,
    _spending_on_all_levels,
    lambda errors: errors.assign(quantity="trips", level=errors["level"].astype(str)),
)
DETAILED_GROUPS = RunTrials(
    DetailedGroupsSettings,
    "persons",
    _budgets,
    _with_budgets,
    lambda errors: with_all_tables(errors).assign(
        level=lambda placed: placed["region_type"] + ":" + placed["level"].astype(str),
        quantity=lambda placed: placed["table"],
    ),
)


class AnyTuneSettings(TuneSettings):
    """All settings of a search for any product: a file's tables choose the model."""

    @classmethod
    def chosen_by(cls, tree: Mapping[str, Any]) -> type[AnyTuneSettings]:
        """The model of the product whose table there is, or that a run has frozen."""
        named = [name for name in MODELS if name in tree]
        asked = tree.get("product", next(iter(named), ""))
        return MODELS.get(asked, MODELS[TRIALS.settings.PRODUCT])


class LevelCriterion(Criterion):
    """A figure of a level's errors, as comparisons of runs show them."""

    kind: Literal["error"] = "error"
    level: str


class TripsCriterion(LevelCriterion):
    """A figure of the errors of trips."""

    universe: Literal["trips"] = "trips"
    quantity: Literal["trips"] = "trips"


class GroupSizesCriterion(LevelCriterion):
    """A figure of the errors of group sizes."""

    universe: Literal["groups"] = "groups"
    quantity: Literal["groups"] = "groups"
    statistic: str = "absolute_error"


class DetailedGroupsCriterion(LevelCriterion):
    """A figure of the errors of detailed groups; a level is a region type and an iteration level,
    such as TRACT:2."""

    quantity: str = "all"
    """A table, or all of them together."""


def _model(searched: SearchedProduct, criterion: type[Criterion]) -> type[AnyTuneSettings]:
    """The settings of a search of a product."""
    own = searched.settings.model_fields
    fields: dict[str, Any] = {
        "input": (own["input"].annotation, ...),
        "privacy": (own["privacy"].annotation, ...),
        "criterion": (criterion, Criterion() if criterion is Criterion else ...),
        "variants": (dict[FileName, searched.settings], ...),  # type: ignore[name-defined]
    }
    made = create_model(f"{searched.settings.__name__}Tune", __base__=AnyTuneSettings, **fields)
    made.SEARCHED = searched
    return made


MODELS: dict[str, type[AnyTuneSettings]] = {
    searched.settings.PRODUCT: _model(searched, criterion)
    for searched, criterion in (
        (TRIALS, Criterion),
        (TRIPS, TripsCriterion),
        (GROUP_SIZES, GroupSizesCriterion),
        (DETAILED_GROUPS, DetailedGroupsCriterion),
    )
}
"""The models by the product that is compared."""

"""What topdown offers to a search for budgets: how its runs are tried, replicated and judged."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
from spineflow.tasks.noise.mechanisms import DISCRETE_LAPLACE
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.topdown.checks.accuracy.errors import ALL_ANSWERS, ALL_SIZES
from spineflow.tasks.topdown.checks.accuracy.figures import AccuracyFigures, compute_figures
from spineflow.tasks.topdown.checks.replicate import (
    estimate,
    lay_out,
    measure,
    read_dataset,
    with_seed,
)
from spineflow.tasks.topdown.paths import state_totals_file
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.workload.costs import budget_report

REPORTED = ("mean_absolute_error", "predicted_standard_deviation")
REDISTRICTING = "redistricting"


@dataclass(frozen=True, eq=False)
class TrialFigures:
    """The accuracy figures of one replicate."""

    accuracy: AccuracyFigures

    @property
    def errors(self) -> pd.DataFrame:
        """Statistics of the errors by universe, quantity, answer, level and size class."""
        return self.accuracy.errors

    @property
    def reported(self) -> pd.DataFrame:
        """Errors of each quantity and level, of all answers and sizes of areas together."""
        errors = self.errors
        errors = errors[(errors["answer"] == ALL_ANSWERS) & (errors["size_class"] == ALL_SIZES)]
        return errors[["quantity", "level", "on_spine", *REPORTED]]

    def named(self, name: str) -> float:
        """`redistricting`: the share of the off-spine entities of 500 people or more, over all
        their levels, in which the largest group's share is within 5 points.

        Raises InputRefused if there are no such entities, KeyError for another name.
        """
        if name != REDISTRICTING:
            raise KeyError(name)
        rows = self.accuracy.criterion
        if rows.empty:
            raise InputRefused(
                "The schema has no race and ethnicity; choose a criterion of kind error."
            )
        whole = rows["population"].iloc[0]
        rows = rows[~rows["on_spine"] & (rows["population"] == whole)]
        entities = rows["entities"].to_numpy()
        if not entities.sum():
            raise InputRefused(
                "The data have no off-spine entity of 500 people or more, which the redistricting "
                "criterion is about; choose a criterion of kind error."
            )
        return float(np.average(rows["share_within"].fillna(0).to_numpy(), weights=entities))


@dataclass(frozen=True)
class TopdownTrials:
    """Trials of topdown settings, on data that are not confidential."""

    settings: type[TopdownSettings] = TopdownSettings

    def universes(self, settings: TopdownSettings) -> tuple[str, ...]:
        """The universes that the settings measure; none of a declared census, whose quantities a
        search does not know.
        """
        return () if settings.is_declared else tuple(settings.run.universes)

    def attributes(self, settings: TopdownSettings, universe: str) -> tuple[str, ...]:
        """The attributes of a universe's schema."""
        return settings.schema_of(universe).attributes

    def losses(self, settings: TopdownSettings, universe: str) -> dict[str, Fraction]:
        """Total times share of every geolevel, root first."""
        budget = settings.budget_of(universe)
        return {name: budget.total * share for name, share in budget.geolevel_shares.items()}

    def with_losses(
        self, settings: TopdownSettings, universe: str, losses: Mapping[str, Fraction]
    ) -> TopdownSettings:
        """The settings with these losses: rho, or epsilon under the discrete Laplace."""
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

    def measuring_only(self, settings: TopdownSettings, universe: str) -> TopdownSettings:
        """The settings with one universe."""
        run = settings.run.model_copy(update={"universes": (universe,)})
        return settings.model_copy(update={"run": run})

    def epsilon(self, settings: TopdownSettings, universe: str) -> float | str:
        """Tight epsilon of a universe's budget at its delta."""
        report = budget_report(settings.budget_of(universe), settings.schema_of(universe))
        return report["epsilon"]["tight"]

    def read_input(self, settings: TopdownSettings, folder: Path) -> None:
        """Read the census tables and count their histograms; state totals are written last."""
        if state_totals_file(RunDirectory(folder)).exists():
            return
        shutil.rmtree(folder, ignore_errors=True)
        read_dataset(settings, folder)

    def lay_out(self, dataset: Path, settings: TopdownSettings, folder: Path) -> None:
        """Build the spine and the constraints."""
        lay_out(RunDirectory(dataset), settings, folder)

    def replicate(
        self, layout: Path, settings: TopdownSettings, seed: int, folder: Path
    ) -> TrialFigures:
        """Measure and estimate under a seed, and compare with the truth."""
        seeded = with_seed(settings, seed)
        measured = measure(RunDirectory(layout), seeded, folder / "measured")
        estimated = estimate(measured, seeded, folder / "estimated")
        return TrialFigures(compute_figures(estimated, seeded))


TRIALS = TopdownTrials()

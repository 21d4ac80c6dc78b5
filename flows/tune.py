"""The tune flow: search for the smallest budget that meets a criterion, on data that may be known.

    read the input -> for each trial: spine and constraints -> replicates -> criterion
                   -> settings of the best variant -> report

A trial is some settings under some losses. Trials are asked for one after the other, as the search
needs them; the replicates of one run side by side. What is finished is kept in the run directory,
so a search that was interrupted asks the same trials again and finds their replicates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
from prefect import flow
from rich.table import Table

from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.errors import CheckFailed
from ..tasks.runs.settings_files import frozen_settings
from ..tasks.tune.criterion import described, is_better, is_met
from ..tasks.tune.grid import loss_grid, search_geolevels, search_weights, smallest
from ..tasks.tune.report import (
    ERRORS,
    VARIANTS,
    release_settings,
    write_tuning_report,
)
from ..tasks.tune.searched import Losses
from ..tasks.tune.settings import Criterion, TuneSettings
from ..tasks.tune.steps import prepare, read_tuning_data, replicate
from ..tasks.tune.trials import TrialOutcome, new_trial, values_of
from .console import page
from .entry import settings_flow
from .form import TuneForm
from .order import finish
from .product import Product
from .registry import product
from .results import show_result
from .running import entered, stages_run_name
from .tune_settings import AnyTuneSettings

tune = settings_flow(
    __name__,
    "tune",
    lambda: PRODUCT,
    TuneForm(),
    (
        "Searches for the smallest budget that meets a criterion, on data that may be "
        "disclosed. It releases no data, but settings that are ready to run."
    ),
)


@flow(name="tune-stages", flow_run_name=stages_run_name, persist_result=False)
def tune_stages(run_directory: str) -> str:
    """The whole search; finished replicates are reused. Returns the release's folder."""
    with entered(run_directory, AnyTuneSettings) as (run, settings):
        finish(run, {"ingest": [read_tuning_data.submit(str(run.root), type(settings))]})
        search = _Search(run, settings)
        found = {
            name: outcome
            for name in settings.choices
            if (outcome := search.best_of(name)) is not None
        }
        if found:
            release_settings(run, settings, found)
        write_tuning_report(run, settings, search.outcomes, found)
        if not found:
            raise CheckFailed(
                f"No variant meets the criterion that {described(settings.criterion)}; raise "
                f"search.highest or relax the criterion. The trials are in {run.report}."
            )
        show_result(run, settings)
    return str(run.release)


@dataclass
class _Search:
    """Trials of a run so far, and how further ones are asked for."""

    run: RunDirectory
    settings: TuneSettings
    outcomes: list[TrialOutcome] = field(default_factory=list)

    def best_of(self, variant: str) -> TrialOutcome | None:
        """The trial of a variant with the smallest losses that meet the criterion."""
        search, universe = self.settings.search, self.settings.criterion.universe
        searched, choice = self.settings.SEARCHED, self.settings.choices[variant]
        own = searched.losses(choice, universe)
        weights: Mapping[str, Fraction] = {}
        whole = sum(own.values(), Fraction(0))

        def at(total: Fraction) -> dict[str, Fraction]:
            return {geolevel: total * loss / whole for geolevel, loss in own.items()}

        def meets(losses: Losses) -> bool:
            return self.tried(variant, losses, weights).met

        if search.method == "fixed":
            outcome = self.tried(variant, own)
            return outcome if outcome.met else None
        if search.method == "queries":
            weights = search_weights(
                searched.queries(choice, universe),
                search.step,
                search.rounds,
                lambda new, old: is_better(
                    self.tried(variant, own, new).mean,
                    self.tried(variant, own, old).mean,
                    self.settings.criterion,
                ),
            )
        grid = loss_grid(search.lowest, search.highest, search.step)
        losses: Losses | None
        if search.method in ("total", "queries"):
            found = smallest(grid, lambda total: meets(at(total)))
            losses = None if found is None else at(grid[found])
        else:
            losses = search_geolevels(tuple(own), grid, search.step, meets)
        return None if losses is None else self.tried(variant, losses, weights)

    def tried(
        self, variant: str, losses: Losses, weights: Mapping[str, Fraction] | None = None
    ) -> TrialOutcome:
        """Run the replicates of a trial, unless this search has asked for it before."""
        changed = {name: weight for name, weight in (weights or {}).items() if weight != 1}
        trial = new_trial(self.run, self.settings, variant, losses, changed)
        known = [outcome for outcome in self.outcomes if outcome.trial.name == trial.name]
        if known:
            return known[0]
        root, model = str(self.run.root), type(self.settings)
        seeds = range(1, self.settings.search.replicates + 1)
        prepared = prepare.submit(root, model, trial.name)
        replicates = [
            replicate.submit(root, model, trial.name, seed, wait_for=[prepared]) for seed in seeds
        ]
        finish(self.run, {f"trial {trial.name}": [prepared, *replicates]})
        mean, error = values_of(self.run, trial.name, seeds)
        outcome = TrialOutcome(trial, mean, error, is_met(mean, self.settings.criterion))
        self.outcomes.append(outcome)
        return outcome


def check(settings: TuneSettings) -> None:
    """Check the input by the rules of the product's flow, once for all variants."""
    product(settings.product).check(next(iter(settings.variants.values())))


def refuse(settings: TuneSettings) -> None:
    """The further checks of every variant's settings, which must spend something."""
    for choice in settings.choices.values():
        settings.SEARCHED.losses(choice, settings.criterion.universe)
        product(settings.product).refuse(choice)


def costs(settings: TuneSettings) -> dict[str, Any]:
    """What each variant would cost as it is set, by name."""
    searched = product(settings.product)
    return {name: searched.costs(choice) for name, choice in settings.choices.items()}


def print_costs(settings: TuneSettings) -> None:
    """The same as tables."""
    for name, choice in settings.choices.items():
        print(f"{name}:")
        product(settings.product).print_costs(choice)


def finished(run: RunDirectory, settings: TuneSettings) -> None:
    """What was found, its errors by level, and where it is."""
    trials = [stage for stage in run.read_manifest()["stages"] if stage.startswith("trial ")]
    searched, universe = settings.SEARCHED, settings.criterion.universe
    file = run.release / "settings.toml"
    found = frozen_settings(searched.settings, file)
    losses = searched.losses(found, universe)
    total = sum(losses.values(), Fraction(0))
    print(f"{len(trials)} trials of {settings.search.replicates} replicates")
    print(f"the criterion: {described(settings.criterion)}")
    print(f"found: a loss of {float(total):.4g} for {universe}")
    for geolevel, loss in losses.items():
        print(f"  {geolevel}: {float(loss):.4g} ({float(loss / total):.1%})")
    # A search of an earlier version has its settings alone.
    if (run.release / VARIANTS).exists():
        _print_variants(pd.read_csv(run.release / VARIANTS))
        _print_errors(pd.read_csv(run.release / ERRORS, dtype={"level": str}), settings.criterion)
    print(f"settings, with [input] and [privacy] to be replaced by yours: {file}")
    print(f"report: {run.report}")


def _print_variants(variants: pd.DataFrame) -> None:
    """What was found for each variant, the best one first; its settings are released."""
    table = Table("variant, best first", "loss", "criterion", "s.e.")
    for row in variants.itertuples():
        figures = (row.total, row.criterion, row.standard_error)
        table.add_row(str(row.variant), *(_number(figure) for figure in figures))
    page().print(table)


def _print_errors(errors: pd.DataFrame, criterion: Criterion) -> None:
    """The criterion's statistic of its quantity at every level, with standard errors."""
    statistic = criterion.statistic
    names = list(dict.fromkeys(errors["variant"]))
    errors = errors[errors["quantity"] == criterion.quantity]
    title = f"{statistic.replace('_', ' ')} of {criterion.quantity}"
    table = Table("level", *names, title=title)
    for level, own in errors.groupby("level", sort=False):
        by_name = own.set_index("variant").reindex(names)
        means, spread = by_name[statistic], by_name[f"{statistic}, s.e."]
        cells = (
            f"{_number(mean)} ± {_number(error)}" for mean, error in zip(means, spread, strict=True)
        )
        table.add_row(str(level), *cells)
    page().print(table)


def _number(value: float) -> str:
    return "–" if value != value else f"{value:,.4g}"


def report(run: RunDirectory, settings: TuneSettings) -> Path:
    """The report of a finished search, which is written with its last trial."""
    return run.report


PRODUCT: Product = Product(
    settings=AnyTuneSettings,
    flow=tune,
    stages=tune_stages,
    check=check,
    costs=costs,
    print_costs=print_costs,
    finished=finished,
    report=report,
    refuse=refuse,
)

"""The tune flow: search for the smallest budget that meets a criterion, on disclosable data.

    read the input -> for each trial: spine and constraints -> replicates -> criterion
                   -> settings of the best variant -> report

A trial is one choice of settings under some losses. The search requests trials one after the other;
the replicates of one run are concurrent. Finished replicates are kept in the run directory,
so an interrupted search requests the same trials again and finds them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import pandas as pd

from ..tasks.pages.document import Block
from ..tasks.products.comparison import errors_table
from ..tasks.products.product import Product, Rules, Words
from ..tasks.products.registry import check_input_of, fits_of, product
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.errors import CheckFailed
from ..tasks.runs.settings import ProductSettings
from ..tasks.runs.settings_files import frozen_settings
from ..tasks.study.report import (
    ERRORS,
    VARIANTS,
    release_settings,
    side_by_side,
    write_tuning_report,
)
from ..tasks.study.search import (
    TrialOutcome,
    bound_grid,
    loss_grid,
    new_trial,
    scale_losses,
    search_geolevels,
    search_weights,
    smallest,
)
from ..tasks.study.settings import TuneSettings
from ..tasks.study.steps import prepare, read_tuning_data, replicate
from ..tasks.study.trials import Losses, values_of
from .entry import flow_of_product
from .replicates import AnyTuneSettings
from .stages import finish, stage


def stages(run: RunDirectory, settings: AnyTuneSettings) -> None:
    """Submit the stages of a search, trial by trial; finished replicates are reused."""
    with stage("ingest"):
        read_tuning_data.submit(str(run.root))
    finish()
    search = _Search(run, settings)
    found = {
        name: outcome for name in settings.choices if (outcome := search.best_of(name)) is not None
    }
    if found:
        release_settings(run, settings, found)
    write_tuning_report(run, settings, [*search.outcomes.values()], found)
    if not found:
        raise CheckFailed(
            f"No variant meets the criterion that {settings.criterion.in_words}; raise "
            "search.highest, and an epsilon that the search keeps to, or relax the criterion. "
            f"The trials are in {run.report}."
        )


@dataclass
class _Search:
    """Trials of a run so far, and requests for further ones."""

    run: RunDirectory
    settings: TuneSettings
    outcomes: dict[str, TrialOutcome] = field(default_factory=dict)

    def best_of(self, variant: str) -> TrialOutcome | None:
        """The trial of a variant with the smallest losses that meet the criterion."""
        search, universe = self.settings.search, self.settings.criterion.universe
        searched, choice = self.settings.SEARCHED, self.settings.choices[variant]
        own = searched.losses(choice, universe)
        weights: Mapping[str, Fraction] = {}

        def meets(losses: Losses) -> bool:
            return self.tried(variant, losses, weights).met

        def gains(new: Mapping[str, Fraction], old: Mapping[str, Fraction]) -> bool:
            first, second = (self.under_guarantee(variant, one).mean for one in (new, old))
            return self.settings.criterion.is_better(first, second)

        if search.method == "fixed":
            outcome = self.tried(variant, own)
            return outcome if outcome.met else None
        if search.method == "queries":
            queries = searched.queries(choice, universe)
            weights = search_weights(queries, search.step, search.rounds, gains)
        grid = loss_grid(search.lowest, search.highest, search.step)
        losses: Losses | None
        if search.method in ("total", "queries"):
            weighed = searched.with_weights(choice, universe, weights)
            grid = bound_grid(grid, searched.largest_total(weighed, universe))
            found = smallest(grid, lambda total: meets(scale_losses(own, total)))
            losses = None if found is None else scale_losses(own, grid[found])
        else:
            losses = search_geolevels(tuple(own), grid, search.step, meets)
            if losses is not None and not self.keeps_guarantee(choice, losses):
                return None
        return None if losses is None else self.tried(variant, losses, weights)

    def under_guarantee(self, variant: str, weights: Mapping[str, Fraction]) -> TrialOutcome:
        """The trial of a variant with weighed queries, at the loss that keeps its guarantee."""
        searched, universe = self.settings.SEARCHED, self.settings.criterion.universe
        choice = self.settings.choices[variant]
        weighed = searched.with_weights(choice, universe, weights)
        losses = searched.losses(searched.guaranteeing(choice, weighed, universe), universe)
        return self.tried(variant, losses, weights)

    def keeps_guarantee(self, choice: ProductSettings, losses: Losses) -> bool:
        """Whether the losses from the root down, geolevel by geolevel, are within the budget."""
        searched, universe = self.settings.SEARCHED, self.settings.criterion.universe
        most = searched.largest_total(searched.with_losses(choice, universe, losses), universe)
        return most is None or sum(losses.values(), Fraction(0)) <= most

    def tried(
        self, variant: str, losses: Losses, weights: Mapping[str, Fraction] | None = None
    ) -> TrialOutcome:
        """Run the replicates of a trial, unless this search has requested it before."""
        changed = {name: weight for name, weight in (weights or {}).items() if weight != 1}
        trial = new_trial(self.run, self.settings, variant, losses, changed)
        if trial.name in self.outcomes:
            return self.outcomes[trial.name]
        seeds = range(1, self.settings.search.replicates + 1)
        root = str(self.run.root)
        with stage("trial", f"trial {trial.name}"):
            prepared = prepare.submit(root, trial.name)
            for seed in seeds:
                replicate.submit(root, trial.name, seed, wait_for=[prepared])
        finish()
        mean, error = values_of(self.run, trial.name, seeds)
        met = self.settings.criterion.is_met(mean)
        self.outcomes[trial.name] = TrialOutcome(trial, mean, error, met)
        return self.outcomes[trial.name]


def refuse(settings: TuneSettings) -> None:
    """The further checks of every variant's settings, which must spend something."""
    for choice in settings.choices.values():
        settings.SEARCHED.losses(choice, settings.criterion.universe)
        product(choice.PRODUCT).refuse(choice)


def _first(settings: TuneSettings) -> ProductSettings:
    """The settings of a variant; all read the same input."""
    return next(iter(settings.variants.values()))


def summary(run: RunDirectory, settings: TuneSettings) -> Iterator[Block]:
    """The result, its errors by level, and its place."""
    trials = [stage for stage in run.read_manifest()["stages"] if stage.startswith("trial ")]
    searched, universe = settings.SEARCHED, settings.criterion.universe
    file = run.release / "settings.toml"
    found = frozen_settings(searched.settings, file)
    losses = searched.losses(found, universe)
    total = sum(losses.values(), Fraction(0))
    yield f"{len(trials)} trials of {settings.search.replicates} replicates"
    yield f"the criterion: {settings.criterion.in_words}"
    yield f"found: a loss of {float(total):.4g} for {universe}"
    for geolevel, loss in losses.items():
        yield f"  {geolevel}: {float(loss):.4g} ({float(loss / total):.1%})"
    # A search of an earlier version has its settings alone.
    if (run.release / VARIANTS).exists():
        headers = {"variant": "variant, best first", "total": "loss", "standard_error": "s.e."}
        variants = pd.read_csv(run.release / VARIANTS)
        yield errors_table(variants, {name: headers.get(name, name) for name in variants})
        statistic, quantity = settings.criterion.statistic, settings.criterion.quantity
        errors = pd.read_csv(run.release / ERRORS, dtype={"level": str})
        by_variant = errors[errors["quantity"] == quantity].groupby("variant", sort=False)
        yield f"{statistic.replace('_', ' ')} of {quantity}"
        yield side_by_side({str(name): own for name, own in by_variant}, statistic)
    yield f"settings, with [input] and [privacy] to be replaced by yours: {file}"
    yield f"report: {run.report}"


PRODUCT: Product = Product(
    AnyTuneSettings,
    rules=Rules(
        lambda settings: check_input_of(_first(settings)),
        lambda settings, accepted: fits_of(_first(settings), accepted),
        refuse,
    ),
    words=Words(summary=summary),
)

tune = flow_of_product(
    PRODUCT,
    stages,
    "Searches for the smallest budget that meets a criterion, on data that may be "
    "disclosed. It releases no data, but settings that are ready to run.",
)

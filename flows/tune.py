"""The tune flow: search for the smallest budget that meets a criterion, on disclosable data.

    read the input -> for each trial: spine and constraints -> replicates -> criterion
                   -> settings of the best variant -> report

A trial is one choice of settings under some losses. The search requests trials one after the other;
the replicates of one run are concurrent. Finished replicates are kept in the run directory,
so an interrupted search requests the same trials again and finds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

import pandas as pd

from ..tasks.pages.document import Block
from ..tasks.products.comparison import errors_table
from ..tasks.products.product import Product, Words, product, rules_of
from ..tasks.runs.directory import RunDirectory
from ..tasks.runs.errors import CheckFailed
from ..tasks.runs.settings import ProductSettings
from ..tasks.runs.settings_files import frozen_settings
from ..tasks.study.report import (
    ERRORS,
    VARIANTS,
    rank_trials,
    release_settings,
    side_by_side,
    write_tuning_report,
)
from ..tasks.study.search import (
    Trial,
    bound_grid,
    loss_grid,
    new_trial,
    scale_losses,
    search_geolevels,
    smallest,
)
from ..tasks.study.settings import TuneSettings
from ..tasks.study.steps import prepare, read_tuning_data, replicate
from ..tasks.study.trials import Losses, values_of
from .replicates import AnyTuneSettings
from .running import flow_of_product
from .stages import finish, stage


def stages(run: RunDirectory, settings: AnyTuneSettings) -> None:
    """Submit the stages of a search, trial by trial; finished replicates are reused."""
    with stage("ingest"):
        read_tuning_data.submit(str(run.root))
    finish()
    search = _Search(run, settings)
    best = (search.best_of(variant) for variant in settings.choices)
    found = rank_trials(settings.criterion, filter(None, best))
    if found:
        release_settings(run, settings, found)
    write_tuning_report(run, settings, [*search.trials.values()], found)
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
    trials: dict[str, Trial] = field(default_factory=dict)

    def best_of(self, variant: str) -> Trial | None:
        """The trial of a variant with the smallest losses that meet the criterion."""
        search, universe = self.settings.search, self.settings.criterion.universe
        searched, choice = self.settings.SEARCHED, self.settings.choices[variant]
        own = searched.losses(choice, universe)
        losses: Losses | None = own

        def meets(losses: Losses) -> bool:
            return self.tried(variant, losses).met

        grid = loss_grid(search.lowest, search.highest, search.step)
        if search.method == "fixed":
            losses = own if meets(own) else None
        elif search.method == "total":
            grid = bound_grid(grid, searched.largest_total(choice, universe))
            found = smallest(grid, lambda total: meets(scale_losses(own, total)))
            losses = None if found is None else scale_losses(own, grid[found])
        else:
            losses = search_geolevels(tuple(own), grid, search.step, meets)
            if losses is not None:
                spent = searched.with_losses(choice, universe, losses)
                most = searched.largest_total(spent, universe)
                # A guarantee limits the losses of all geolevels together.
                if most is not None and sum(losses.values(), Fraction(0)) > most:
                    losses = None
        return None if losses is None else self.tried(variant, losses)

    def tried(self, variant: str, losses: Losses) -> Trial:
        """Run the replicates of a trial, unless this search has requested it before."""
        name = new_trial(self.run, self.settings, variant, losses)
        if name not in self.trials:
            seeds = range(1, self.settings.search.replicates + 1)
            root = str(self.run.root)
            with stage("trial", f"trial {name}"):
                prepared = prepare.submit(root, name)
                for seed in seeds:
                    replicate.submit(root, name, seed, wait_for=[prepared])
            finish()
            mean, error = values_of(self.run, name, seeds)
            met = self.settings.criterion.is_met(mean)
            self.trials[name] = Trial(name, variant, losses, mean, error, met)
        return replace(self.trials[name], variant=variant)


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
    rules=replace(rules_of(_first), refuse=refuse),
    words=Words(summary=summary),
)

tune = flow_of_product(
    PRODUCT,
    stages,
    "Searches for the smallest budget that meets a criterion, on data that may be "
    "disclosed. It releases no data, but settings that are ready to run.",
)

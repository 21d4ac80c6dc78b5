"""Comparison of the designed split with others: releases by every estimator, on public data.

<run>/design/designs.json              the designs, with their certificates
             trials.json               by allocation and estimator, the name of the trial

The allocations are the one that the settings have (`as set`), the designed one, and one that gives
all geolevels, and all queries of a geolevel, the same share. Under each seed, estimators get the
same measurements of an allocation, but for `block_by_block`, which measures blocks alone. Errors
are computed for the areas that every spine shares, never for a spine's own geounits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd

from ...pages.document import NONE, Details, Document, FrontPage, Link, Section, Table
from ...pages.template import bars
from ...products.acceptance import publish_release
from ...products.reports import provenance, stage_seconds, stages_section, time_panel
from ...runs.directory import RunDirectory
from ...runs.files import NOT_PRIVATE, write_page, write_text
from ...study.trials import KEYS, errors_of, write_trial
from ..checks.replicate import with_estimator
from ..settings import TopdownSettings
from .design import Design, designed_settings, designs_json, designs_of, settings_text
from .settings import ComparisonSettings

AS_SET, DESIGNED, UNIFORM = "as set", "designed", "uniform"
ALLOCATIONS = (AS_SET, DESIGNED, UNIFORM)
DESIGNED_FOR = "full information"
"""The estimator whose variances a design minimises."""
STATISTICS = ("mean_absolute_error", "root_mean_square_error", "bias")
CHOICE = ("allocation", "estimator")
TIDY, SETTINGS = "comparison.csv", "settings.toml"
STAMP = f"{NOT_PRIVATE}: compared on data that may be disclosed; for choosing settings only"


def allocations(
    settings: ComparisonSettings, designs: Mapping[str, Design]
) -> dict[str, TopdownSettings]:
    """Settings under each allocation, by its name; rho is the design's, or the one that
    keeps the exact guarantee of the design with another split.
    """
    designed = designed_settings(settings, designs)
    as_set = uniform = designed
    for universe in designed.budget:
        before = settings.budget_of(universe)
        shares, asked = dict(before.geolevel_shares), before.query_shares
        queries = {name: dict(of_geolevel) for name, of_geolevel in asked.items()}
        as_set = as_set.with_budget(universe, geolevels=shares, queries=queries)
        same = dict.fromkeys(shares, Fraction(1, len(shares)))
        even = dict.fromkeys(before.queries, Fraction(1, len(before.queries)))
        evenly = dict.fromkeys(shares, even)
        uniform = uniform.with_budget(universe, geolevels=same, queries=evenly)
    for universe in designed.run.universes:
        as_set, uniform = (designed.guaranteeing(own, universe) for own in (as_set, uniform))
    return {AS_SET: as_set, DESIGNED: designed, UNIFORM: uniform}


def designs_file(run: RunDirectory) -> Path:
    """The designs and their certificates."""
    return run.root / "design" / "designs.json"


def trials_file(run: RunDirectory) -> Path:
    """The trials; written after all settings."""
    return run.root / "design" / "trials.json"


def trials_of(run: RunDirectory) -> Mapping[str, Mapping[str, str]]:
    """The name of the trial of every estimator, by allocation."""
    found: Mapping[str, Mapping[str, str]] = json.loads(trials_file(run).read_text("utf-8"))
    return found


def write_designs(run: RunDirectory, settings: ComparisonSettings) -> None:
    """Design every universe that has a section for it, and write the settings of all trials.

    Reads the geography and declared invariants alone.
    """
    designs = designs_of(settings)
    trials = {
        name: {own: write_trial(run, with_estimator(made, own)) for own in settings.estimators}
        for name, made in allocations(settings, designs).items()
    }
    write_text(designs_file(run), designs_json(designs))
    write_text(designs_file(run).with_name(SETTINGS), settings_text(settings, designs))
    write_text(trials_file(run), json.dumps(trials, indent=2))


def compare_allocations(replicates: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds, and their differences from the settings' own allocation.

    One row for each of `KEYS`, `CHOICE` and statistic: mean, standard_error; difference,
    difference_standard_error from the same estimator `as set`, seed by seed.

    Example: errors of 3 and 5 under two seeds, and of 2 and 4 as set, differ by 1 with a standard
    error of 0.
    """
    long = replicates.melt(
        id_vars=[*KEYS, *CHOICE, "seed"], value_vars=list(STATISTICS), var_name="statistic"
    )
    base = long[long["allocation"] == AS_SET].drop(columns="allocation")
    paired = [*KEYS, "estimator", "statistic", "seed"]
    both = long.merge(base, on=paired, how="left", suffixes=("", "_as_set"))
    both["difference"] = both["value"] - both["value_as_set"]
    groups = both.groupby([*KEYS, *CHOICE, "statistic"], sort=False)
    found = groups.agg(
        mean=("value", "mean"),
        standard_error=("value", "sem"),
        difference=("difference", "mean"),
        difference_standard_error=("difference", "sem"),
    ).reset_index()
    found.loc[found["allocation"] == AS_SET, ["difference", "difference_standard_error"]] = np.nan
    return found


def release(run: RunDirectory, settings: ComparisonSettings) -> None:
    """Write the designed settings and the tidy file of the comparison to the release."""
    seeds = range(1, settings.comparison.replicates + 1)
    errors = [
        errors_of(run, trial, seeds).assign(allocation=allocation, estimator=estimator)
        for allocation, trials in trials_of(run).items()
        for estimator, trial in trials.items()
    ]
    tidy = compare_allocations(pd.concat(errors))
    write_text(run.unchecked_release / TIDY, tidy.to_csv(index=False))
    text = designs_file(run).with_name(SETTINGS).read_text(encoding="utf-8")
    write_text(run.unchecked_release / SETTINGS, text)
    publish_release(run)


def write_report(run: RunDirectory, settings: ComparisonSettings) -> Path:
    """Write the page of a finished comparison."""
    tidy = pd.read_csv(run.release / TIDY)
    tidy["estimator"] = tidy["estimator"].map(settings.in_words)
    designs = json.loads(designs_file(run).read_text(encoding="utf-8"))
    certain = "; ".join(f"{name}: {design['certificate']}" for name, design in designs.items())
    n = settings.comparison.replicates
    document = Document(
        f"Budgets compared on {settings.privacy.dataset}",
        (
            f"The settings' own split of the budget, the designed one and an even one, at the same "
            f"{_equal_quantity(settings)}, over {n} releases of each by every estimator. Proven "
            f"of the design: {certain}.",
            "Errors are of the areas that every spine shares, with standard errors over the "
            "releases. Differences are from the settings' own split, seed by seed; one of more "
            "than two standard errors is hardly chance.",
        ),
        (
            *(_section(str(name), own) for name, own in tidy.groupby("universe", sort=False)),
            stages_section(run),
        ),
        STAMP,
        FrontPage(
            f"{len(ALLOCATIONS)} splits and {len(settings.estimators)} estimators were "
            f"compared over {n} replicates.",
            True,
            "",
            (*_panels(tidy), time_panel(stage_seconds(run))),
            (
                Link("Designed settings", f"../release/{SETTINGS}"),
                Link("Errors", f"../release/{TIDY}"),
            ),
        ),
        provenance(run),
    )
    return write_page(run.report, document)


def _equal_quantity(settings: ComparisonSettings) -> str:
    """The quantity that is equal for all allocations."""
    held = [settings.budget[name].guarantee is not None for name in settings.run.universes]
    return "exact epsilon" if all(held) else "rho or exact epsilon" if any(held) else "rho"


def _panels(tidy: pd.DataFrame) -> list[Section]:
    """Errors of the total by level and allocation, of the estimator that designs are made for."""
    found = []
    for universe, own in tidy.groupby("universe", sort=False):
        rows = own[(own["statistic"] == STATISTICS[1]) & (own["quantity"] == _total(own))]
        compared_by = [str(name) for name in rows["estimator"].unique()]
        estimator = DESIGNED_FOR if DESIGNED_FOR in compared_by else compared_by[0]
        rows = rows[rows["estimator"] == estimator]
        wide = rows.pivot(index="level", columns="allocation", values="mean")
        wide = wide.loc[list(dict.fromkeys(rows["level"])), list(ALLOCATIONS)]
        wide = wide[(wide > 0).any(axis=1)]
        if len(wide):
            title = f"{_total(own)} of {universe}"
            errors = {name: wide[name].to_dict() for name in ALLOCATIONS}
            about = f"Root mean square error, {estimator}."
            found.append(Section(title, (bars(title, about, errors, "error"),)))
    return found


def _total(own: pd.DataFrame) -> str:
    """The quantity that the page begins with."""
    return str(own["quantity"].iloc[0])


def _section(universe: str, own: pd.DataFrame) -> Section:
    """A table for each quantity and statistic: means, and differences from the present settings."""
    blocks = []
    for quantity, rows in own.groupby("quantity", sort=False):
        tables = []
        for statistic, part in rows.groupby("statistic", sort=False):
            differences = (f"{name} less {AS_SET}" for name in ALLOCATIONS[1:])
            words = str(statistic).replace("_", " ")
            headers = (words, "estimator", *ALLOCATIONS, *differences)
            tables.append(Table(headers, tuple(_rows(part))))
        blocks.append(Details(str(quantity), tuple(tables)))
    return Section(universe, tuple(blocks))


def _rows(part: pd.DataFrame) -> list[tuple[str, ...]]:
    found = []
    for (level, estimator), own in part.groupby(["level", "estimator"], sort=False):
        by_name = own.set_index("allocation")
        means = (
            _format_value(by_name["mean"][name], by_name["standard_error"][name])
            for name in ALLOCATIONS
        )
        differences = (
            _format_value(by_name["difference"][name], by_name["difference_standard_error"][name])
            for name in ALLOCATIONS[1:]
        )
        found.append((str(level), str(estimator), *means, *differences))
    return found


def _format_value(mean: float, error: float) -> str:
    return NONE if mean != mean else f"{mean:,.4g} ± {error:.2g}"

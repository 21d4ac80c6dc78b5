"""What the front page of a topdown report says: the guarantee, the budget, how accurate it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pandas as pd

from ...noise.mechanisms import noise_deviation
from ...pages.document import Block, Figure, Link, Section
from ...pages.figures import bar_chart
from ...products.reports import Overview
from ...products.statement import in_one_sentence
from ...runs.directory import RunDirectory
from ..settings import TopdownSettings
from ..workload.costs import budget_report
from .certificate import facts_of
from .first_counts import first_counts

ACCURACY_PAGE = "accuracy.html"
"""The public report of accuracy, beside the run's report where the input is public."""

TOTAL = "total"


def overview(
    run: RunDirectory, settings: TopdownSettings, accuracy: pd.DataFrame | None
) -> Overview:
    """The front page; `accuracy` is given for inputs that are not confidential."""
    what = f"TopDown release of the dataset {settings.privacy.dataset}"
    if not settings.draws_noise:
        what = (
            f"Release from the published noisy measurements of the dataset "
            f"{settings.privacy.dataset}"
        )
    shown = _implied(settings) if accuracy is None else _errors(accuracy)
    links = []
    if accuracy is not None and (run.report.parent / ACCURACY_PAGE).exists():
        links.append(Link("Accuracy in full", ACCURACY_PAGE))
    return Overview(
        f"{what}: {' and '.join(settings.run.universes)}, on the "
        f"{settings.geography.spine} spine, by the estimator "
        f"{settings.in_words(settings.run.estimator)}",
        in_one_sentence(facts_of(settings).statement),
        (_budget(settings), shown),
        tuple(links),
        first_counts(run, settings),
    )


def _budget(settings: TopdownSettings) -> Section:
    """Percent of each universe's loss by geolevel."""
    blocks: list[Block] = []
    for universe in settings.run.universes:
        budget = settings.budget_of(universe)
        levels = [name.replace("_", " ") for name in budget.geolevel_shares]
        percent = [100 * float(share) for share in budget.geolevel_shares.values()]
        svg = bar_chart(
            levels, {universe: percent}, title=f"Budget of {universe}", value_label="% of the loss"
        )
        loss = "epsilon" if budget.is_pure else "rho"
        of = "no noise" if budget.infinite else f"{loss} {float(budget.total):.4g}"
        blocks.append(Figure(svg, f"{universe}: {of}, by geolevel, before geounits were bypassed."))
    return Section("The budget", tuple(blocks))


def _errors(accuracy: pd.DataFrame) -> Section:
    """Mean absolute errors of one query of each universe by geolevel."""
    blocks: list[Block] = []
    for universe, errors in accuracy.groupby("universe", sort=False):
        by_query = dict(iter(errors.groupby("query", sort=False)))
        # A total that is declared exact has nothing to tell.
        told = [query for query, rows in by_query.items() if rows["mean_absolute_error"].any()]
        query = next(iter(told), next(iter(by_query)))
        rows = by_query[query]
        svg = bar_chart(
            [name.replace("_", " ") for name in rows["geolevel"]],
            {query: rows["mean_absolute_error"].tolist()},
            title=f"Error of {universe}",
            value_label="mean absolute error of an answer",
        )
        blocks.append(Figure(svg, f"{universe}: error of {query} at each geolevel of the spine."))
    return Section("How accurate it is", tuple(blocks))


def _implied(settings: TopdownSettings) -> Section:
    """Standard deviations of the noise in one query of each universe by geolevel."""
    return Section("What the budget implies", tuple(_noise(settings)))


def _noise(settings: TopdownSettings) -> Iterator[Block]:
    for universe in settings.run.universes:
        report = budget_report(settings.budget_of(universe), settings.schema_of(universe))
        asked = Counter(row["query"] for row in report["queries"])
        query = TOTAL if TOTAL in asked else asked.most_common(1)[0][0]
        rows = {r["geolevel"]: noise_deviation(r) for r in report["queries"] if r["query"] == query}
        svg = bar_chart(
            [name.replace("_", " ") for name in rows],
            {query: list(rows.values())},
            title=f"Noise of {universe}",
            value_label="standard deviation of the noise",
        )
        yield Figure(svg, f"{universe}: noise in a measured answer of {query} at each geolevel.")

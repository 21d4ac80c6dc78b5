"""The public report of a topdown run: its settings, its solution and its checks.

Accuracy against the input is shown for inputs that are not confidential, and only for those.

The front page shows the guarantee, the budget, the accuracy, and the first released counts, of the
spine's root; the part on margins shows the release's position within its intervals, and the causes
of its deviations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from ...census.queries import TOTAL, marginal_query
from ...census.schema import Schema
from ...dissemination.fitness import fitness
from ...pages.document import NONE, Block, Cell, Document, Link, Table
from ...pages.numbers import format_delta, format_epsilon, format_rho
from ...pages.template import bars
from ...products.certificate import epsilons_table, parts_table
from ...products.plan import Plan
from ...products.reports import MOST_COUNTS, report_document
from ...runs.directory import RunDirectory
from ..settings import TopdownSettings
from ..spine.files import spine_of
from ..spine.shards import released_counts
from ..workload.costs import cost_of
from .certificate import exact_figures, losses_of
from .map_section import map_section
from .margins import CLASSES, MarginSummary, read_margin_summary, read_refusal
from .spine_section import spine_section
from .tabulations.run import MARGIN_LEVEL


def report(
    run: RunDirectory,
    settings: TopdownSettings,
    plan: Plan,
    accuracy: pd.DataFrame | None,
    truth: Mapping[str, pd.Series] | None = None,
) -> Document:
    """The report as a document; see the module's docstring."""
    links = []
    if accuracy is not None and (run.report.parent / ACCURACY_PAGE).exists():
        links.append(Link("Accuracy in full", ACCURACY_PAGE))
    universes = settings.run.universes
    losses = losses_of(run, settings)
    exact = {universe: own.epsilons for universe, own in losses.items()}
    return report_document(
        run,
        settings,
        plan,
        "topdown/templates/report.md.j2",
        counts=tuple(of_root(run, settings, universe) for universe in universes),
        links=links,
        fitness=fitness(run.release),
        budget=list(_budget(settings)),
        implied=list(_implied_deviations(settings)),
        errors=None if accuracy is None else list(_errors(accuracy)),
        drawn=map_section(run, settings, truth),
        released=_released_table(run, settings),
        figures=exact_figures(run, settings, losses),
        epsilons=epsilons_table(plan.statement.losses, exact),
        parts=parts_table([cost_of(settings, universe) for universe in losses], exact),
        accuracy=None if accuracy is None else list(_accuracy(accuracy)),
        noise=list(_noise(settings)),
        margins=margins_of(run, settings),
        spines=[spine_section(run, settings, universe) for universe in universes],
        solves=solves_table(run),
    )


def margins_of(run: RunDirectory, settings: TopdownSettings) -> dict[str, Any]:
    """By universe, the position of a release within the intervals of its measurements and causes of
    deviations, or the reason why requested margins are missing."""
    found = {}
    for universe in settings.run.universes:
        summary, why = read_margin_summary(run, universe), read_refusal(run, universe)
        if summary is not None:
            found[universe] = {
                "level": MARGIN_LEVEL,
                "agreement": _agreement(summary),
                "classes": None if summary.classes.empty else _classes(summary),
            }
        elif why is not None:
            found[universe] = {"why": why}
    return found


def _released_table(run: RunDirectory, settings: TopdownSettings) -> Table:
    """The rows of every universe, and their cost."""
    rows = []
    for universe in settings.run.universes:
        cost, file = cost_of(settings, universe), run.release / f"mdf_{universe}.parquet"
        rows.append(
            {
                "universe": universe,
                "rows": pq.read_metadata(file).num_rows,
                "epsilon": format_epsilon(cost.epsilons["tight"]),
                "delta": format_delta(cost.delta),
                "rho": format_rho(cost.plan.bounded_rho),
            }
        )
    return Table.of(rows, "epsilon")


def _accuracy(accuracy: pd.DataFrame) -> Iterator[Table]:
    """Mean absolute errors of every universe's answers by geolevel."""
    for universe, errors in accuracy.groupby("universe", sort=False):
        answers = zip(errors["geolevel"], errors["query"], strict=True)
        figures = dict(zip(answers, errors["mean_absolute_error"].tolist(), strict=True))
        yield _pivot_geolevels(str(universe), figures)


def _noise(settings: TopdownSettings) -> Iterator[Table]:
    """Standard deviations of the noise in every universe's answers by geolevel."""
    for universe in settings.run.universes:
        figures = {
            (own.place, own.query): float(f"{own.deviation:.3g}")
            for own in cost_of(settings, universe).plan.measures
        }
        yield _pivot_geolevels(universe, figures)


def _pivot_geolevels(universe: str, figures: Mapping[tuple[str, str], float]) -> Table:
    """Queries by geolevels, of figures by geolevel and query; a dash for missing ones."""
    geolevels = list(dict.fromkeys(geolevel for geolevel, _ in figures))
    rows = tuple(
        (query, *(figures.get((level, query), NONE) for level in geolevels))
        for query in dict.fromkeys(query for _, query in figures)
    )
    return Table((f"{universe}: query", *geolevels), rows)


def solves_table(run: RunDirectory) -> Table:
    """Outcomes of the least-squares and rounding problems, by geolevel, stage and solver."""
    files = sorted((run.root / "solves").glob("*/*/*.parquet"))
    names = {path.parts[-3]: spine_of(run, path.parts[-3]).level_names for path in files}
    solves = pd.concat(
        [
            pq.ParquetFile(path)
            .read()
            .to_pandas()
            .assign(universe=path.parts[-3], geolevel=names[path.parts[-3]][path.parts[-2]])
            for path in files
        ]
    )
    order = ["universe", "geolevel", "stage", "solver", "status"]
    counted = solves.groupby(order, sort=False).agg(
        solves=("parent", "size"),
        relaxed=("relaxed", "sum"),
        iterations=("iterations", "max"),
        residual=("primal_residual", "max"),
        gap=("objective_gap", "max"),
    )
    rows = tuple(
        (
            *key,
            int(row.solves),
            int(row.relaxed),
            int(row.iterations),
            f"{row.residual:.1e}",
            f"{row.gap:.1e}" if np.isfinite(row.gap) else "not known",
        )
        for key, row in counted.iterrows()
    )
    headers = (*order, "solves", "relaxed", "most iterations", "largest residual", "largest gap")
    return Table(headers, rows, "relaxed")


ACCURACY_PAGE = "accuracy.html"
"""The public report of accuracy, next to the run's report where the input is public."""


def _budget(settings: TopdownSettings) -> Iterator[Block]:
    """Percent of each universe's loss by geolevel."""
    for universe in settings.run.universes:
        budget = settings.budget_of(universe)
        names, shares = settings.level_names(universe), budget.geolevel_shares
        percent = {names[name]: 100 * float(share) for name, share in shares.items()}
        loss = "epsilon" if budget.is_pure else "rho"
        of = "no noise" if budget.infinite else f"{loss} {float(budget.total):.4g}"
        words = f"{universe}: {of}, by geolevel, before geounits were bypassed."
        title, label = f"Budget of {universe}", "% of the loss"
        yield bars(title, words, {universe: percent}, label)


def _errors(accuracy: pd.DataFrame) -> Iterator[Block]:
    """Mean absolute errors of one query of each universe by geolevel."""
    for universe, errors in accuracy.groupby("universe", sort=False):
        by_query = dict(iter(errors.groupby("query", sort=False)))
        # A total that is declared exact has no error to show.
        uneven = [query for query, rows in by_query.items() if rows["mean_absolute_error"].any()]
        query = next(iter(uneven), next(iter(by_query)))
        figures = by_query[query].set_index("geolevel")["mean_absolute_error"].to_dict()
        words = f"{universe}: error of {query} at each level."
        label = "mean absolute error of an answer"
        yield bars(f"Error of {universe}", words, {query: figures}, label)


def _implied_deviations(settings: TopdownSettings) -> Iterator[Block]:
    """Standard deviations of the noise in one query of each universe by geolevel."""
    for universe in settings.run.universes:
        measures = cost_of(settings, universe).plan.measures
        asked = Counter(own.query for own in measures)
        query = TOTAL if TOTAL in asked else asked.most_common(1)[0][0]
        rows = {own.place: own.deviation for own in measures if own.query == query}
        words = f"{universe}: noise in a measured answer of {query} at each geolevel."
        label = "standard deviation of the noise"
        yield bars(f"Noise of {universe}", words, {query: rows}, label)


def of_root(run: RunDirectory, settings: TopdownSettings, universe: str) -> Table:
    """The total of a universe at the root, and its records by the attributes of fewest levels."""
    schema, root = settings.schema_of(universe), spine_of(run, universe).geolevels[0]
    counts = released_counts(run, universe, root, schema.n_cells).sum(axis=0)
    rows = [(TOTAL, int(counts.sum()))]
    for name in _with_few_levels(schema):
        answers = marginal_query(schema, name).matrix @ counts
        labels = schema.labels(name)
        rows += [(f"{name}: {label}", int(n)) for label, n in zip(labels, answers, strict=True)]
    return Table((f"{universe}, {root.name.replace('_', ' ')}", "count"), tuple(rows), "count")


def _with_few_levels(schema: Schema) -> Iterator[str]:
    """Attributes in ascending number of levels, as long as their levels fit below the total."""
    left = MOST_COUNTS - 1
    for name in sorted(schema.attributes, key=lambda name: len(schema.labels(name))):
        left -= len(schema.labels(name))
        if left < 0:
            return
        yield name


def _agreement(summary: MarginSummary) -> Table:
    headers = ("geolevel", "query", "answers", "below", "inside", "above", "estimates below zero")
    rows = tuple(
        (
            row.geolevel,
            row.query,
            int(row.answers),
            *(f"{share:.1%}" for share in (row.below, row.inside, row.above, row.negative)),
        )
        for row in summary.agreement.itertuples()
    )
    return Table(headers, rows, "inside")


def _classes(summary: MarginSummary) -> Table:
    rows: list[dict[str, Cell | None]] = [
        {
            "records": _class_name(int(row["class"])),
            "areas": int(row["areas"]),
            "attribute": row["attribute"],
            "level": row["label"],
            "released": int(row["released"]),
            "estimate": f"{row['estimate']:,.0f}",
            "interval": f"{row['lower']:,} to {row['upper']:,}",
            "deviations from the estimate": (
                f"{(row['released'] - row['estimate']) / row['std_dev']:+.1f}"
            ),
        }
        for row in summary.classes.to_dict("records")
    ]
    return Table.of(rows, "interval")


def _class_name(first: int) -> str:
    """
    >>> _class_name(10)
    '10 to 99'
    """
    if first == 0:
        return "none"
    following = [start for start in CLASSES if start > first]
    return f"{first:,} to {following[0] - 1:,}" if following else f"{first:,} and more"

"""The public report of a topdown run: its settings, its solution and its checks.

Accuracy against the input is shown for inputs that are not confidential, and only for those.

The front page shows the guarantee, the budget, the accuracy, and the first released counts, of the
spine's root.

The certificate of a topdown release: public content only, true of its settings.

The exact guarantee of the noise follows from the settings and the paths of the spine alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from ...census.queries import TOTAL, Schema, marginal_query
from ...dissemination.released_tables import counts_in_margins, fitness
from ...pages.document import NONE, Block, Document, Link, Table, bars, parts_of, table
from ...pages.numbers import format_delta, format_epsilon, format_rho
from ...products.budget import Cost, ExactEpsilons
from ...products.certificate import Facts, epsilons_table, parts_table
from ...products.plan import Plan
from ...products.privacy_curves import trade_offs
from ...products.reports import MOST_COUNTS, report_document
from ...runs.directory import RunDirectory
from ...runs.objects import cached_result, state_of, store_result
from ..measurement.measure import public_plan
from ..settings import TopdownSettings
from ..spine.files import released_counts, spine_of
from ..workload.costs import cost_of, reported_delta, universe_plan
from ..workload.exact_loss import exact_curve, exact_epsilon, exact_parts, paths_of
from ..workload.privacy_curve import OTHERS, QUESTION, privacy_curve, scope_of_figures, whole_curves
from ..workload.statement import sentences_about, text_of
from .spine_summary import spine_facts
from .tabulations.run import MARGIN_LEVEL, universes_without_margins


def report(
    run: RunDirectory,
    settings: TopdownSettings,
    plan: Plan,
    accuracy: pd.DataFrame | None,
) -> Document:
    """The report as a document; see the module's docstring."""
    links = []
    if accuracy is not None and (run.report.parent / ACCURACY_PAGE).exists():
        links.append(Link("Accuracy in full", ACCURACY_PAGE))
    universes = settings.run.universes
    exact, figures = exact_losses(run, settings)
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
        released=_released_table(run, settings),
        figures=figures,
        epsilons=epsilons_table(plan.statement.losses, exact),
        parts=parts_table([cost_of(settings, universe) for universe in exact], exact),
        accuracy=None if accuracy is None else list(_accuracy(accuracy)),
        noise=list(_noise(settings)),
        level=MARGIN_LEVEL,
        in_margins=counts_in_margins(run.release),
        without_margins=universes_without_margins(run, settings),
        spines=[spine_facts(run, settings, universe) for universe in universes],
        solves=solves_table(run),
    )


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
    """Mean absolute errors of every universe's quantities by level."""
    for universe, errors in accuracy.groupby("universe", sort=False):
        answers = zip(errors["level"], errors["quantity"], strict=True)
        figures = dict(zip(answers, errors["mean_absolute_error"].tolist(), strict=True))
        yield _pivot_levels(f"{universe}: quantity", figures)


def _noise(settings: TopdownSettings) -> Iterator[Table]:
    """Standard deviations of the noise in every universe's answers by geolevel."""
    for universe in settings.run.universes:
        figures = {
            (own.place, own.query): float(f"{own.deviation:.3g}")
            for own in cost_of(settings, universe).plan.measures
        }
        yield _pivot_levels(f"{universe}: query", figures)


def _pivot_levels(title: str, figures: Mapping[tuple[str, str], float]) -> Table:
    """Queries or quantities by levels, of figures by level and query; a dash for missing ones."""
    levels = list(dict.fromkeys(level for level, _ in figures))
    rows = tuple(
        (query, *(figures.get((level, query), NONE) for level in levels))
        for query in dict.fromkeys(query for _, query in figures)
    )
    return Table((title, *levels), rows)


def solves_table(run: RunDirectory) -> Table:
    """Outcomes of the least-squares and rounding problems, by geolevel, stage and solver."""
    frames = []
    for path in sorted((run.root / "solves").glob("*/*/*.parquet")):
        universe, name = path.parts[-3:-1]
        geolevel, own = spine_of(run, universe).level_names[name], pq.ParquetFile(path).read()
        frames.append(own.to_pandas().assign(universe=universe, geolevel=geolevel))
    order = ["universe", "geolevel", "stage", "solver", "status"]
    by_outcome = pd.concat(frames).groupby(order, sort=False)
    counted = by_outcome.agg(
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
    """Mean absolute errors of one quantity of each universe by level."""
    for universe, errors in accuracy.groupby("universe", sort=False):
        of_levels = errors.set_index("level").groupby("quantity", sort=False)
        by_quantity = dict(iter(of_levels["mean_absolute_error"]))
        # A total that is declared exact has no error to show.
        uneven = [name for name, own in by_quantity.items() if own.any()]
        quantity = next(iter(uneven), next(iter(by_quantity)))
        figures = by_quantity[quantity].to_dict()
        words = f"{universe}: error of {quantity} at each level."
        label = "mean absolute error of an answer"
        yield bars(f"Error of {universe}", words, {quantity: figures}, label)


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


_LOSSES = TypeAdapter(tuple[dict[str, ExactEpsilons], tuple[Block, ...]])


def exact_losses(
    run: RunDirectory, settings: TopdownSettings
) -> tuple[dict[str, ExactEpsilons], tuple[Block, ...]]:
    """The `exact_epsilons` and `exact_figures` of a run, computed once for certificate and report:
    they follow from settings and spines, and take seconds."""
    path = exact_losses_file(run)
    state = state_of(run, (run.root / "spine").glob("*/*.parquet"))
    if (known := cached_result(path, state)) is not None:
        return _LOSSES.validate_python(known)
    exact = exact_epsilons(run, settings)
    found = exact, exact_figures(run, settings, exact)
    store_result(path, state, _LOSSES.dump_python(found))
    return found


def exact_losses_file(run: RunDirectory) -> Path:
    """File of what the noise of a run guarantees exactly."""
    return run.root / "pieces" / "exact_losses.json"


def exact_epsilons(run: RunDirectory, settings: TopdownSettings) -> dict[str, ExactEpsilons]:
    """The exact epsilons of a record of each universe and of its parts, over all paths of its
    spine; empty without noise, and without universes where they are not known."""
    found = {}
    for universe in settings.run.universes if settings.is_private else ():
        budget, paths = settings.budget_of(universe), paths_of(spine_of(run, universe))
        delta = reported_delta(budget)
        stated = [own.delta for own in universe_plan(budget).at_stated_deltas()]
        whole = {str(own): exact_epsilon(budget, own, paths) for own in stated}
        if whole[str(delta)] is not None:
            parts = exact_parts(budget, settings.schema_of(universe), delta, paths)
            found[universe] = ExactEpsilons(whole, parts)
    return found


def facts_of_run(run: RunDirectory, settings: TopdownSettings) -> Facts:
    """The facts of a run's certificate, with the exact figures of the spine that ran."""
    exact, figures = exact_losses(run, settings)
    none = universes_without_margins(run, settings).values()
    facts = facts_of(settings, figures, tuple(none))
    return replace(facts, exact=exact)


def facts_of(
    settings: TopdownSettings, figures: Sequence[Block] = (), without_margins: Sequence[str] = ()
) -> Facts:
    """The facts of a certificate whose exact epsilons are not known.

    Args:
        figures: derived from the noise itself, in addition to the guarantee.
        without_margins: why universes have no margins.
    """
    plan = public_plan(settings)
    budgets = [settings.budget_of(name) for name in settings.run.universes]
    return Facts(
        "topdown/templates/certificate.md.j2",
        {
            "exactly": [text_of(settings, own) for own in sentences_about(settings, "plain")],
            "figures": figures,
            "curve": None if figures else privacy_curve(budgets),
            "scope": scope_of_figures(settings),
            "allocation": {own.plan.universe: _allocation(own) for own in plan.costs},
            "without_margins": without_margins,
        },
        costs=plan.costs,
        exact={},
    )


def exact_figures(
    run: RunDirectory, settings: TopdownSettings, known: Collection[str]
) -> tuple[Block, ...]:
    """The meaning of the exact epsilons for one person, and the curves, from the noise that was
    drawn on the paths of the spines; empty where no universe has `known` epsilons.
    """
    if not known:
        return ()
    budgets = {universe: settings.budget_of(universe) for universe in settings.run.universes}
    paths = {universe: paths_of(spine_of(run, universe)) for universe in budgets}
    of_changes = whole_curves(settings, paths)
    tests = {name: curve for name, curve in of_changes.items() if curve is not None}
    of_universes = {
        universe: of_changes.get(universe) or exact_curve(budgets[universe], paths[universe])
        for universe in known
    }
    curves = {universe: curve for universe, curve in of_universes.items() if curve is not None}
    _, _, (section,) = parts_of(
        "topdown/templates/exact.md.j2",
        scope=scope_of_figures(settings),
        declared={
            universe: section.guarantee[0]
            for universe, section in settings.budget.items()
            if section.guarantee is not None and universe in budgets
        },
        tests=trade_offs(tests, OTHERS, QUESTION) if tests else None,
        untested=[name for name in of_changes if name not in tests],
        curve=privacy_curve(list(budgets.values()), curves),
    )
    return section.blocks


def _allocation(cost: Cost) -> Table | None:
    """Shares of the loss by geolevel and query, with the deviation of the noise."""
    rows = [
        {
            "geolevel": own.place,
            "query": own.query,
            "geolevel share": shares["geolevel_share"],
            "query share": shares["query_share"],
            "noise s.d.": own.deviation,
        }
        for own, shares in zip(cost.plan.measures, cost.of_queries, strict=True)
    ]
    return table(rows, "noise s.d.")

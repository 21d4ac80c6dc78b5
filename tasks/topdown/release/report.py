"""The public report of a topdown run: what was asked, how it was solved, what was checked.

Accuracy against the input is shown for inputs that are not confidential, and only for those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ...noise.mechanisms import noise_deviation
from ...pages.document import NONE, Document, Section, Table
from ...pages.numbers import shown_delta, shown_epsilon, shown_rho
from ...products.certificate import exact_section
from ...products.reports import report_document
from ...runs.directory import RunDirectory
from ..settings import TopdownSettings
from ..workload.costs import budget_report
from .certificate import exact_figures, exact_of
from .front_page import overview
from .map_section import map_section
from .margin_section import margin_section
from .margin_summary import read_margin_summary, read_why_none
from .spine_section import spine_section


def report(
    run: RunDirectory,
    settings: TopdownSettings,
    accuracy: pd.DataFrame | None,
    truth: Mapping[str, pd.Series] | None = None,
) -> Document:
    """The report as a document; see the module's docstring."""
    sections = [_release(run, settings), exact_section(exact_of(settings))]
    guarantee = exact_figures(run, settings)
    if guarantee:
        sections.append(Section("What the noise guarantees exactly", guarantee))
    if accuracy is not None:
        sections.append(_accuracy(accuracy))
    sections.append(_noise(settings))
    sections += margin_sections(run, settings)
    sections += [spine_section(run, settings, universe) for universe in settings.run.universes]
    front = overview(run, settings, accuracy)
    drawn = map_section(run, settings, truth)
    if drawn is not None:
        front = replace(front, panels=(*front.panels, drawn))
    return report_document(run, settings, front, [*sections, _solves(run)])


def margin_sections(run: RunDirectory, settings: TopdownSettings) -> Iterator[Section]:
    """What margins tell of every universe, or why it has none though they are asked for."""
    for universe in settings.run.universes:
        summary, why = read_margin_summary(run, universe), read_why_none(run, universe)
        if summary is not None:
            yield margin_section(universe, summary)
        elif why is not None:
            yield Section(f"Margins of {universe}", (f"There are none: {why}.",))


def _release(run: RunDirectory, settings: TopdownSettings) -> Section:
    rows = []
    for universe in settings.run.universes:
        cost = budget_report(settings.budget_of(universe), settings.schema_of(universe))
        epsilon = cost["epsilon"]["tight"]
        rows.append(
            (
                universe,
                pq.read_metadata(run.release / f"mdf_{universe}.parquet").num_rows,
                shown_epsilon(epsilon),
                shown_delta(cost["delta"]),
                shown_rho(cost["rho"]),
            )
        )
    return Section(
        "The release",
        (
            f"Microdata that reproduce the {settings.area_word} estimates row by row. What is "
            "exact is listed below; everything else carries noise.",
            Table(("universe", "rows", "epsilon", "delta", "rho"), tuple(rows), "epsilon"),
        ),
    )


def _accuracy(accuracy: pd.DataFrame) -> Section:
    blocks: list[str | Table] = [
        "Mean absolute error of an answer, by geolevel of the spine. The input is not "
        "confidential, so it may be compared with the release."
    ]
    for universe, errors in accuracy.groupby("universe", sort=False):
        wide = errors.pivot(index="query", columns="geolevel", values="mean_absolute_error")
        geolevels = list(dict.fromkeys(errors["geolevel"]))
        queries = list(dict.fromkeys(errors["query"]))
        rows = tuple(
            (query, *(float(wide.loc[query, level]) for level in geolevels)) for query in queries
        )
        blocks.append(Table((f"{universe}: query", *geolevels), rows))
    return Section("Accuracy", tuple(blocks))


def _noise(settings: TopdownSettings) -> Section:
    blocks: list[str | Table] = [
        "Standard deviation of the noise in each answer, before geounits were bypassed; a dash "
        "where a query is not asked."
    ]
    for universe in settings.run.universes:
        cost = budget_report(settings.budget_of(universe), settings.schema_of(universe))
        deviation = {(q["geolevel"], q["query"]): noise_deviation(q) for q in cost["queries"]}
        geolevels = list(dict.fromkeys(geolevel for geolevel, _ in deviation))
        queries = list(dict.fromkeys(query for _, query in deviation))
        rows = tuple(
            (query, *(_or_dash(deviation.get((level, query))) for level in geolevels))
            for query in queries
        )
        blocks.append(Table((f"{universe}: query", *geolevels), rows))
    return Section("Noise", tuple(blocks))


def _or_dash(value: float | None) -> float | str:
    return NONE if value is None else float(f"{value:.3g}")


def solves_table(run: RunDirectory) -> Table:
    """How the least-squares and rounding problems ended, by geolevel, stage and solver."""
    files = sorted((run.root / "solves").glob("*/*/*.parquet"))
    solves = pd.concat(
        [
            ds.dataset(path)
            .to_table()
            .to_pandas()
            .assign(universe=path.parts[-3], geolevel=path.parts[-2])
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


def _solves(run: RunDirectory) -> Section:
    return Section(
        "How the estimates were found",
        (
            "Every least-squares and rounding problem, by how it ended. An optimal solve found the "
            "best fit to the noisy answers. One that ended at its limit stopped after the most "
            "iterations that it may take; no fit is better than its own by a larger share than "
            "the gap. A relaxed solve had to give up agreement with an earlier pass. Sums, bounds "
            "and invariants hold in any case, within the residual, in records.",
            solves_table(run),
        ),
    )

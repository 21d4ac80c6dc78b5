"""Forecast of a budget before it is spent: margins of every query at every level, and a page.

For unbiased estimates the margins follow from the budget, the geography and declared invariants
alone (`tasks.topdown.design.problem`). The effect of non-negativity and rounding depends on counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ...census.queries import TOTAL
from ...pages.document import Details, Document, Figure, Section, Table
from ...pages.figures import bar_chart
from ...solvers.split import margin_of
from ..checks.replicate import with_estimator
from ..settings import TopdownSettings
from ..spine.build import PublicTables
from .design import EXACT, UNDETERMINED
from .problem import SpineAreas, UniverseProblem
from .settings import Target, UniverseDesign

FULL, BLOCKS = "full_information", "block_by_block"
"""Estimators whose unbiased estimates solve a linear problem."""


@dataclass(frozen=True)
class Forecast:
    """The 95 % margin of a query's answers at a level, root mean square; 0 for exact answers, None
    for undetermined ones. By estimator, without non-negativity and rounding."""

    universe: str
    query: str
    level: str
    n_areas: int
    margins: Mapping[str, float | None]


def forecasts(settings: TopdownSettings, universe: str, tables: PublicTables) -> list[Forecast]:
    """Forecasts of every measured query of a universe at every level, from the tables of
    `ingest.public_tables`.

    Raises TooManyCombinations for a universe without a possible forecast.
    """
    queries = dict.fromkeys((TOTAL, *settings.budget_of(universe).queries))
    levels = SpineAreas.of(settings, universe, tables).levels
    rows = [(query, level.name) for query in queries for level in levels]
    asked = (Target(query=query, level=level) for query, level in rows)
    design = UniverseDesign(targets={str(place): target for place, target in enumerate(asked)})
    margins: dict[str, list[float | None]] = {}
    for estimator in (FULL, BLOCKS):
        estimated = with_estimator(settings, estimator)
        problem = UniverseProblem.of(estimated, universe, design, tables, "budget")
        precision, whole = problem.precision(estimated.budget_of(universe))
        variances, _ = problem.variances(precision)
        margins[estimator] = [
            0.0 if v < EXACT else margin_of(v, whole) if v < UNDETERMINED else None
            for v in variances.tolist()
        ]
    return [
        Forecast(universe, *row, n_areas, {name: of[place] for name, of in margins.items()})
        for place, (row, n_areas) in enumerate(zip(rows, problem.n_areas, strict=True))
    ]


def forecast_document(
    settings: TopdownSettings,
    rows: Sequence[Forecast],
    refused: Mapping[str, str] = MappingProxyType({}),
    further: Sequence[Section] = (),
) -> Document:
    """The page: margins by query and level, the reason where a universe has no forecast, and
    further sections."""
    sections = []
    for universe in settings.run.universes:
        of_universe = [row for row in rows if row.universe == universe]
        if universe in refused:
            sections.append(Section(f"Margins of {universe}", (refused[universe],)))
        else:
            sections.append(_margins(settings, universe, of_universe))
    totals = ", ".join(
        f"rho {float(settings.budget_of(name).total):.4g} for {name}"
        for name in settings.run.universes
    )
    return Document(
        "What the budget will give",
        (
            f"Forecast for {settings.privacy.dataset}: {totals}. Nothing has been spent.",
            "Margins hold for 95 of 100 counts, and are the root mean square over all areas of a "
            "level, for unbiased estimates. Only releases of data that may be disclosed, as of "
            "'spineflow run tune', show the effect on small counts, which cannot be negative.",
        ),
        (*sections, *further),
    )


def _margins(settings: TopdownSettings, universe: str, rows: Sequence[Forecast]) -> Section:
    alone = f"{settings.compiled_census.area_word}s alone"
    names_of = {FULL: "all measurements", BLOCKS: alone}
    levels = [row for row in rows if row.query == TOTAL]
    blocks: list[str | Table | Figure | Details] = []
    drawn = [row for row in levels if all(value for value in row.margins.values())]
    if drawn:
        series = {
            words: [float(row.margins[name] or 0.0) for row in drawn]
            for name, words in names_of.items()
        }
        title = f"Margins of the total of {universe}"
        names = [row.level for row in drawn]
        svg = bar_chart(names, series, title=title, value_label="95 % margin")
        blocks.append(Figure(svg, f"{title}, with the budget as it is and spent on {alone}."))
    for query in dict.fromkeys(row.query for row in rows):
        table = Table(
            ("level", "areas", *(f"margin, {words}" for words in names_of.values())),
            tuple(
                (row.level, row.n_areas, *(_format_value(row.margins[name]) for name in names_of))
                for row in rows
                if row.query == query
            ),
        )
        blocks.append(table if query == TOTAL else Details(query, (table,)))
    return Section(f"Margins of {universe}", tuple(blocks))


def _format_value(margin: float | None) -> str | float:
    if margin is None:
        return "not determined"
    return "exact" if margin == 0 else margin

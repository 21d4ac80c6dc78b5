"""What the Prefect UI shows beside the DAG: public numbers only."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from prefect.artifacts import create_markdown_artifact

from ..tasks.noise.mechanisms import noise_deviation
from ..tasks.pages.document import Table
from ..tasks.runs.directory import RunDirectory
from ..tasks.topdown.checks.accuracy.figures import read_figures
from ..tasks.topdown.checks.accuracy.report import accuracy_table
from ..tasks.topdown.paths import spine_folder
from ..tasks.topdown.release.report import solves_table
from ..tasks.topdown.settings import TopdownSettings
from ..tasks.topdown.spine.files import read_spine
from ..tasks.topdown.workload.costs import budget_report
from .results import show_table

ERRORS = {
    "quantity": "quantity",
    "level": "level",
    "entities": "entities",
    "mean |error|": "mean absolute error",
    "implied s.d.": "implied by the noise",
}
"""Columns of the accuracy report that a run's page shows, and what it calls them."""


def show_notes(sentences: Sequence[str], *, key: str, description: str) -> None:
    """Show sentences as a list; nothing if there are none."""
    if sentences:
        lines = "\n".join(f"- {sentence}." for sentence in sentences)
        create_markdown_artifact(lines, key=key, description=description)


def show_budgets(settings: TopdownSettings) -> None:
    """What every query at every geolevel is measured with, in rounded figures."""
    for universe in settings.run.universes:
        report = budget_report(settings.budget_of(universe), settings.schema_of(universe))
        rows = tuple(
            (
                query["geolevel"],
                query["query"],
                f"{100 * float(Fraction(query['share'])):.3g} %",
                f"{noise_deviation(query):.3g}",
            )
            for query in report["queries"]
        )
        rho = report["rho"] if report["rho"] == "inf" else f"{float(Fraction(report['rho'])):.4g}"
        show_table(
            Table(("geolevel", "query", "share of the budget", "noise s.d."), rows),
            key=f"budget-{universe}",
            description=f"Budget of {universe}: rho {rho}",
        )


def show_geounits(run: RunDirectory, settings: TopdownSettings) -> None:
    """The number of geounits of every universe's spine."""
    for universe in settings.run.universes:
        spine = read_spine(spine_folder(run, universe))
        rows = tuple(
            (level.name, len(level), int(level.bypassed.sum())) for level in spine.geolevels
        )
        show_table(
            Table(("geolevel", "geounits", "bypassed"), rows),
            key=f"geounits-{universe}",
            description=f"{spine.kind} spine",
        )


def show_solves(run: RunDirectory) -> None:
    """How the least-squares and rounding problems ended."""
    show_table(
        narrow_solves(solves_table(run)),
        key="solver-outcomes",
        description="Every least-squares and rounding problem, by how it ended",
    )


def narrow_solves(table: Table) -> Table:
    """The report's table of solves, in as many columns as a page of 1280 pixels has room for."""
    rows = tuple(
        (f"{universe}, {geolevel}", stage, f"{solver}: {status}", solves, relaxed, residual)
        for universe, geolevel, stage, solver, status, solves, relaxed, _, residual in table.rows
    )
    return Table(("of", "stage", "how", "solves", "relaxed", "largest residual"), rows)


def errors_by_level(run: RunDirectory, settings: TopdownSettings) -> Table | None:
    """The mean error of the first quantity, the total, at every level, beside what is implied."""
    table = _errors(run, settings)
    if table is None:
        return None
    first = table.rows[0][0] if table.rows else None
    return Table(table.headers, tuple(row for row in table.rows if row[0] == first))


def show_accuracy(run: RunDirectory, settings: TopdownSettings) -> None:
    """How far the release is from the truth, for inputs that are not confidential."""
    table = _errors(run, settings)
    if table is not None:
        show_table(
            table,
            key="accuracy",
            description="Errors by level, beside the standard deviation that the budget implies",
        )


def _errors(run: RunDirectory, settings: TopdownSettings) -> Table | None:
    """The columns of the accuracy report that a page shows; None for confidential input."""
    figures = None if settings.input.confidential else read_figures(run)
    if figures is None:
        return None
    table = accuracy_table(figures)
    kept = [table.headers.index(name) for name in ERRORS]
    rows = tuple(tuple(row[place] for place in kept) for row in table.rows)
    return Table(tuple(ERRORS.values()), rows)

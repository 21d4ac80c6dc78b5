"""The errors of a release in few columns, for the page of a run; of public input alone."""

from __future__ import annotations

from ....pages.document import Table
from ....runs.directory import RunDirectory
from ...settings import TopdownSettings
from .figures import read_figures
from .report import accuracy_table

ERRORS = {
    "quantity": "quantity",
    "level": "level",
    "entities": "entities",
    "mean |error|": "mean absolute error",
    "implied s.d.": "implied by the noise",
}
"""Columns of the accuracy report that a run's page shows, and what it calls them."""


def errors_of_totals(run: RunDirectory, settings: TopdownSettings) -> Table | None:
    """The mean error of the first quantity, the total, at every level, beside what is implied."""
    table = errors_in_brief(run, settings)
    if table is None:
        return None
    first = table.rows[0][0] if table.rows else None
    return Table(table.headers, tuple(row for row in table.rows if row[0] == first))


def errors_in_brief(run: RunDirectory, settings: TopdownSettings) -> Table | None:
    """The columns of the accuracy report that a page shows; None for confidential input."""
    figures = None if settings.input.confidential else read_figures(run)
    if figures is None:
        return None
    table = accuracy_table(figures)
    kept = [table.headers.index(name) for name in ERRORS]
    rows = tuple(tuple(row[place] for place in kept) for row in table.rows)
    return Table(tuple(ERRORS.values()), rows)

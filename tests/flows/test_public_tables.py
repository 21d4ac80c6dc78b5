"""Tables on the page of a run: narrow enough for it, and without what is not public."""

from __future__ import annotations

from spineflow.tasks.pages.document import Table
from spineflow.tasks.topdown.checks.accuracy.report import _MAIN, BRIEF
from spineflow.tasks.topdown.shown import narrow_solves

MOST_COLUMNS = 6
"""Of a page of 1280 pixels beside the UI's menu."""


def test_solves_are_told_in_few_columns() -> None:
    headers = ("universe", "geolevel", "stage", "solver", "status", "solves", "relaxed", "most")
    rows = (("persons", "County", "rounder", "flow", "optimal", 12, 1, 30, "1.0e-07", "2.0e-09"),)
    table = narrow_solves(Table((*headers, "largest residual", "largest gap"), rows))
    assert len(table.headers) <= MOST_COLUMNS
    assert table.rows == (("persons, County", "rounder", "flow: optimal", 12, 1, "1.0e-07"),)


def test_errors_are_told_in_few_columns_of_the_report() -> None:
    assert len(BRIEF) <= MOST_COLUMNS
    assert set(BRIEF) <= {"quantity", "level", "on spine", "entities", *_MAIN}

"""The figures that the pages promise stand there, and the commands that make them run.

What a command prints at a small size has the rows that the page has of it; the sizes of errors are
not compared, which the tests of the products hold against published ones.
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import sys
from pathlib import Path

import pytest

from benchmarks.error_by_rho import ABLATIONS, QUERIES

REPOSITORY = Path(__file__).resolve().parents[1]
DOCS = REPOSITORY / "docs"
LEAST_REPLICATES = 10


def text(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def section(page: str, heading: str) -> str:
    """What stands on a page beneath a heading that begins so."""
    (found,) = re.findall(rf"^#+ {re.escape(heading)}.*?(?=^#|\Z)", text(page), re.M | re.S)
    return found


def rows(markdown: str) -> list[dict[str, str]]:
    """The rows of all tables in a text, by the headers of their columns."""
    found, headers = [], None
    for line in markdown.splitlines():
        if not line.startswith("|"):
            headers = None
            continue
        cells = [cell.strip() for cell in line.strip("|\n").split("|")]
        if headers is None:
            headers = cells
        elif not set(line) <= set("|-: "):
            found.append(dict(zip(headers, cells, strict=False)))
    return found


def printed(*command: str) -> list[dict[str, str]]:
    """The rows of the tables that a benchmark prints, as by `python -m` but in this process, which
    has imported what it needs."""
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stdout(shown):
        patched.setattr(sys, "argv", list(command))
        patched.delitem(sys.modules, command[0], raising=False)
        patched.chdir(REPOSITORY)
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
    return rows(shown.getvalue())


@pytest.mark.parametrize("page", ["group_sizes_figures", "trips_figures"])
def test_every_mean_is_of_ten_replicates_and_has_the_smallest_and_the_largest(page: str) -> None:
    measured = [row for row in rows(text(page)) if row.get("mechanism", "").startswith("`")]
    assert len(measured) > 50
    few = [row for row in measured if int(row["replicates"]) < LEAST_REPLICATES]
    assert few == []
    without = [row for row in measured if not any("–" in cell for cell in row.values())]
    assert without == []


@pytest.mark.slow
@pytest.mark.soak
def test_the_ablations_are_measured_by_their_command() -> None:
    small = ("--ablate", "--replicates", "2", "--persons", "500", "--times", "1")
    shown = [row["rho and passes"] for row in printed("benchmarks.error_by_rho", *small)]
    assert shown == [f"1 times, {name}" for name in ABLATIONS] * len(QUERIES)

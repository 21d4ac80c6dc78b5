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
from spineflow.tasks.group_sizes.workload import mechanisms as of_group_sizes
from spineflow.tasks.trips.release.error_bound import BOUND_OF

from benchmarks.error_by_rho import ABLATIONS, QUERIES
from benchmarks.published_figures import FALSE_DISCOVERIES, GROUP_SIZES

REPOSITORY = Path(__file__).resolve().parents[1]
DOCS = REPOSITORY / "docs"
LEAST_REPLICATES = 10
GROUP_SIZE_SECTIONS = {
    "census": "Census-like: 117.6 million groups",
    "taxi": "Taxi-like: 13,282 groups",
}
"""Headings of the page by data of the paper's table 7."""


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


@pytest.mark.parametrize("data", GROUP_SIZES)
def test_errors_of_group_sizes_stand_above_the_published_ones(data: str) -> None:
    shown = rows(section("group_sizes_figures", GROUP_SIZE_SECTIONS[data]))
    beside = {
        (row["epsilon"], above["mechanism"].strip("`").removesuffix(" (published)")): row
        for above, row in zip(shown, shown[1:], strict=False)
        if row["mechanism"] == "*the paper*"
    }
    fast = {key for key in GROUP_SIZES[data] if key[1] not in of_group_sizes.RELAXED}
    assert beside.keys() == fast and len(fast) > 10
    for key, row in beside.items():
        assert list(row.values())[2:6] == list(GROUP_SIZES[data][key])


@pytest.mark.parametrize("data", FALSE_DISCOVERIES)
def test_published_false_discoveries_stand_beside_ours(data: str) -> None:
    heading = data.replace("-", ", ").capitalize()
    shown = {
        (row["mechanism"].strip("`"), row["epsilon"]): row["published"]
        for row in rows(section("trips_figures", heading))
        if row.get("published")
    }
    known = FALSE_DISCOVERIES[data]
    assert known and {key: f"{known[key]:.1f}" for key in known} == shown


def test_the_bounds_of_the_paper_stand_below_every_mechanism_that_has_one() -> None:
    shown = rows(text("trips_figures"))
    bounds = {"*Theorem 4*": 0, "*Proposition 1*": 0}
    for above, row in zip(shown, [*shown[1:], {}], strict=True):
        name = above.get("mechanism", "").strip("`")
        if name in BOUND_OF:
            assert row["mechanism"] == f"*{BOUND_OF[name]}*"
            bounds[row["mechanism"]] += 1
    assert all(number > 10 for number in bounds.values())
    for name in ("gaussian_leaves", "stability_histogram"):
        assert BOUND_OF[name] == "Proposition 1"


@pytest.mark.slow
@pytest.mark.soak
def test_the_ablations_are_measured_by_their_command() -> None:
    small = ("--ablate", "--replicates", "2", "--persons", "500", "--times", "1")
    shown = [row["rho and passes"] for row in printed("benchmarks.error_by_rho", *small)]
    assert shown == [f"1 times, {name}" for name in ABLATIONS] * len(QUERIES)


@pytest.mark.slow
def test_the_figures_of_group_sizes_are_drawn_by_their_command(tmp_path: Path) -> None:
    options = ("--data", "small census", "--epsilons", "1.0", "--replicates", "2")
    names = ("cumulative_dp", "topdown")
    command = ("benchmarks.group_size_figures", str(tmp_path), *options, "--mechanisms", *names)
    shown = [row for row in printed(*command) if "mechanism" in row]
    assert [row["mechanism"].strip("`") for row in shown] == list(names)
    assert {row["replicates"] for row in shown} == {"2"}
    assert "–" in shown[0]["nation"]
    drawn = {path.name for path in tmp_path.glob("*.svg")}
    assert drawn == {"small_census_error.svg", "small_census_seconds.svg"}
    assert all((DOCS / "images" / "figures" / f"group_sizes_{name}").exists() for name in drawn)


@pytest.mark.slow
def test_the_figures_of_trips_are_drawn_by_their_command(tmp_path: Path) -> None:
    options = ("--data", "random-sparse", "--epsilons", "1", "--replicates", "2")
    names = ("inftda", "stability_histogram")
    command = ("benchmarks.trips_figures", str(tmp_path), *options, "--mechanisms", *names)
    shown = [row for row in printed(*command) if "mechanism" in row]
    bounds = [f"*{BOUND_OF[name]}*" for name in names]
    assert [row["mechanism"].strip("`") for row in shown] == [
        name for pair in zip(names, bounds, strict=True) for name in pair
    ]
    assert shown[0]["published"] == "83.8"
    drawn = {path.name for path in tmp_path.glob("*.svg")}
    assert drawn and all((DOCS / "images" / "figures" / f"trips_{name}").exists() for name in drawn)

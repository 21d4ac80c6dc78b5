"""The accuracy report: who may see it, what it says, and how a browser shows it."""

from __future__ import annotations

import re
import shutil
import subprocess
from html import escape
from pathlib import Path

import pytest
from spineflow.tasks.pages.document import Details, Table, to_markdown
from spineflow.tasks.products.product import END
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.topdown.checks.accuracy.compared import compute_figures
from spineflow.tasks.topdown.checks.accuracy.report import (
    BRIEF,
    ComparedRun,
    accuracy_document,
    accuracy_report,
    errors_of_totals,
    write_comparison,
    write_run_accuracy,
)
from spineflow.tasks.topdown.shown import shown

STAMP = "CONFIDENTIAL"


@pytest.fixture(scope="module")
def confidential_run(county, tmp_path_factory, estimated_run):
    return estimated_run(tmp_path_factory.mktemp("confidential"), county, seed=3, name="second")


@pytest.fixture(scope="module")
def report(public_run) -> Path:
    run, settings = public_run
    path = write_run_accuracy(run, settings)
    assert path == run.root / "report" / "accuracy.html"
    return path


def tables_of(document) -> list[Table]:
    found = []
    for section in document.sections:
        for block in section.blocks:
            inside = block.blocks if isinstance(block, Details) else (block,)
            found += [item for item in inside if isinstance(item, Table)]
    return found


def test_report_of_public_input_is_shown_and_kept(public_run, report: Path) -> None:
    run, _ = public_run
    assert report.read_bytes() == accuracy_report(run).read_bytes()
    assert STAMP not in report.read_text()


def test_report_of_confidential_input_stays_confidential(confidential_run) -> None:
    run, settings = confidential_run
    before = {path for path in run.root.rglob("*") if run.confidential not in path.parents}
    path = write_run_accuracy(run, settings)
    assert path == accuracy_report(run)
    assert run.confidential in path.parents
    after = {path for path in run.root.rglob("*") if run.confidential not in path.parents}
    assert after == before
    assert STAMP in path.read_text()


def test_comparison_is_confidential_if_any_input_is(public_run, confidential_run) -> None:
    path = write_comparison([public_run, confidential_run])
    assert public_run[0].confidential in path.parents
    text = path.read_text()
    assert STAMP in text
    assert "<td>first</td>" in text and "<td>second</td>" in text
    assert not (public_run[0].report.parent / "comparison.html").exists()


def test_figures_outlive_the_histograms(county, tmp_path: Path, estimated_run) -> None:
    run, settings = estimated_run(tmp_path, county, seed=5)
    write_run_accuracy(run, settings)
    shutil.rmtree(run.confidential / "histograms")
    assert write_run_accuracy(run, settings) is None
    write_comparison([(run, settings), (run, settings)])
    shutil.rmtree(run.confidential / "accuracy")
    with pytest.raises(InputRefused, match="leave it out"):
        write_comparison([(run, settings), (run, settings)])


def test_tables_show_the_figures(public_run) -> None:
    run, settings = public_run
    figures = compute_figures(run, settings)
    document = accuracy_document([ComparedRun("first", settings, figures)])
    rows = figures.errors
    of_total = rows[(rows["quantity"] == "total population") & (rows["size_class"] == "all")]
    tables = tables_of(document)
    main = next(table for table in tables if "implied s.d." in table.headers)
    assert [row[0] for row in main.rows] == of_total["level"].tolist()
    position = main.headers.index("mean |error|")
    assert [row[position] for row in main.rows] == of_total["mean_absolute_error"].tolist()
    position = main.headers.index("implied s.d.")
    predicted = of_total["predicted_standard_deviation"].tolist()
    assert [row[position] for row in main.rows] == predicted
    titles = [section.title for section in document.sections]
    assert titles == [
        "Compared runs",
        "Redistricting criterion",
        "Total population",
        "Voting age",
        "Race",
        "Hispanic by race",
        "Group quarters",
        "Occupancy",
    ]
    assert "| tract |" in to_markdown(document)


def test_a_page_shows_the_errors_beside_what_the_budget_implies(
    public_run, report: Path, confidential_run
) -> None:
    """Of input that may be disclosed, where there are figures of it."""
    run, settings = public_run
    errors = compute_figures(run, settings).errors
    errors = errors[(errors["answer"] == "all") & (errors["size_class"] == "all")]
    (brief,) = shown(run, settings, END)
    table = brief.content
    assert brief.key == "accuracy" and table.headers == tuple(BRIEF.values())
    assert [row[:2] for row in table.rows] == [
        (row.quantity, row.level) for row in errors.itertuples()
    ]
    place = list(BRIEF).index("mean_absolute_error")
    assert [row[place] for row in table.rows] == errors["mean_absolute_error"].tolist()
    totals = errors_of_totals(run, settings)
    assert totals is not None and totals.headers == table.headers
    assert totals.rows == tuple(row for row in table.rows if row[0] == "total population")
    assert len({row[1] for row in totals.rows}) == len(totals.rows) > 4
    assert errors_of_totals(*confidential_run) is None
    assert list(shown(*confidential_run, END)) == []


def test_rows_of_one_kind_stand_together_in_a_comparison(public_run, confidential_run) -> None:
    runs = [
        ComparedRun(run.root.name, settings, compute_figures(run, settings))
        for run, settings in (public_run, confidential_run)
    ]
    for table in tables_of(accuracy_document(runs))[1:]:
        assert table.headers[1] == "run"
        labels = [row[1] for row in table.rows]
        assert labels == ["first", "second"] * (len(labels) // 2)
        assert all(a[0] == b[0] for a, b in zip(table.rows[::2], table.rows[1::2], strict=True))


@pytest.mark.parametrize("width", [1280, 400])
def test_a_browser_shows_it_without_errors(report: Path, tmp_path: Path, width: int) -> None:
    """No message on the console, and nothing is wider than the page."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if chromium is None:
        pytest.skip("needs chromium")
    # A frame, because a window cannot be narrower than 500 pixels.
    page = tmp_path / "page.html"
    page.write_text(
        f'<!doctype html><title>none</title><iframe style="width: {width}px; height: 2000px; '
        f'border: 0" srcdoc="{escape(report.read_text())}"></iframe><script>'
        "onload = () => { const root = frames[0].document.documentElement;"
        "document.title = `${root.scrollWidth} of ${root.clientWidth}, "
        "${root.querySelectorAll('h2').length} sections` }</script>"
    )
    command = [
        chromium,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=1400,2000",
        "--enable-logging=stderr",
        "--dump-dom",
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr
    title = re.search(r"<title>(.*?)</title>", done.stdout).group(1)
    shown = re.fullmatch(r"(\d+) of (\d+), 8 sections", title)
    assert shown, title
    assert int(shown[1]) == int(shown[2]) <= width

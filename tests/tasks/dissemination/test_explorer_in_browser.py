"""The page of a release as a person uses it: by mouse and keyboard, at two widths."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import pandas as pd
import pytest
from shapely.geometry import box
from spineflow.tasks.dissemination.explorer import write_explorer

pytestmark = pytest.mark.slow

SIDE = 15
"""Tracts in a row of the square country, which has as many rows."""

WIDTHS = (1280, 400)


def write_release(folder: Path) -> Path:
    """A release of a square country with as many tracts as a small state, and their shapes."""
    tables = folder / "release" / "tables"
    tables.mkdir(parents=True)
    codes = [f"{row:02}{column:02}" for row in range(SIDE) for column in range(SIDE)]
    counts = np.random.default_rng(3).integers(0, 9000, len(codes))
    frame = pd.DataFrame({"level": "tract", "code": codes, "count": counts})
    frame.insert(2, "name", [f"Tract {int(code)}" for code in codes])
    whole = pd.DataFrame({"level": ["country"], "code": ["0"], "name": ["All"]})
    frame = pd.concat([whole.assign(count=counts.sum()), frame])
    frame.to_parquet(tables / "TOTAL.parquet", index=False)
    bounds = frame.assign(lower=frame["count"] - 40, upper=frame["count"] + 40)
    bounds.drop(columns="count").to_parquet(tables / "TOTAL_margins.parquet", index=False)
    shapes = [box(int(c[2:]), int(c[:2]), int(c[2:]) + 1, int(c[:2]) + 1) for c in codes]
    drawn = geopandas.GeoDataFrame({"code": codes}, geometry=shapes, crs="EPSG:3035")
    drawn.to_parquet(folder / "tracts.parquet")
    page = folder / "explore.html"
    write_explorer(
        tables.parent, page, title="A", guarantee="B", geometry=folder / "tracts.parquet"
    )
    return page


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    """The page, and what is released of tracts."""
    page = write_release(tmp_path_factory.mktemp("explore"))
    rows = pd.read_parquet(page.parent / "release" / "tables" / "TOTAL.parquet")
    return page, rows[rows["level"] == "tract"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("needs chromium")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(params=WIDTHS)
def page(request: pytest.FixtureRequest, browser: Any, counted: Any) -> Iterator[Any]:
    """The page in a window, showing tracts; whatever it asks of a network, or fails at, fails."""
    context = browser.new_context(
        viewport={"width": request.param, "height": 900}, offline=True, accept_downloads=True
    )
    opened, wrong = context.new_page(), list[str]()
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    opened.goto(counted[0].as_uri())
    opened.get_by_label("Level").select_option(label="tract")
    opened.wait_for_selector("#map svg path")
    yield opened
    context.close()
    assert wrong == []


def shown(page: Any) -> list[tuple[str, int]]:
    """The areas of the table and their counts, in their order."""
    rows = page.locator("#rows tr").all_inner_texts()
    cells = [row.replace("\n", "\t").split("\t") for row in rows]
    return [(own[0].strip(), int(own[1].replace(",", ""))) for own in cells]


def test_areas_are_searched_sorted_and_drawn(page: Any, counted: Any) -> None:
    rows = counted[1]
    assert page.locator("#map svg path[aria-roledescription='geoshape']").count() == len(rows)
    page.get_by_role("button", name="count", exact=True).click()
    largest = rows.sort_values("count", ascending=False, kind="stable")["count"].head(50)
    assert [count for _, count in shown(page)] == largest.tolist()
    assert page.locator("th[aria-sort=descending]").inner_text() == "count"
    page.get_by_label("Search an area").fill("Tract 141")
    found = dict(shown(page))
    assert found == {
        f"{name} ({code})": count
        for name, code, count in zip(rows["name"], rows["code"], rows["count"], strict=True)
        if "Tract 141" in name
    }
    assert page.locator("#caption").inner_text().endswith(f"{len(found)} of {len(found)} areas")


def test_a_page_has_no_serious_fault_of_access_and_fits(page: Any) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page).response["violations"]
    serious = [own["id"] for own in found if own["impact"] in ("serious", "critical")]
    assert serious == []
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for place in ("#map svg", "#chart svg"):
        box_of = page.locator(place).first.bounding_box()
        assert box_of["x"] >= 0 and box_of["x"] + box_of["width"] <= width + 1, place

"""The page of a release: it holds the released counts, needs no network, works in a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import geopandas
import pandas as pd
import pytest
from shapely.geometry import box
from spineflow.tasks.dissemination.explorer import write_explorer
from spineflow.tasks.runs.errors import InputRefused

TABLE = pd.DataFrame(
    {
        "level": ["country"] * 2 + ["town"] * 4,
        "code": ["0", "0", "N", "N", "S", "S"],
        "name": ["All", "All", "North</script>", "North</script>", "South", "South"],
        "sex": ["f", "m"] * 3,
        "count": [30, 40, 10, 15, 20, 25],
    }
)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    tables = tmp_path / "release" / "tables"
    tables.mkdir(parents=True)
    TABLE.to_parquet(tables / "SEX.parquet", index=False)
    bounds = TABLE.assign(lower=TABLE["count"] - 3, upper=TABLE["count"] + 3).drop(columns="count")
    bounds.to_parquet(tables / "SEX_margins.parquet", index=False)
    return tables.parent


def page_of(release: Path, **further: Any) -> str:
    path = release.parent / "explore.html"
    write_explorer(release, path, title="A", guarantee="B", **further)
    return path.read_text(encoding="utf-8")


def content_of(page: str) -> dict[str, Any]:
    found = re.search(r"^const content = (.*);$", page, re.MULTILINE)
    assert found
    return json.loads(found[1].replace("<\\/", "</"))


def test_a_page_holds_the_counts_and_margins_of_the_release(release: Path) -> None:
    levels = content_of(page_of(release))["levels"]
    assert [own["level"] for own in levels] == ["country", "town"]
    assert [own["counts"] for own in levels] == [[30, 40], [10, 15, 20, 25]]
    assert levels[1]["upper"] == [13, 18, 23, 28] and levels[1]["variables"] == ["f", "m"]
    assert levels[1]["names"] == ["North</script>", "South"]


def test_a_page_needs_no_network(release: Path) -> None:
    own = re.sub(r"<script>.*?</script>", "", page_of(release), flags=re.DOTALL)
    assert re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=", own) == []
    assert own.count("<script") == 1


def test_boundaries_are_drawn_by_the_codes_of_their_level(release: Path, tmp_path: Path) -> None:
    frame = geopandas.GeoDataFrame(
        {"code": ["N", "S"]}, geometry=[box(0, 1, 1, 2), box(0, 0, 1, 1)], crs="EPSG:3035"
    )
    frame.to_parquet(tmp_path / "towns.parquet")
    shapes = content_of(page_of(release, geometry=tmp_path / "towns.parquet"))["boundaries"]
    assert set(shapes) == {"town"}
    assert {(0.0, 1.0), (1.0, 2.0)} <= {tuple(point) for point in shapes["town"]["N"][0]}


def test_a_release_without_tables_of_areas_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match="no tables of areas"):
        write_explorer(tmp_path, tmp_path / "a.html", title="", guarantee="")

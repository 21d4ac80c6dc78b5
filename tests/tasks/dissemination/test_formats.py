"""Tables as CSV on the Web and as GeoParquet: readers that share no code read the same counts."""

from __future__ import annotations

import json
from pathlib import Path

import geopandas
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shapely.geometry import box
from spineflow.tasks.dissemination.formats import write_csvw, write_geoparquet
from spineflow.tasks.runs.files import STAMP_FILE
from spineflow.tasks.runs.stamps import write_rows

from tests.parquet_pages import surplus

DECLARED = pd.DataFrame(
    {
        "level": ["town"] * 4,
        "code": ["01", "01", "02", "02"],
        "name": ["North", "North", "South, or so", "South, or so"],
        "marital-status": ["never married", "married"] * 2,
        "count": pd.array([3, 0, None, 12], dtype="Int64"),
    }
)
MARGINS = DECLARED.drop(columns="count").assign(lower=[1, 0, 0, 10], upper=[5, 2, 9, 14])
WIDE = pd.DataFrame(
    {
        "SUMLEV": ["050", "050"],
        "GEOID": ["0500000US01", "0500000US02"],
        "GEOCODE": ["01", "02"],
        "P0010001": [10, 20],
        "P0010002": [4, 5],
    }
)
BOUNDS = WIDE[["SUMLEV", "GEOID", "GEOCODE"]].assign(
    P0010001_LOWER=[9, 18], P0010001_UPPER=[12, 21]
)


@pytest.fixture(params=[True, False], ids=["private", "not private"])
def release(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    (tmp_path / "tables").mkdir()
    (tmp_path / "settings.toml").touch()
    if not request.param:
        (tmp_path / STAMP_FILE).touch()
    tables = {"marital": DECLARED, "marital_margins": MARGINS, "050": WIDE, "050_margins": BOUNDS}
    for name, frame in tables.items():
        rows = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
        batch = {column: rows[column].combine_chunks() for column in rows.column_names}
        write_rows(tmp_path / "tables" / name, rows.schema, [batch])
    return tmp_path


def test_metadata_of_csv_describe_what_a_reader_of_csvw_finds(release: Path) -> None:
    csvw = pytest.importorskip("csvw")
    path = write_csvw(release, {"P0010001": "Total"})
    assert csvw.CSVW(str(path), validate=True).is_valid
    group = csvw.TableGroup.from_file(path)
    group.check_referential_integrity()
    tables = {str(table.url): table for table in group.tables}
    assert set(tables) == {"050.csv", "050_margins.csv", "marital.csv", "marital_margins.csv"}
    for table in tables.values():
        assert table.check_primary_key()
    read = list(tables["marital.csv"])
    assert [row["count"] for row in read] == [3, 0, None, 12]
    assert [row["code"] for row in read] == ["01", "01", "02", "02"]
    assert read[2]["name"] == "South, or so"
    assert [row["upper"] for row in tables["marital_margins.csv"]] == [5, 2, 9, 14]
    assert [row["P0010001_LOWER"] for row in tables["050_margins.csv"]] == [9, 18]


def test_metadata_of_csv_say_what_suppressed_counts_margins_and_variables_are(
    release: Path,
) -> None:
    content = json.loads(write_csvw(release, {"P0010001": "Total"}).read_text("utf-8"))
    columns = {
        (table["url"], own["titles"]): own
        for table in content["tables"]
        for own in table["tableSchema"]["columns"]
    }
    assert "suppressed" in columns["marital.csv", "count"]["dc:description"]
    assert columns["050.csv", "P0010001"]["dc:description"].endswith(": Total")
    assert columns["050_margins.csv", "P0010001_UPPER"]["dc:description"].startswith("Upper end")
    stamps = {"NOT PRIVATE" in str(table) for table in content["tables"]}
    stamped = pq.read_schema(release / "tables" / "050.parquet").metadata
    assert stamps == {b"NOT PRIVATE" in (stamped or {}).values()}


def test_geoparquet_follows_the_specification_and_has_the_counts(
    release: Path, tmp_path: Path
) -> None:
    shapes = [box(0, 1, 1, 2), box(0, 0, 1, 1)]
    own = geopandas.GeoDataFrame({"GEOID": ["01", "02"]}, geometry=shapes, crs="EPSG:3035")
    own.to_parquet(tmp_path / "areas.parquet")
    files = write_geoparquet(release, tmp_path / "areas.parquet", {"P0010001": "Total"})
    assert len(files) == 1, "a layer is of one level"
    file = files[0]
    geo = json.loads(pq.read_schema(file).metadata[b"geo"])
    assert geo["version"] == "1.1.0" and geo["primary_column"] == "geometry"
    described = geo["columns"]["geometry"]
    assert described["encoding"] == "WKB" and described["geometry_types"] == ["Polygon"]
    assert described["crs"]["id"] == {"authority": "EPSG", "code": 3035}
    assert surplus(file) == {}
    read = geopandas.read_parquet(file)
    assert read.crs == own.crs and read.geometry.geom_equals(own.geometry).all()
    assert list(read["code"]) == ["01", "02"]
    assert read.drop(columns=["code", "name", "geometry"]).notna().any(axis=None)


def test_areas_without_geometry_keep_their_counts(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    DECLARED.to_parquet(tmp_path / "tables" / "marital.parquet", index=False)
    MARGINS.to_parquet(tmp_path / "tables" / "marital_margins.parquet", index=False)
    frame = geopandas.GeoDataFrame({"code": ["01"]}, geometry=[box(0, 0, 1, 1)], crs=None)
    frame.to_parquet(tmp_path / "towns.parquet")
    (file,) = write_geoparquet(tmp_path, tmp_path / "towns.parquet", {})
    assert file.name == "marital_town.parquet"
    read = geopandas.read_parquet(file)
    assert list(read["married"]) == [0, 12] and pd.isna(read["never married"][1])
    assert list(read["married, upper"]) == [2, 14]
    assert list(read.geometry.notna()) == [True, False] and read.crs is None

"""Layers of areas: whatever the format, they are known by the codes that they hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.tables.geometry import read_shapes, refuse_unfit_geometry
from spineflow.tasks.topdown.product import ESTIMATE, TOPDOWN

geopandas = pytest.importorskip("geopandas")
shapely = pytest.importorskip("shapely")

TRACTS = [f"4400700{n:04d}" for n in range(4)]
PLACES = ["4412345", "4467890"]
LEVELS = {"050": ["44007"], "140": TRACTS, "160": PLACES}


def layer(codes: list[str], **columns: list[str]):
    shapes = [shapely.box(i, 0, i + 1, 1) for i in range(len(codes))]
    return geopandas.GeoDataFrame(
        {**columns, "GEOID20": codes, "geometry": shapes}, crs="EPSG:4269"
    )


def test_a_folder_has_a_layer_for_each_of_its_files(tmp_path: Path) -> None:
    layer(TRACTS, NAME=["a", "b", "c", "d"]).to_file(tmp_path / "tract.shp")
    layer(PLACES).to_file(tmp_path / "place.shp")
    layer(["99", "98"]).to_file(tmp_path / "unknown.shp")
    refuse_unfit_geometry(str(tmp_path))
    found = {read.level: read for read in read_shapes(tmp_path, LEVELS)}
    assert set(found) == {"140", "160"}
    assert set(found["140"].shapes) == set(TRACTS) and found["140"].crs.is_geographic
    (shape,) = found["140"].shapes[TRACTS[2]]
    assert min(shape.bounds) == 0 and shape.bounds[2] == 3


def test_geoparquet_of_a_whole_nation_gives_the_areas_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "tracts.parquet"
    layer([*TRACTS, *(f"3600100{n:04d}" for n in range(50))]).to_parquet(path)
    (read,) = read_shapes(path, LEVELS)
    assert read.level == "140" and set(read.shapes) == set(TRACTS)


def test_features_of_one_code_are_one_area_and_holes_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "tracts.parquet"
    frame = layer([*TRACTS, TRACTS[0]])
    holed = shapely.box(0, 0, 4, 4).difference(shapely.box(1, 1, 2, 2))
    frame.loc[1, "geometry"] = shapely.union_all([holed, shapely.box(8, 8, 9, 9)])
    frame.to_crs(3857).to_parquet(path)
    (read,) = read_shapes(path, LEVELS)
    parts = {code: shapely.get_parts(own) for code, own in read.shapes.items()}
    rings = {code: len(shapely.get_rings(own)) for code, own in parts.items()}
    assert rings[TRACTS[0]] == 2 and rings[TRACTS[1]] == 3
    assert not read.crs.is_geographic


@pytest.mark.parametrize("product", [TOPDOWN, ESTIMATE], ids=lambda product: product.name)
def test_every_flow_with_maps_refuses_it_before_it_reads_anything(tmp_path: Path, product) -> None:
    files = {
        "topdown": {"persons": "p", "units": "u", "geography": "g"},
        "estimate": {"measurements": "m", "geography": "g"},
    }[product.name]
    paths = {name: str(tmp_path / path) for name, path in files.items()}
    given = {
        "preset": "pl94_2020_us",
        "input": {**paths, "geometry": str(tmp_path / "none.parquet")},
        "privacy": {"dataset": "people"},
    }
    with pytest.raises(InputRefused, match="neither a file of areas nor a folder"):
        product.load(given)


def test_files_that_hold_no_areas_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "tracts.parquet"
    path.write_text("no parquet")
    with pytest.raises(InputRefused, match="tracts.parquet cannot be read as areas"):
        read_shapes(tmp_path, LEVELS)

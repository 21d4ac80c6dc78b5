"""The report's map: errors where the input is public, widths of margins where it is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse
from spineflow.tasks.pages.document import Figure, Section
from spineflow.tasks.products.presets import PRESETS
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.topdown.paths import geography_file
from spineflow.tasks.topdown.release.map_section import map_section
from spineflow.tasks.topdown.release.tabulations.tables import Tabulation, write_tables
from spineflow.tasks.topdown.settings import TopdownSettings

geopandas = pytest.importorskip("geopandas")
shapely = pytest.importorskip("shapely")

RELEASED = [10, 20, 30, 40]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A release of four blocks in two tracts, the last two of them in a place."""
    run = RunDirectory(tmp_path / "run")
    blocks = ["4400700011011000", "4400700011011001", "4400700021011000", "4400700021011001"]
    frame = pd.DataFrame(
        {
            "block_geocode": blocks,
            "AIANNHCE": "9999",
            "COUSUBFP": "00001",
            "PLACEFP": ["99999", "99999", "12345", "12345"],
        }
    )
    geography_file(run).parent.mkdir(parents=True)
    frame.to_parquet(geography_file(run), index=False)
    run.release.mkdir()
    histogram = sparse.csr_array(np.array(RELEASED).reshape(-1, 1))
    one = np.ones((1, 1), dtype=np.int64)
    write_tables([Tabulation(frame, ("P0010001",), (histogram,), (one,))], run.release)
    return run


def settings(folder: Path, geometry: Path | str | None) -> TopdownSettings:
    given = "" if geometry is None else f'geometry = "{geometry}"\n'
    written = folder / "settings.toml"
    written.write_text(
        'preset = "pl94_2020_us"\n[input]\npersons = "p"\nunits = "u"\n'
        f'geography = "g"\n{given}[privacy]\ndataset = "mapped"\n[run]\nuniverses = ["persons"]\n'
    )
    return load_settings(TopdownSettings, written, presets=PRESETS)


def layers(run: RunDirectory, folder: Path) -> Path:
    folder.mkdir()
    for stem in ("140_tract", "160_place"):
        codes = pq.read_table(run.release / "tables" / f"{stem}.parquet")["GEOCODE"].to_pylist()
        shapes = [shapely.box(i, 0, i + 1, 1) for i in range(len(codes))]
        frame = geopandas.GeoDataFrame({"GEOID": codes, "geometry": shapes}, crs=4269)
        frame.to_parquet(folder / f"{stem}.parquet")
    return folder


def words_and_svg(section: Section | None) -> tuple[str, str]:
    assert section is not None
    (figure,) = section.blocks
    assert isinstance(figure, Figure)
    return figure.caption, figure.svg


def test_for_confidential_input_margins_are_shown_and_nothing_else(run, tmp_path: Path) -> None:
    own = settings(tmp_path, layers(run, tmp_path / "geo"))
    section = map_section(run, own, None)
    assert section is not None and section.blocks == (
        "Without margins there is nothing to show on a map.",
    )
    tables = run.release / "tables"
    codes = pq.read_table(tables / "140_tract.parquet")["GEOCODE"]
    margins = {"GEOCODE": codes, "P0010001_LOWER": [20, 60], "P0010001_UPPER": [40, 64]}
    pq.write_table(pa.table(margins), tables / "140_tract_margins.parquet")
    caption, svg = words_and_svg(map_section(run, own, None))
    assert caption.startswith("Noise by tract: half the width") and "90 %" in caption
    assert "2 to" in svg and "to 10<" in svg


def test_geometry_is_a_path_beside_the_settings(tmp_path: Path) -> None:
    assert settings(tmp_path, "geo").input.geometry == str(tmp_path / "geo")
    assert "geometry" not in settings(tmp_path, "geo").input.paths()
    with pytest.raises(InputRefused, match="input.geometry must be a path"):
        settings(tmp_path, "s3://bucket/geo")

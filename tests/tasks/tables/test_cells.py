"""Cells of a grid that points lie in."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.tables.formats import GridCells
from spineflow.tasks.topdown.ingest.ingest import check_input_of
from spineflow.tasks.topdown.product import TOPDOWN

METRES = st.integers(0, 7_000_000)
CORNERS = [(2689000, 4337000), (2689000, 4338000), (2690000, 4337000)]
SETTINGS = """
[input]
areas = "areas.csv"
people = "people.ENDING"
confidential = false
[privacy]
dataset = "grid"
[census.geography]
table = "areas"
geolevels = ["country", "municipality", "cell"]
[census.files.people]
cells = { CELLS = { x = "E", y = "N", size = 1000 } }
[census.attributes]
sex = { column = "sex", levels = { male = ["1"], female = ["2"] } }
[census.universes.people]
table = "people"
attributes = ["sex"]
area = ["municipality", "cell"]
[budget.people]
rho = "1"
delta = "1e-10"
queries.other.detailed = "1"
"""


@given(st.lists(st.tuples(METRES, METRES), min_size=1), st.sampled_from([100, 1000, 250]))
def test_a_cell_is_that_of_its_south_west_corner(points, size) -> None:
    """In any type and spelling, and whatever fraction of a metre follows."""
    east, north = zip(*points, strict=True)
    expected = [
        f"CRS3035RES{size}mN{n // size * size}E{e // size * size}"
        for e, n in zip(east, north, strict=True)
    ]
    for write in (int, float, str, lambda m: f" {m}.99", lambda m: f"{m},5", lambda m: m + 0.75):
        batch = {"E": pa.array(list(map(write, east))), "N": pa.array(list(map(write, north)))}
        assert GridCells(x="E", y="N", size=size).codes(batch).to_pylist() == expected
    coded = {name: column.dictionary_encode() for name, column in batch.items()}
    assert GridCells(x="E", y="N", size=size).codes(coded).to_pylist() == expected


@pytest.mark.parametrize("value", [None, "", "x", "-5", "1e+06", float("nan"), -1.0, 1e12, -3])
def test_what_is_no_coordinate_has_no_cell(value) -> None:
    batch = {"E": pa.array([value, value]), "N": pa.array([1, 2])}
    assert GridCells(x="E", y="N", size=1000).codes(batch).to_pylist() == [None, None]


def check(folder: Path, ending: str = "csv", east: str = "4337400.5", cell: str = "cell"):
    """The check of five persons in three cells, of which one crosses municipalities."""
    rows = [("A", *CORNERS[0]), ("A", *CORNERS[1]), ("B", *CORNERS[1]), ("B", *CORNERS[2])]
    cells = [f"{place},CRS3035RES1000mN{n}E{e}" for place, n, e in rows]
    (folder / "areas.csv").write_text("\n".join(["municipality,cell", *cells, ""]))
    people = pd.DataFrame(
        {
            "municipality": ["A", "A", "B", "B", "B"],
            "E": [east, "4337000", "4338999", "4338001", "4337999.99"],
            "N": ["2689999.9", "2689000", "2689500", "2689500", "2690000"],
            "sex": ["1", "2", "1", "1", "2"],
        }
    )
    if ending == "csv":
        people.to_csv(folder / "people.csv", index=False)
    else:
        people.astype({"E": float, "N": float}).to_parquet(folder / "people.parquet")
    text = SETTINGS.replace("ENDING", ending).replace("CELLS", cell)
    (folder / "settings.toml").write_text(text)
    return check_input_of(TOPDOWN.load(folder / "settings.toml"))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_persons_are_counted_in_the_cells_of_their_coordinates(ending: str, tmp_path: Path) -> None:
    found = check(tmp_path, ending).accepted()
    counts = found.histograms["people"].toarray().sum(axis=1)
    areas = found.geography[["municipality", "cell"]].assign(people=counts)
    assert dict(zip(areas["municipality"] + areas["cell"].str[-16:], counts, strict=True)) == {
        "AN2689000E4337000": 2,
        "AN2689000E4338000": 0,
        "BN2689000E4338000": 2,
        "BN2690000E4337000": 1,
    }


@pytest.mark.parametrize("east", ["", "?", "9000000"])
def test_a_point_without_an_area_is_refused_with_a_count(east: str, tmp_path: Path) -> None:
    refused = check(tmp_path, east=east)
    assert [one.count for one in refused.findings] == [1]
    assert "cell must be the code of an area" in refused.findings[0].rule


def test_cells_that_nobody_reads_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match="files.people has cells of 'square'"):
        check(tmp_path, cell="square")

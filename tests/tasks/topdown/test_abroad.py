"""A census as an office abroad has it: from its files and a settings file to a release."""

from __future__ import annotations

from datetime import date

import pandas as pd
import pyarrow as pa
import pytest
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.topdown.ingest.ingest import check_input_of
from spineflow.tasks.topdown.intervals.report import write_intervals, write_run_intervals

from tests.tasks.topdown.abroad import write_census
from tests.tasks.topdown.declared import load, run_declared


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The settings file, and a run that has passed its checks."""
    folder = tmp_path_factory.mktemp("abroad")
    path = write_census(folder / "input")
    run, outcomes = run_declared(load(path), folder / "run")
    assert all(outcome.passed for outcome in outcomes)
    return path, run


def test_the_input_is_counted_as_a_plain_reading_counts_it(finished):
    path, _ = finished
    check = check_input_of(load(path))
    people = pd.read_csv(
        path.parent / "Bevölkerung.csv",
        sep=";",
        encoding="latin-1",
        dtype=str,
        keep_default_na=False,
    )
    born = pd.to_datetime(people["geboren"], format="%d.%m.%Y", errors="coerce")
    day = pd.Timestamp(date(2021, 3, 21))
    had_birthday = (born.dt.month * 100 + born.dt.day) <= 321
    age = day.year - born.dt.year - (~had_birthday)
    level = pd.cut(age, [-1, 14, 29, 64, 110], labels=False).fillna(4).astype(int)
    french = people["Sprachen"].str.split(",").map(lambda codes: "fr" in codes).astype(int)
    sex = (people["Geschlecht"] == "m").astype(int)
    cell = (sex * 5 + level) * 2 + french
    codes = check.result.areas.frame["Gemeinde"].tolist()
    expected = pd.crosstab(people["Gemeinde"], cell).reindex(codes, fill_value=0)
    found = pd.DataFrame(check.result.histograms["people"].toarray(), index=codes)
    assert found.to_numpy().sum() == len(people)
    pd.testing.assert_frame_equal(
        found.loc[:, expected.columns], expected, check_names=False, check_dtype=False
    )


def test_the_encoding_must_be_that_of_the_files(tmp_path):
    path = write_census(tmp_path, n=20)
    path.write_text(path.read_text().replace('encoding = "latin-1"\n', ""))
    with pytest.raises(
        InputRefused, match=r"not UTF-8 text \(first in line 1\).*census.files.other"
    ):
        check_input_of(load(path)).accepted(with_counts=True)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "windows-1252"])
def test_the_counts_do_not_depend_on_the_encoding(finished, encoding, tmp_path):
    expected = check_input_of(load(finished[0])).result
    found = check_input_of(load(write_census(tmp_path, encoding=encoding))).result
    for universe, histogram in expected.histograms.items():
        assert (histogram != found.histograms[universe]).nnz == 0
    assert found.areas.frame.equals(expected.areas.frame)


def intervals(finished, areas, query="total"):
    """Intervals of the people of some areas."""
    path, run = finished
    (written,) = write_run_intervals(run, load(path), [query], where=areas)
    return pd.read_parquet(written.path).set_index("geocode")


def test_intervals_of_areas_by_either_code_and_of_polygons(finished):
    pytest.importorskip("geopandas")
    by_path = pd.DataFrame(
        {"area": ["A", "A", "B"], "block": ["S%C3%BCd.S1.g1", "S%C3%BCd.S1.g2", "Stadt.Stadt.g4"]}
    )
    by_code = pd.DataFrame({"area": ["A", "A", "B"], "block": ["g1", "g2", "g4"]})
    expected = intervals(finished, by_path)
    pd.testing.assert_frame_equal(intervals(finished, by_code), expected)

    def square(name, west, south, east, north):
        ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
        shape = {"type": "Polygon", "coordinates": [ring]}
        return {"type": "Feature", "properties": {"area": name}, "geometry": shape}

    squares = {
        "type": "FeatureCollection",
        "features": [square("A", 8, 47.2, 8.6, 47.6), square("B", 6.9, 46, 7.1, 46.2)],
    }
    pd.testing.assert_frame_equal(intervals(finished, squares), expected)
    import geopandas

    frame = geopandas.GeoDataFrame.from_features(squares, crs="EPSG:4326").to_crs("EPSG:3035")
    pd.testing.assert_frame_equal(intervals(finished, frame), expected)
    squares["features"].append(square("C", 100, 0, 101, 1))
    with pytest.raises(
        InputRefused, match="no block's point in the polygons of 1 areas, such as 'C'"
    ):
        intervals(finished, squares)
    with pytest.raises(InputRefused, match="are no GeoJSON"):
        intervals(finished, {"type": "Topology"})


@pytest.mark.parametrize("name", ["blank.csv", "blank.parquet"])
@pytest.mark.parametrize("column", ["estimate", "difference"])
def test_rows_that_nothing_determines_are_counted(finished, tmp_path, name, column):
    path, run = finished
    (told,) = write_run_intervals(run, load(path), ["total"], where="Region")
    assert told.undetermined == 0 and told.sentence().endswith(f": {told.rows} intervals")
    parts = [pa.table({column: [1.0, None]}), pa.table({column: [None, None, 2.0]})]
    told = write_intervals(tmp_path / name, iter(parts), run)
    assert told.sentence().startswith(f"{tmp_path / name}: 2 intervals; 3 of 5 rows are blank, si")

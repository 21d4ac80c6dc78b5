"""A census as an office abroad has it: from its files and a settings file to a release."""

from __future__ import annotations

from datetime import date

import pandas as pd
import pytest
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.topdown.ingest.ingest import check_input_of

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


def test_the_formats_of_the_files_are_told(finished):
    path, _ = finished
    formats = check_input_of(load(path)).formats
    assert set(formats) == {"Gebiete.csv", "Bevölkerung.csv", "Wohnungen.csv"}
    assert set(formats.values()) == {"text separated by semicolons, decimal commas, iso8859-1"}


def test_tables_have_points_for_decimal_commas_and_letters_as_they_are(finished):
    _, run = finished
    [file] = run.root.rglob("Alter.parquet")
    table = pd.read_parquet(file)
    towns = table[table["level"] == "Gemeinde"].drop_duplicates("code").set_index("name")
    assert towns.loc["Möwenstadt", ["latitude", "longitude"]].tolist() == ["46.125", "7"]
    assert set(table["Geschlecht"]) == {"weiblich", "männlich"}
    skipped = table[table["level"] == "Bezirk"]
    assert "Stadt.Stadt" in set(skipped["code"])


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

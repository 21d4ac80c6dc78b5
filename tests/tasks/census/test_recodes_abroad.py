"""Recodes of cells that list codes, of dates of birth, of fractions and of missing codes; ranges of
levels; and geolevels that some areas skip.
"""

from __future__ import annotations

from datetime import date

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from spineflow.tasks.census.areas import AreaIndex, load_areas
from spineflow.tasks.census.attribute_declarations import AttributeDeclaration
from spineflow.tasks.census.declarations import CensusDeclaration, CensusGeography
from spineflow.tasks.census.queries import Coarsening, Schema
from spineflow.tasks.census.recodes import (
    NO_AGE,
    UNKNOWN,
    age_in_years,
    compiled_recode,
    date_pattern,
)
from spineflow.tasks.tables.columns import CodedColumn
from spineflow.tasks.tables.layouts import Field
from spineflow.tasks.tables.sources import InputFile
from spineflow.tasks.tables.value_tallies import ValueTally

ISO = date_pattern("YYYY-MM-DD")
DAYS = st.dates(date(1900, 1, 1), date(2100, 12, 31))


def levels(values, **declared):
    """The labels of some values of a column, None where no level has it."""
    recode = compiled_recode("x", AttributeDeclaration.model_validate({"column": "x", **declared}))
    found = [recode.level_of(value) for value in values]
    column = CodedColumn.from_arrow(pa.array(values, pa.string()), Field("x", "code"))
    assert recode.evaluate({"x": column}, len(values)).tolist() == found
    return [None if level == UNKNOWN else recode.levels[level] for level in found]


@given(DAYS, DAYS)
def test_an_age_is_the_number_of_birthdays_since(born, day):
    def birthday(year):
        try:
            return born.replace(year=year)
        except ValueError:
            return date(year, 3, 1)

    passed = sum(birthday(year) <= day for year in range(born.year + 1, day.year + 1))
    expected = str(passed) if born <= day else NO_AGE
    assert age_in_years(born.isoformat(), day, ISO) == expected


@pytest.mark.parametrize(
    "text", ["", "1990", "1990-02-30", "1990-13-01", "90-01-01", "1990-01-011", "x1990-01-01"]
)
def test_what_is_no_date_has_no_age(text):
    assert age_in_years(text, date(2021, 3, 21), ISO) == NO_AGE


def test_bins_and_levels_of_dates_of_birth():
    values = ["2021-03-20", "2021-03-22", "1956-03-21", "1956-03-22", "1890-01-01", None, "NA", "x"]
    told = {"age_at": "2021-03-21", "missing": "NA", "blank": "not stated"}
    assert levels(values, bins=[0, 65], largest=110, **told) == [
        *("0-64", None, "65-110", "0-64", None),
        *("not stated", "not stated", None),
    ]
    ranges = {"old": {"from": 65, "to": 140}, "young": [{"from": 0, "to": 64}]}
    assert levels(values, levels=ranges, **told)[:5] == ["young", None, "old", "young", "old"]


def test_cells_that_list_codes():
    values = ["fr", "de, fr", "de", None, "frfr", "de,xx", ",", "FR"]
    told = {"column": "x", "contains": "fr", "separator": ","}
    assert levels(values, **told) == ["yes", "yes", "no", "no", "no", "no", "no", "no"]
    assert levels(values, among="de", **told) == [
        *("yes", "yes", "no", "no", None, None, "no", None)
    ]
    named = {"labels": ["without", "with"], "blank": "not asked", "missing": ","}
    assert levels(values, **told, **named) == [
        *("with", "with", "without", "not asked", "without", "without", "not asked", "without")
    ]
    ranges = {"contains": ["7", {"from": 10, "to": 19}], "separator": "|"}
    assert levels(["1|12", "1|7", "1|20", "71"], **ranges) == ["yes", "yes", "no", "no"]


@given(
    st.lists(st.sampled_from(["a", "b", "c", "d"])), st.sets(st.sampled_from("abcd"), min_size=1)
)
def test_a_list_contains_what_a_set_of_it_meets(codes, wanted):
    told = {"contains": sorted(wanted), "separator": ";"}
    assert levels([";".join(codes)], **told) == ["yes" if wanted & set(codes) else "no"]


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"column": "x", "levels": {"a": "1"}, "separator": ","}, "separator, which only contains"),
        ({"column": "x", "levels": {"a": "1"}, "date_format": "DD.MM.YYYY"}, "only age_at"),
        ({"column": "x", "contains": "1"}, "needs the separator"),
        ({"column": "x", "contains": "1", "separator": ",", "labels": ["a"]}, "needs two labels"),
        ({"column": "x", "contains": "1", "separator": ",", "age_at": "2021-01-01"}, "has age_at"),
        ({"rules": [{"level": "a"}], "missing": "1"}, "has missing, which only a single column"),
        ({"column": "x", "numbers": [0, 9], "age_at": "2021-02-30"}, "must be a day"),
        ({"column": "x", "numbers": [0, 9], "age_at": 5}, "must be a day"),
        (
            {"column": "x", "numbers": [0, 9], "age_at": "2021-02-03", "date_format": "DD.MM.YY"},
            "once each",
        ),
    ],
)
def test_keys_that_do_not_go_together_are_refused(declared, words):
    with pytest.raises(ValidationError, match=words):
        AttributeDeclaration.model_validate(declared)


AGES = Schema(
    "people",
    ("age", "year"),
    (("0-4", "5-14", "15", "16-110", "not stated"), tuple(map(str, range(2000, 2010)))),
    (Coarsening("minor", "age", ("0-14", "rest"), (0, 0, 1, 1, 1)),),
)


def test_ranges_stand_for_the_levels_within_them():
    def allowed(value, name="age"):
        declared = CensusDeclaration.model_validate(
            {
                "layout": "cef",
                "geography": {"geolevels": ["US", "Block"], "rules": "blocks"},
                "attributes": {"age": {"column": "a", "numbers": [0, 1]}},
                "universes": {"u": {"table": "t", "attributes": ["age"], "invariants": []}},
                "quantities": [{"name": "q", "universe": "u", "where": {name: value}}],
            }
        )
        return AGES.positions(declared.quantities[0].where)

    assert allowed("0-14") == {"age": [0, 1]}
    assert allowed({"from": 0, "to": 15}) == {"age": [0, 1, 2]}
    assert allowed(["15", {"from": 16, "to": 120}]) == {"age": [2, 3]}
    assert allowed("2003-2005", "year") == {"year": [3, 4, 5]}
    assert allowed("0-14", "minor") == {"age": [0, 1]}
    assert allowed(["not stated", 0]) == {"age": [0, 4]}
    for value, words in [
        ("0-9", "cuts"),
        ("200-300", "no level in the range"),
        ("9-5", "no level"),
    ]:
        with pytest.raises(ValueError, match=words):
            allowed(value)


def test_a_geolevel_that_some_areas_skip(tmp_path):
    path = tmp_path / "areas.csv"
    path.write_text(
        "region;district;town\nS;S1;a\nS;S2;b\nC;;c\nC;;d\nM;;e\nM;M1;f\n", encoding="utf-8"
    )
    declared = CensusGeography(
        table="areas", geolevels=("land", "region", "district", "town"), skipped=("district",)
    )
    evidence = ValueTally()
    areas = load_areas([InputFile("areas", str(path), path.name)], declared, evidence)
    assert areas.frame["block_geocode"].tolist() == [
        *("C.C.c", "C.C.d", "M.M.e", "M.M1.f", "S.S1.a", "S.S2.b")
    ]
    assert len(areas.units["district"].path) == 5
    assert True not in evidence.suites["areas"]["taken_district"]
    texts = pd.DataFrame({"region": ["C", "C", "M", "S"], "district": [None, "C", "", None]})
    texts["town"] = ["c", "d", "e", "a"]
    columns = [
        CodedColumn.from_arrow(pa.array(texts[name], pa.string()), Field(name, "code"))
        for name in texts
    ]
    assert AreaIndex(areas, 3).positions(columns).tolist() == [0, 1, 2, -1]


def test_a_code_that_stands_for_two_districts_is_told(tmp_path):
    path = tmp_path / "areas.csv"
    path.write_text("region;district;town\n1;1;a\n1;;b\n2;1;c\n2;;d\n", encoding="utf-8")
    declared = CensusGeography(
        table="areas", geolevels=("land", "region", "district", "town"), skipped=("district",)
    )
    evidence = ValueTally()
    load_areas([InputFile("areas", str(path), path.name)], declared, evidence)
    assert evidence.suites["areas"]["taken_district"] == {True: 1, False: 3}

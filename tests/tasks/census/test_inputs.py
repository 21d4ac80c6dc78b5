"""Whole inputs: what is accepted, what is refused, and that no refusal shows a record."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.census import cef_tables, histograms
from spineflow.tasks.census.cef_2020 import CENSUS, PERSONS, UNITS
from spineflow.tasks.census.invariants import inhabitable
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.tables import columns, readers, value_tallies

from tests.census_inputs import check_inputs, generate_texts
from tests.tasks.census.conftest import Tables, assert_same

SHARED = Path(__file__).resolve().parents[3] / ".." / "shared"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared")

SCHEMAS = {"persons": PERSONS, "units": UNITS}
NAMES = {"people": "persons.parquet", "unit": "units.parquet", "block": "grfc.txt"}


def check(tables: Tables):
    return check_inputs(**tables.write())


def first_row(frame: pd.DataFrame, mask: pd.Series) -> int:
    return int(np.flatnonzero(mask)[0])


def in_unit_of(tables: Tables, code: str) -> pd.Series:
    return tables.persons["QGQTYP"] == code


# Every case changes rows of a valid county, and names the file, the column, the beginning of the
# rule, and the number of rows that break it.


def set_person(column: str, value: object) -> Callable[[Tables], None]:
    def change(tables: Tables) -> None:
        at_home = np.flatnonzero(tables.persons["QGQTYP"] == "   ")[[3, 5]]
        if not isinstance(value, int):
            tables.persons[column] = tables.persons[column].astype(object).map(str)
        tables.persons.iloc[at_home, tables.persons.columns.get_loc(column)] = value

    return change


def set_block(column: str, value: str) -> Callable[[Tables], None]:
    def change(tables: Tables) -> None:
        tables.geography.iloc[[2, 4], tables.geography.columns.get_loc(column)] = value

    return change


def drop_column(table: str, column: str) -> Callable[[Tables], None]:
    def change(tables: Tables) -> None:
        setattr(tables, table, getattr(tables, table).drop(columns=column))

    return change


def unknown_unit(tables: Tables) -> None:
    tables.persons.loc[[0, 1], "MAFID"] = 987_654_321


def unknown_block(tables: Tables) -> None:
    tables.units.loc[[0, 1], "OIDTB"] = "98765432109"


def repeated_unit(tables: Tables) -> None:
    housing = np.flatnonzero((tables.units["RTYPE"] == "2") & (tables.units["VACS"] == 0))
    tables.units = pd.concat([tables.units, tables.units.iloc[housing[:1]]], ignore_index=True)


def repeated_identifier(tables: Tables) -> None:
    empty = ~tables.geography["OIDTABBLK"].isin(tables.units["OIDTB"])
    row = first_row(tables.geography, empty)
    tables.geography.loc[row, "OIDTABBLK"] = tables.geography.loc[row - 1, "OIDTABBLK"]


def repeated_geocode(tables: Tables) -> None:
    parts = ["TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK"]
    tables.geography.loc[3, parts] = tables.geography.loc[4, parts]


def empty_facility(tables: Tables) -> None:
    tables.persons = tables.persons[~in_unit_of(tables, "401")]


def person_in_vacant_unit(tables: Tables) -> None:
    vacant = first_row(tables.units, (tables.units["RTYPE"] == "2") & (tables.units["VACS"] != 0))
    person = first_row(tables.persons, in_unit_of(tables, "   "))
    tables.persons.loc[person, "MAFID"] = tables.units.loc[vacant, "MAFID"]


def person_of_other_code(tables: Tables) -> None:
    tables.persons.loc[first_row(tables.persons, in_unit_of(tables, "501")), "QGQTYP"] = "502"
    tables.persons["QGQTYP"] = tables.persons["QGQTYP"].replace("502", "601")


def minor_in_nursing(tables: Tables) -> None:
    tables.persons.loc[first_row(tables.persons, in_unit_of(tables, "301")), "QAGE"] = 17


def set_unit(rtype: str, column: str, value: object) -> Callable[[Tables], None]:
    def change(tables: Tables) -> None:
        row = first_row(tables.units, tables.units["RTYPE"] == rtype)
        tables.units[column] = tables.units[column].astype(object).map(str)
        tables.units.loc[row, column] = value

    return change


BROKEN_ROWS = {
    "no CENRACE": (drop_column("persons", "CENRACE"), "people", "CENRACE", "the column", None),
    "no OIDTB": (drop_column("units", "OIDTB"), "unit", "OIDTB", "the column OIDTB is", None),
    "no PLACEFP": (drop_column("geography", "PLACEFP"), "block", "PLACEFP", "the column", None),
    "CENRACE 00": (set_person("CENRACE", "00"), "people", "CENRACE", "CENRACE must be", 2),
    "CENRACE 64": (set_person("CENRACE", "64"), "people", "CENRACE", "CENRACE must be", 2),
    "CENRACE Q7": (set_person("CENRACE", "Q7"), "people", "CENRACE", "CENRACE must be", 2),
    "CENRACE ²": (set_person("CENRACE", "²"), "people", "CENRACE", "CENRACE must be", 2),
    "CENRACE blank": (set_person("CENRACE", "  "), "people", "CENRACE", "CENRACE must be", 2),
    "QAGE 130": (set_person("QAGE", 130), "people", "QAGE", "QAGE must be a whole number", 2),
    "QAGE -1": (set_person("QAGE", -1), "people", "QAGE", "QAGE must be a whole number", 2),
    "QAGE blank": (set_person("QAGE", "   "), "people", "QAGE", "QAGE must be a whole", 2),
    "CENHISP 3": (set_person("CENHISP", "3"), "people", "CENHISP", "CENHISP must be", 2),
    "QGQTYP 777": (set_person("QGQTYP", "777"), "people", "QGQTYP", "QGQTYP must be blank", 2),
    "unknown unit": (unknown_unit, "people", "MAFID", "MAFID of every person must", 2),
    "blank MAFID": (set_person("MAFID", " "), "people", "MAFID", "MAFID must be filled", 2),
    "unknown block": (unknown_block, "unit", "OIDTB", "OIDTB of every unit must", 2),
    "repeated unit": (repeated_unit, "unit", "MAFID", "MAFID must be different", 2),
    "repeated OID": (repeated_identifier, "block", "OIDTABBLK", "OIDTABBLK must be diff", 2),
    "repeated block": (repeated_geocode, "block", "TABBLK", "every block", 2),
    "empty facility": (empty_facility, "unit", "MAFID", "every group-quarters facility", 1),
    "vacant unit": (person_in_vacant_unit, "people", "MAFID", "no person may have", 1),
    "other QGQTYP": (person_of_other_code, "people", "QGQTYP", "QGQTYP of every person", 1),
    "minor": (minor_in_nursing, "people", "QAGE", "nobody in a nursing facility", 1),
    "unit RTYPE 3": (set_unit("2", "RTYPE", "3"), "unit", "RTYPE", "RTYPE must be", 1),
    "unit QGQTYP 999": (set_unit("4", "QGQTYP", "999"), "unit", "QGQTYP", "QGQTYP must be", 1),
    "unit QGQTYP none": (set_unit("4", "QGQTYP", ""), "unit", "QGQTYP", "QGQTYP must be f", 1),
    "house QGQTYP": (set_unit("2", "QGQTYP", "501"), "unit", "QGQTYP", "QGQTYP must be b", 1),
    "VACS blank": (set_unit("2", "VACS", " "), "unit", "VACS", "VACS must be a digit", 1),
    "COUSUBFP blank": (set_block("COUSUBFP", ""), "block", "COUSUBFP", "COUSUBFP (county", 2),
    "PLACEFP 1234": (set_block("PLACEFP", "1234"), "block", "PLACEFP", "PLACEFP (place)", 2),
    "AIANNHCE 9A9B": (set_block("AIANNHCE", "9A9B"), "block", "AIANNHCE", "AIANNHCE (", 2),
    "tract blank": (set_block("TABTRACTCE", " "), "block", "TABTRACTCE", "TABTRACTCE (tract", 2),
    "county 1": (set_block("TABBLKCOU", "1"), "block", "TABBLKCOU", "TABBLKCOU (county)", 2),
    "state XX": (set_block("TABBLKST", "XX"), "block", "TABBLKST", "TABBLKST (state) must", 2),
    "OID blank": (set_block("OIDTABBLK", ""), "block", "OIDTABBLK", "OIDTABBLK must be f", 2),
}


@pytest.mark.parametrize("case", BROKEN_ROWS)
def test_broken_rows_are_refused(case, tables, rules_only):
    change, file, column, rule, count = BROKEN_ROWS[case]
    change(tables)
    result = check(tables)
    with pytest.raises(InputRefused) as refused:
        result.accepted()
    finding = result.findings[0]
    assert finding.file == NAMES[file]
    assert finding.column == column
    assert finding.rule.startswith(rule)
    assert finding.count == count
    message = str(refused.value)
    assert message.startswith(finding.sentence().removesuffix("."))
    assert message.endswith(".")
    assert refused.value.exit_code == 2
    assert refused.value.__context__ is None and refused.value.__cause__ is None
    if count is not None:
        assert f"({count} row" not in message
        with pytest.raises(InputRefused, match=rf"\({count} rows? breaks? this\)"):
            result.accepted(with_counts=True)


@pytest.mark.parametrize(
    "cases",
    [
        ["CENRACE 00", "QAGE 130", "CENHISP 3", "QGQTYP 777", "COUSUBFP blank", "repeated unit"],
        ["minor", "other QGQTYP", "vacant unit", "empty facility", "tract blank", "VACS blank"],
        ["unknown unit", "unknown block", "repeated OID", "unit RTYPE 3", "PLACEFP 1234"],
        ["blank MAFID", "repeated block", "house QGQTYP", "unit QGQTYP 999", "OID blank"],
        ["CENRACE blank", "QAGE blank", "unit QGQTYP none", "state XX", "county 1"],
    ],
)
def test_great_expectations_and_counts_agree(cases, tables):
    for case in cases:
        BROKEN_ROWS[case][0](tables)
    result = check(tables)
    failed = [outcome for outcome in result.outcomes if not outcome.passed]
    assert len(failed) == len(result.findings) >= len(cases)
    assert all(finding.count for finding in result.findings)


@pytest.mark.usefixtures("rules_only")
def test_a_rule_that_great_expectations_alone_finds_broken_refuses(tables, monkeypatch):
    judge = value_tallies.run_suites

    def stricter(rules, suites):
        outcomes = judge(rules, suites)
        return (replace(outcomes[0], passed=False), *outcomes[1:])

    monkeypatch.setattr(value_tallies, "run_suites", stricter)
    with pytest.raises(InputRefused, match="TABBLKST"):
        check(tables).accepted(with_counts=True)


@pytest.mark.usefixtures("rules_only")
def test_nothing_is_made_of_an_input_that_breaks_a_rule(tables, monkeypatch):
    set_person("CENRACE", "64")(tables)
    made = []
    monkeypatch.setattr(cef_tables.CefTables, "result", lambda *_: made.append(True))
    assert check(tables).result is None
    assert not made


@pytest.mark.parametrize(
    ("column", "value"),
    [("CENRACE", "64"), ("QAGE", 130), ("CENHISP", "7"), ("QGQTYP", "777"), ("CENRACE", "Qé")],
)
def test_no_value_of_a_record_is_shown(column, value, tables, capfd):
    set_person(column, value)(tables)
    tables.persons["MAFID"] += 500_000_000
    result = check(tables)
    text = " ".join(
        [
            *(finding.sentence(with_counts=False) for finding in result.findings),
            repr(result.outcomes),
            *capfd.readouterr(),
        ]
    )
    numbers = set(re.findall(r"\w+", text))
    assert str(value) not in numbers
    assert not numbers & set(tables.persons["MAFID"].astype(str))


def test_a_valid_county_passes_every_rule(county):
    result = check_inputs(persons=county.persons, units=county.units, geography=county.geography)
    assert result.findings == ()
    assert all(outcome.passed for outcome in result.outcomes)
    assert {outcome.subject for outcome in result.outcomes} == {
        "geography",
        "units",
        "persons",
        "cross_table",
    }


def test_result_agrees_with_a_slow_tabulation(expected, tables):
    result = expected
    geography = tables.geography
    geography["geocode"] = geography[
        ["TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK"]
    ].agg("".join, axis=1)
    units = tables.units.merge(geography, left_on="OIDTB", right_on="OIDTABBLK")
    people = tables.persons.merge(units[["MAFID", "geocode"]], on="MAFID")
    hhgq = people["QGQTYP"].str.strip().map(lambda code: int(code[0]) if code else 0)
    # 801 and 901 are of type 7 with 701; the first digit is the type of the others.
    hhgq = hhgq.clip(upper=7)
    cell = (
        ((hhgq * 2 + (people["QAGE"] >= 18)) * 2 + (people["CENHISP"] == "2")) * 63
        + people["CENRACE"].astype(int)
        - 1
    )
    counted = people.groupby(["geocode", cell]).size()
    histogram = result.histograms["persons"].tocoo()
    codes = result.geography["block_geocode"].to_numpy()
    actual = {
        (codes[row], cell): count
        for row, cell, count in zip(histogram.row, histogram.col, histogram.data, strict=True)
    }
    assert actual == counted.to_dict()
    assert result.histograms["persons"].shape == (len(geography), PERSONS.n_cells)

    housing = units[units["RTYPE"] == "2"]
    occupancy = housing.groupby(["geocode", housing["VACS"] == 0]).size().unstack(fill_value=0)
    occupancy = occupancy.reindex(codes, fill_value=0)
    np.testing.assert_array_equal(result.histograms["units"].toarray(), occupancy.to_numpy())

    invariants = result.public.set_index("block_geocode")
    assert list(invariants.index) == sorted(geography["geocode"])
    np.testing.assert_array_equal(
        invariants["housing_units"], housing.groupby("geocode").size().reindex(codes, fill_value=0)
    )
    colleges = units[units["QGQTYP"] == "501"].groupby("geocode").size()
    np.testing.assert_array_equal(invariants["facilities_5"], colleges.reindex(codes, fill_value=0))
    assert inhabitable(result.public).sum() == units["geocode"].nunique()
    assert result.totals == {"35": len(people)}
    assert list(result.geography) == ["block_geocode", "AIANNHCE", "COUSUBFP", "PLACEFP", "SDUNI"]


@pytest.mark.usefixtures("rules_only")
def test_final_pop_is_not_trusted(tables):
    tables.units["FINAL_POP"] = 0
    assert check(tables).accepted().totals == {"35": len(tables.persons)}


@pytest.mark.usefixtures("rules_only")
def test_other_schemas_need_their_own_columns_only(tables):
    tables.persons = tables.persons.drop(columns=["CENHISP"])
    schema = CENSUS.schema("persons", ("sex", "age"))
    found = check_inputs(**tables.write(), person_schema=schema, unit_schema=None)
    result = found.accepted()
    histogram = result.histograms["persons"].toarray().sum(axis=0).reshape(2, 116)
    ages = tables.persons.groupby([tables.persons["QSEX"], "QAGE"]).size()
    assert histogram[0, 40] == ages.get(("1", 40), 0)
    assert histogram.sum() == len(tables.persons)
    assert "units" not in result.histograms
    assert not any(outcome.name == "cenhisp_is_valid" for outcome in found.outcomes)


@pytest.mark.usefixtures("rules_only")
@pytest.mark.parametrize("as_type", ["integers", "texts", "floats", "categories"])
def test_types_of_parquet_columns_do_not_matter(as_type, tables, expected):
    for frame in (tables.persons, tables.units):
        for column in ("RTYPE", "MAFID", "OIDTB", "QAGE", "CENHISP", "CENRACE", "QGQTYP", "VACS"):
            if column not in frame:
                continue
            numbers = pd.to_numeric(frame[column].astype(str).str.strip(), errors="coerce")
            frame[column] = {
                "integers": lambda n: n.astype("Int64"),
                "texts": lambda n: n.astype("Int64").astype("string"),
                "floats": lambda n: n.astype(float),
                "categories": lambda n: n.astype("Int64").astype("string").astype("category"),
            }[as_type](numbers)
    paths = tables.write()
    geography = tables.geography
    if as_type != "categories":
        numbers = geography.astype("int64")
        paths["geography"] = tables.directory / "grfc.parquet"
        numbers.to_parquet(paths["geography"])
    result = check_inputs(**paths).accepted()
    assert_same(result, expected, further=as_type == "categories")


@pytest.mark.usefixtures("rules_only")
@pytest.mark.parametrize(
    ("layout", "gzipped"),
    [("delimited", False), ("delimited", True), ("fixed_width", False), ("fixed_width", True)],
)
def test_layouts_agree(layout, gzipped, tmp_path, expected):
    other = generate_texts(tmp_path, layout, gzipped=gzipped, persons=900, seed=1)
    assert_same(
        check_inputs(
            persons=other.persons, units=other.units, geography=other.geography
        ).accepted(),
        expected,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("rules_only")
@pytest.mark.parametrize("mafid", ["{}", "U{}"])
def test_batches_do_not_matter(mafid, tables, monkeypatch):
    for table in (tables.persons, tables.units):
        table["MAFID"] = table["MAFID"].map(mafid.format)
    whole = check(tables).accepted()
    monkeypatch.setattr(readers, "_BATCH_ROWS", 97)
    monkeypatch.setattr(columns, "MOST_BYTES", 100)
    monkeypatch.setattr(columns, "_SORTED_AT_ONCE", 70)
    monkeypatch.setattr(columns, "_SAMPLE", 40)
    monkeypatch.setattr(histograms, "_FEWEST_HELD", 60)
    monkeypatch.setattr(histograms, "_MOST_ENTRIES", 80)
    in_batches = check(tables).accepted()
    assert_same(in_batches, whole)
    assert in_batches.digests(b"key") == whole.digests(b"key")
    one, other = (found.referred["persons"] for found in (in_batches, whole))
    np.testing.assert_array_equal(one.area, other.area)
    np.testing.assert_array_equal(one.records, other.records)

    tables.units.loc[[5, 150, 250], "MAFID"] = tables.units.loc[0, "MAFID"]
    tables.units.loc[[6, 160, 260], "MAFID"] = " "
    tables.units.loc[[7, 170], "OIDTB"] = "98765432109"
    broken = check(tables)
    monkeypatch.undo()
    assert broken.findings == check(tables).findings
    assert [finding.count for finding in broken.findings if finding.file == NAMES["unit"]] == [
        3,
        4,
        2,
    ]


@pytest.mark.slow
@needs_shared
def test_totals_of_the_real_state():
    folder = SHARED / "data" / "ri2010"
    result = check_inputs(
        persons=folder / "persons.parquet",
        units=folder / "units.parquet",
        geography=folder / "grfc.txt",
    ).accepted()
    assert result.totals == {"44": 1_052_567}
    assert result.histograms["persons"].sum() == 1_052_567
    assert result.public["housing_units"].sum() == 466_117
    assert result.histograms["units"].sum() == 466_117
    assert result.public.filter(like="facilities_").to_numpy().sum() == 326
    assert len(result.geography) == 25_181

    published = pd.read_parquet(folder / "published_block_counts.parquet")
    geocode = result.geography["block_geocode"]
    published = published.set_index("GEOID").reindex(geocode.str[:11] + geocode.str[12:])
    by_block = result.histograms["persons"]
    is_hispanic = PERSONS.levels("hispanic") == 1
    white = PERSONS.cells_where({"hispanic": [0], "cenrace": [0], "votingage": [1]})
    np.testing.assert_array_equal(
        by_block[:, is_hispanic].sum(axis=1), published["pop_hisp"].to_numpy()
    )
    np.testing.assert_array_equal(by_block[:, white].sum(axis=1), published["vap_white"].to_numpy())

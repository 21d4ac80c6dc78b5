"""Input of detailed groups: what is read, what is refused and how, in both layouts."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.detailed_groups.ingest.generate import generate_persons, generate_specification
from spineflow.tasks.detailed_groups.ingest.ingest import input_digests
from spineflow.tasks.detailed_groups.ingest.inputs import AcceptedGroups, check_groups_input
from spineflow.tasks.detailed_groups.workload.parameters import read_parameters, read_specification
from spineflow.tasks.detailed_groups.workload.specification import NONE, code_positions
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.tables.findings import InputCheck

BLOCK = ["TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLK"]
CODES = [f"QRACE{i}" for i in range(1, 9)]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    generate_specification(folder, states=("44", "25"))
    codes = list(read_specification(str(folder)).names)
    generate_persons(folder, codes, persons=400, tracts=6, states=("44", "25", "50"), seed=4)
    return folder


@pytest.fixture(scope="module")
def specification(generated: Path):
    return read_specification(str(generated))


@pytest.fixture(scope="module")
def parameters(generated: Path):
    return read_parameters(str(generated), {})


def table(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, sep="|", dtype=str, keep_default_na=False)


class Data:
    """A data directory as texts, that a test spoils."""

    def __init__(self, source: Path) -> None:
        self.persons = table(source / "person-records.txt")
        self.geography = table(source / "GRF-C.txt")

    def check(self, folder: Path, specification, parameters) -> InputCheck[AcceptedGroups]:
        for name, frame in (("person-records", self.persons), ("GRF-C", self.geography)):
            frame.to_csv(folder / f"{name}.txt", sep="|", index=False)
        return check_groups_input({"data": str(folder)}, specification, parameters)


@pytest.fixture
def data(generated: Path) -> Data:
    found = Data(generated)
    kept = found.persons["TABBLKST"].isin(["44", "25"])
    found.persons = found.persons[kept].reset_index(drop=True)
    return found


def test_persons_are_counted_by_area_codes_and_cell(generated, specification, parameters) -> None:
    """Against a count of the same rows with pandas; the state 50 is not tabulated."""
    result = check_groups_input({"data": str(generated)}, specification, parameters).accepted()
    persons = table(generated / "person-records.txt")
    persons = persons[persons["TABBLKST"].isin(["44", "25"])]
    assert result.persons.count.sum() == len(persons)
    blocks = set(map(tuple, result.blocks[BLOCK[:3]].to_numpy()))
    assert blocks == {
        row
        for row in map(tuple, table(generated / "GRF-C.txt")[BLOCK[:3]].to_numpy())
        if row[0] != "50"
    }
    number = code_positions(specification)
    expected = persons.apply(
        lambda row: (
            *sorted({number[code] for code in row[CODES] if code != "Null"}),
            -number[row["QSPAN"]] - 2,
        ),
        axis=1,
    ).value_counts()
    found: dict[tuple[int, ...], int] = {}
    counted = result.persons
    for combination, count in zip(counted.combination, counted.count, strict=True):
        codes = counted.race_codes[combination]
        key = (*codes[codes != NONE].tolist(), -int(counted.ethnicity_code[combination]) - 2)
        found[key] = found.get(key, 0) + int(count)
    assert found == expected.to_dict()
    assert (np.diff(counted.area) >= 0).all()


def test_the_order_of_codes_and_repeated_ones_are_no_matter(
    data: Data, tmp_path, specification, parameters
) -> None:
    first, second = (
        data.persons.loc[0, "QRACE1"],
        "1001" if data.persons.loc[0, "QRACE1"] != "1001" else "1002",
    )
    data.persons = pd.concat([data.persons.iloc[[0]]] * 3, ignore_index=True)
    data.persons[CODES] = "Null"
    data.persons.loc[0, CODES[:2]] = [first, second]
    data.persons.loc[1, CODES[:2]] = [second, first]
    data.persons.loc[2, CODES[:3]] = [second, first, second]
    # Both states need somebody.
    other = data.persons.loc[[0]].assign(
        **dict(zip(BLOCK, block_of_other_state(data), strict=True))
    )
    data.persons = pd.concat([data.persons, other], ignore_index=True)
    result = data.check(tmp_path, specification, parameters).accepted()
    assert len(result.persons.race_codes) == 1
    assert result.persons.count.tolist() in ([3, 1], [1, 3])


def block_of_other_state(data: Data) -> list[str]:
    own = data.persons.loc[0, "TABBLKST"]
    other = data.geography[~data.geography["TABBLKST"].isin([own, "50"])]
    return other.iloc[0][BLOCK].tolist()


def spoil_persons(column: str, value: str):
    def spoil(data: Data) -> None:
        data.persons.loc[3, column] = value

    return spoil


def spoil_geography(column: str, value: str):
    def spoil(data: Data) -> None:
        data.geography.loc[0, column] = value

    return spoil


def person_in_unknown_block(data: Data) -> None:
    data.persons.loc[3, "TABBLK"] = "9876"


def block_twice(data: Data) -> None:
    data.geography = pd.concat([data.geography, data.geography.iloc[[0]]])


def block_of_a_person_missing(data: Data) -> None:
    block = data.persons.loc[3, BLOCK]
    data.geography = data.geography[(data.geography[BLOCK] != block.to_numpy()).any(axis=1)]


def code_after_none(data: Data) -> None:
    data.persons.loc[3, CODES] = ["1000", "Null", "1001", *["Null"] * 5]


def no_geography(data: Data) -> None:
    data.geography = data.geography[data.geography["TABBLKST"] == "50"]


def missing_column(data: Data) -> None:
    data.geography = data.geography.drop(columns="PLACEFP")


PERSONS, GEOGRAPHY = "person-records.txt", "GRF-C.txt"
REFUSED = {
    "block missing from the geography": (
        person_in_unknown_block,
        PERSONS,
        "must be in the geography",
    ),
    "geography without the block": (block_of_a_person_missing, PERSONS, "must be in the geography"),
    "block listed twice": (block_twice, GEOGRAPHY, "must occur once"),
    "blank age": (spoil_persons("QAGE", ""), PERSONS, "QAGE must be a whole number"),
    "age too high": (spoil_persons("QAGE", "116"), PERSONS, "QAGE must be a whole number"),
    "age no number": (spoil_persons("QAGE", "4x"), PERSONS, "QAGE must be a whole number"),
    "blank sex": (spoil_persons("QSEX", ""), PERSONS, "QSEX must be 1 or 2"),
    "other sex": (spoil_persons("QSEX", "3"), PERSONS, "QSEX must be 1 or 2"),
    "other race": (spoil_persons("CENRACE", "64"), PERSONS, "CENRACE must be"),
    "householder": (spoil_persons("HOUSEHOLDER", "yes"), PERSONS, "HOUSEHOLDER must be"),
    "blank state": (spoil_persons("TABBLKST", ""), PERSONS, "TABBLKST must be 2 digits"),
    "short state": (spoil_persons("TABBLKST", "4"), PERSONS, "TABBLKST must be 2 digits"),
    "county out of form": (spoil_persons("TABBLKCOU", "1"), PERSONS, "TABBLKCOU must be 3"),
    "tract out of form": (spoil_persons("TABTRACTCE", "abcdef"), PERSONS, "TABTRACTCE must be 6"),
    "block out of form": (spoil_persons("TABBLK", ""), PERSONS, "TABBLK must be 4 digits"),
    "no race": (spoil_persons("QRACE1", "Null"), PERSONS, "QRACE1 must be a code"),
    "blank race": (spoil_persons("QRACE1", ""), PERSONS, "QRACE1 must be a code"),
    "blank further race": (spoil_persons("QRACE2", ""), PERSONS, "QRACE2 must be Null or a code"),
    "unknown race": (spoil_persons("QRACE1", "8765"), PERSONS, "must be one of race-and"),
    "unknown ethnicity": (spoil_persons("QSPAN", "8765"), PERSONS, "must be one of race-and"),
    "blank ethnicity": (spoil_persons("QSPAN", ""), PERSONS, "QSPAN must be a code"),
    "code after none": (code_after_none, PERSONS, "no race code may follow a Null"),
    "geography: place": (spoil_geography("PLACEFP", "123"), GEOGRAPHY, "PLACEFP must be 5"),
    "geography: area": (spoil_geography("AIANNHCE", ""), GEOGRAPHY, "AIANNHCE must be 4"),
    "geography: county": (spoil_geography("TABBLKCOU", "x"), GEOGRAPHY, "TABBLKCOU must be 3"),
    "geography: state": (spoil_geography("TABBLKST", "x"), GEOGRAPHY, "TABBLKST must be 2"),
    "geography of other states": (no_geography, GEOGRAPHY, "no row is in the states of the pass"),
    "column missing": (missing_column, GEOGRAPHY, "the column PLACEFP is missing"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_rows_are_refused_with_one_public_sentence(
    case: str, data: Data, tmp_path, specification, parameters
) -> None:
    spoil, file, expected = REFUSED[case]
    spoil(data)
    check = data.check(tmp_path, specification, parameters)
    with pytest.raises(InputRefused) as refused:
        check.accepted()
    sentence = str(refused.value)
    assert sentence.startswith(f"{file}: ")
    assert expected in sentence
    assert "\n" not in sentence
    assert "row breaks" not in sentence and "rows break" not in sentence
    # No value of the spoilt record.
    for value in ("9876", "8765", "4x", "116", "abcdef"):
        assert not re.search(rf"\b{value}\b", sentence)


def test_a_pass_without_persons_is_refused(data: Data, tmp_path, specification, parameters) -> None:
    data.persons = data.persons[:0]
    data.persons.loc[0] = (
        ["001", "1", "True", "50", "001", "000100", "1000", "01", "1000"] + ["Null"] * 7 + ["1000"]
    )
    with pytest.raises(InputRefused, match="no row is in the states of the pass run_us"):
        data.check(tmp_path, specification, parameters).accepted()


@pytest.fixture(scope="module")
def census(county: Path, generated: Path, tmp_path_factory) -> dict[str, str]:
    """The county's tables with race and ethnicity codes of the generated specification."""
    persons = pd.read_parquet(county / "persons.parquet")
    folder = tmp_path_factory.mktemp("census")
    random = np.random.default_rng(3)
    codes = np.array(list(read_specification(str(generated)).names))
    chosen = codes[random.integers(0, codes.size, (len(persons), 2))]
    for column in CODES:
        persons[column] = " " * 4
    persons["QRACE1"] = chosen[:, 0]
    persons["QRACE2"] = np.where(random.random(len(persons)) < 0.3, chosen[:, 1], " " * 4)
    persons["QSPAN"] = "1000"
    persons.to_parquet(folder / "persons.parquet")
    return {
        "persons": str(folder / "persons.parquet"),
        "units": str(county / "units.parquet"),
        "geography": str(county / "grfc.txt"),
    }


def state_of(tables: dict[str, str]) -> str:
    return table(Path(tables["geography"]))["TABBLKST"].iloc[0]


def test_census_tables_are_read_as_the_production_layout(
    census, generated, specification, parameters, tmp_path
) -> None:
    """The same people in both layouts give the same counts, and are recognised.

    A layout tells blanks in its own way, and one of them has units.
    """
    own = replace(parameters, states=(state_of(census),))
    result = check_groups_input(census, specification, own).accepted()
    persons = pd.read_parquet(census["persons"])
    units = pd.read_parquet(census["units"])[["MAFID", "OIDTB"]].astype(str)
    geography = table(Path(census["geography"]))
    frame = persons.assign(MAFID=persons["MAFID"].astype(str)).merge(units, on="MAFID")
    frame = frame.merge(geography, left_on="OIDTB", right_on="OIDTABBLK")
    codes = frame[CODES].apply(lambda column: column.str.strip().replace("", "Null"))
    records = pd.DataFrame(
        {
            "QAGE": frame["QAGE"].astype(int).map("{:03d}".format),
            "QSEX": frame["QSEX"].astype(str),
            "HOUSEHOLDER": "True",
            **{name: frame[name] for name in BLOCK},
            "CENRACE": frame["CENRACE"].astype(int).map("{:02d}".format),
            **codes,
            "QSPAN": frame["QSPAN"],
        }
    )
    records.to_csv(tmp_path / "person-records.txt", sep="|", index=False)
    columns = [*BLOCK, "PLACEFP", "AIANNHCE"]
    geography[columns].to_csv(tmp_path / "GRF-C.txt", sep="|", index=False)
    other = check_groups_input({"data": str(tmp_path)}, specification, own).accepted()
    for name in ("area", "cell", "count"):
        assert np.array_equal(getattr(result.persons, name), getattr(other.persons, name))
    assert result.blocks.equals(other.blocks)
    known, asked = (input_digests(found, b"k")["persons"] for found in (result, other))
    assert known.whole == asked.whole
    assert len({*known.parts} & {*asked.parts}) > 1
    assert result.invariants is not None
    assert len(result.invariants) == len(result.blocks)


def test_the_ledger_recognises_the_people_of_the_topdown_flow(
    census, specification, parameters
) -> None:
    """Threat model: the same people under another name."""
    from tests.census_inputs import check_inputs

    own = replace(parameters, states=(state_of(census),))
    result = check_groups_input(census, specification, own).accepted()
    groups = input_digests(result, b"k")["persons"]
    topdown = check_inputs(**census).accepted().digests(b"k")["persons"]
    assert groups.whole == topdown.whole
    assert len({*groups.parts} & {*topdown.parts}) > 1

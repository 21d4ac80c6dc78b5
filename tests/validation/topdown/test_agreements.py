"""The independent check of universes that agree, on small files of rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from spineflow.validation.topdown.agreements import (
    AgreeingRows,
    ExpectedNumbers,
    check_agreement,
)


def expected(folder: Path, occupied: str, persons: str) -> ExpectedNumbers:
    """A letter for the block of each occupied unit, and of each person in a household."""
    homes = [(block, "1") for block in occupied] + [("a", "2"), ("z", "2")]
    people = [(block, "3") for block in persons] + [("a", "5"), ("z", "5")]
    for name, rows in (("units", homes), ("persons", people)):
        frame = pd.DataFrame(rows, columns=["code", "kind"])
        frame.insert(0, "state", "44")
        frame.to_parquet(folder / f"{name}.parquet")
    area = ("state", "code")
    units = AgreeingRows(folder / "units.parquet", area, {"kind": ["1"]})
    persons = AgreeingRows(folder / "persons.parquet", area, {"kind": ["3"]})
    return ExpectedNumbers("released_universes_agree", "units", units, persons, persons, 3)


@pytest.mark.parametrize(
    ("occupied", "persons"), [("", ""), ("a", "a"), ("ab", "aaab"), ("aab", "aaaaaabb")]
)
def test_possible_blocks_pass(tmp_path, occupied, persons) -> None:
    assert check_agreement(expected(tmp_path, occupied, persons)).passed


@pytest.mark.parametrize(
    ("occupied", "persons", "seen"),
    [
        (
            "a",
            "",
            ("44 a has 1 records", "for 0 to 0"),
        ),
        (
            "",
            "b",
            ("44 b has 0 records", "for 1 to 1"),
        ),
        (
            "aab",
            "ab",
            ("44 a has 2 records", "for 1 to 1"),
        ),
        (
            "ab",
            "aaaab",
            ("44 a has 1 records", "for 2 to 4"),
        ),
    ],
)
def test_impossible_blocks_fail(tmp_path, occupied, persons, seen) -> None:
    outcome = check_agreement(expected(tmp_path, occupied, persons))
    assert not outcome.passed
    assert all(part in outcome.detail for part in seen)


def test_files_that_are_missing_or_lack_a_column_fail(tmp_path) -> None:
    due = expected(tmp_path, "a", "a")
    pd.DataFrame({"state": ["44"], "code": ["a"]}).to_parquet(tmp_path / "units.parquet")
    assert "no column kind" in check_agreement(due).detail
    (tmp_path / "units.parquet").unlink()
    assert not check_agreement(due).passed


def numbers(folder: Path, people: str, dwellings: str) -> tuple[ExpectedNumbers, ExpectedNumbers]:
    """A letter for the block of each householder, of the sex that its case says, and of each
    dwelling that has room for one to three people; block a has a vacant one, too."""
    rows = [(block.lower(), "F" if block.isupper() else "M", 1) for block in people]
    homes = [(block.lower(), "2" if block.isupper() else "1", "s", 1) for block in dwellings]
    homes += [("a", "9", "v", 1)]
    pd.DataFrame(rows, columns=["code", "sex", "n"]).to_parquet(folder / "people.parquet")
    columns = ["code", "head", "size", "n"]
    pd.DataFrame(homes, columns=columns).to_parquet(folder / "homes.parquet")
    of_people = AgreeingRows(folder / "people.parquet", ("code",), {}, "n")
    of_homes = AgreeingRows(folder / "homes.parquet", ("code",), {"head": ["1", "2"]}, "n")
    sexes = {"F": "female", "M": "male"}
    due = replace(of_homes, kinds=(("head", {"2": "female", "1": "male"}),))
    heads = replace(of_people, kinds=(("sex", sexes),))
    every = replace(of_homes, codes={})
    room = ExpectedNumbers(
        "sizes_agree",
        "people",
        of_people,
        replace(every, weights=("size", {"s": 1, "v": 0})),
        replace(every, weights=("size", {"s": 3, "v": 0})),
    )
    return ExpectedNumbers("householders_agree", "people", heads, due, due), room


@pytest.mark.parametrize(
    ("people", "homes", "householders_agree", "fit"),
    [
        ("aAb", "Aab", True, True),
        ("aAb", "aab", False, True),
        ("", "", True, True),
        ("", "a", False, False),
        ("bbb", "b", False, True),
        ("bbbb", "b", False, False),
        ("b", "bb", False, False),
        ("a", "b", False, False),
    ],
)
def test_numbers_are_those_of_the_other_file(
    tmp_path, people, homes, householders_agree, fit
) -> None:
    heads, room = numbers(tmp_path, people, homes)
    outcomes = [check_agreement(one) for one in (heads, room)]
    assert [one.passed for one in outcomes] == [householders_agree, fit]
    assert [one.name for one in outcomes] == ["householders_agree", "sizes_agree"]


def test_numbers_that_are_wrong_name_the_area(tmp_path) -> None:
    heads, room = numbers(tmp_path, "AAaaaa", "Aa")
    detail = check_agreement(heads).detail
    assert "area a female has 2 records of people.parquet" in detail and "1 to 1" in detail
    assert "area a has 6" not in check_agreement(room).detail
    assert "for 1 to 3" in check_agreement(numbers(tmp_path, "aaaa", "a")[1]).detail


def test_a_code_that_nothing_is_known_of_fails(tmp_path) -> None:
    _, room = numbers(tmp_path, "a", "a")
    least = replace(room.least, weights=("size", {"s": 1}))
    assert "a code of the column size" in check_agreement(replace(room, least=least)).detail

"""The independent check of universes that agree, on small files of rows."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from spineflow.validation.topdown.agreements import (
    AgreeingRows,
    ExpectedAgreement,
    check_agreement,
)


def expected(folder: Path, occupied: str, persons: str) -> ExpectedAgreement:
    """A letter for the block of each occupied unit, and of each person in a household."""
    units = [(block, "1") for block in occupied] + [("a", "2"), ("z", "2")]
    people = [(block, "3") for block in persons] + [("a", "5"), ("z", "5")]
    for name, rows in (("units", units), ("persons", people)):
        frame = pd.DataFrame(rows, columns=["code", "kind"])
        frame.insert(0, "state", "44")
        frame.to_parquet(folder / f"{name}.parquet")
    area = ("state", "code")
    return ExpectedAgreement(
        "units",
        AgreeingRows(folder / "units.parquet", area, {"kind": ["1"]}),
        AgreeingRows(folder / "persons.parquet", area, {"kind": ["3"]}),
        3,
    )


@pytest.mark.parametrize(
    ("occupied", "persons"), [("", ""), ("a", "a"), ("ab", "aaab"), ("aab", "aaaaaabb")]
)
def test_possible_blocks_pass(tmp_path, occupied, persons) -> None:
    assert check_agreement(expected(tmp_path, occupied, persons)).passed


@pytest.mark.parametrize(
    ("occupied", "persons", "seen"),
    [
        ("a", "", "area 44 a has 1 records of units.parquet for 0 of persons.parquet"),
        ("", "b", "area 44 b has 0 records of units.parquet for 1"),
        ("aab", "ab", "area 44 a has 2 records of units.parquet for 1"),
        ("ab", "aaaab", "area 44 a has 1 records of units.parquet for 4"),
    ],
)
def test_impossible_blocks_fail(tmp_path, occupied, persons, seen) -> None:
    outcome = check_agreement(expected(tmp_path, occupied, persons))
    assert not outcome.passed
    assert seen in outcome.detail


def test_files_that_are_missing_or_lack_a_column_fail(tmp_path) -> None:
    due = expected(tmp_path, "a", "a")
    pd.DataFrame({"state": ["44"], "code": ["a"]}).to_parquet(tmp_path / "units.parquet")
    assert "no column kind" in check_agreement(due).detail
    (tmp_path / "units.parquet").unlink()
    assert not check_agreement(due).passed

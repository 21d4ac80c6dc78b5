"""Region hierarchies from files: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from spineflow.tasks.group_sizes.ingest.regions import (
    hierarchy_of_geography,
    hierarchy_of_rows,
    read_hierarchy,
)
from spineflow.tasks.tables.sources import InputFile
from spineflow.tasks.tables.value_tallies import ValueTally

ROWS = [
    ("county", "b2", "B"),
    ("county", "a1", "A"),
    ("nation", "US", ""),
    ("state", "B", "US"),
    ("county", "b1", "B"),
    ("state", "A", "US"),
]


def frame(rows) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["level", "region", "parent"], dtype=object)


def as_text(hierarchy) -> list[tuple[str, list[str], list[int]]]:
    return [(level.name, level.codes.tolist(), level.parent.tolist()) for level in hierarchy.levels]


FILES = {"regions": (InputFile("regions", "", "regions.csv"),)}
EXPECTED = [
    ("nation", ["US"], [-1]),
    ("state", ["A", "B"], [0, 0]),
    ("county", ["a1", "b1", "b2"], [0, 1, 1]),
]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_rows_in_any_order_make_the_same_hierarchy(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"regions.{ending}"
    if ending == "csv":
        frame(ROWS).to_csv(path, index=False)
    else:
        frame(ROWS).to_parquet(path)
    found = read_hierarchy(InputFile("regions", str(path), path.name), ValueTally())
    assert as_text(found) == EXPECTED


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([("", "x", "US")], "every row must name a level and its region"),
        ([("county", "a1", "B")], "a1 of level county has two"),
        ([("state/1", "C", "US")], "names of levels"),
        ([("nation", "CA", "")], "one level must have no parents"),
        ([("county", "c1", "C")], "c1 of level county has a parent that is not in state"),
        ([("county", "c1", "US")], "c1 of level county has a parent that is not in state"),
        ([("state", "C", "US")], "C of level state has none of county below it"),
        ([("tract", "t1", "a1")], "of level county has none of tract below it"),
        ([("district", "d1", "A"), ("district", "d2", "B")], "must form one chain"),
    ],
)
def test_broken_hierarchies_are_refused(rows, sentence: str) -> None:
    found = ValueTally()
    assert hierarchy_of_rows(frame(ROWS + rows), found) is None
    assert sentence in found.findings(found.rules, FILES)[0].sentence()
    assert [outcome.passed for outcome in found.outcomes(found.rules)].count(False) >= 1


def test_a_hierarchy_without_root_is_refused() -> None:
    found = ValueTally()
    assert hierarchy_of_rows(frame([("state", "A", "US"), ("state", "B", "US")]), found) is None
    assert "one level must have no parents" in found.findings(found.rules, FILES)[0].rule


def test_nation_states_and_counties_of_a_geography() -> None:
    blocks = pd.DataFrame(
        {"block_geocode": [f"{county}{'0' * 11}" for county in ("44003", "09001", "44001")]}
    )
    hierarchy, of_block = hierarchy_of_geography(blocks, ["US", "State", "County"])
    assert as_text(hierarchy) == [
        ("US", ["0"], [-1]),
        ("State", ["09", "44"], [0, 0]),
        ("County", ["09001", "44001", "44003"], [0, 1, 1]),
    ]
    assert of_block.tolist() == [2, 0, 1]

"""Tables of sizes and of persons, as counts of groups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.census.counting import RawColumns
from spineflow.tasks.group_sizes.ingest.read import SizeRange, count_records, count_sizes
from spineflow.tasks.tables.findings import Finding
from spineflow.tasks.tables.sources import InputFile
from spineflow.tasks.tables.value_tallies import ValueTally

REGIONS = np.array(["01", "02"], dtype=object)
SIZES = pd.DataFrame(
    {"region": ["01", "02", "01", "02"], "size": [1, 3, 2, 2], "count": [4, 2, 1, 0]}
)
RECORDS = pd.DataFrame(
    {
        "person": [f"p{i}" for i in range(7)],
        "unit": ["a", "b", "b", "c", "c", "c", "d"],
        "region": ["01", "01", "01", "02", "02", "02", "02"],
        "quantity": [1, 1, 1, 1, 0, 1, 1],
    }
)

TO_3 = SizeRange(1, 3)
FILES = {table: (InputFile(table, "", "t.csv"),) for table in ("sizes", "records")}


def raw() -> RawColumns:
    return RawColumns(("size", "quantity"), len(REGIONS))


def findings(tally: ValueTally) -> tuple[Finding, ...]:
    return tally.findings(tally.rules, FILES)


def write(frame: pd.DataFrame, folder: Path, ending: str) -> InputFile:
    path = folder / f"t.{ending}"
    if ending == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="|" if ending == "txt" else ",")
    return InputFile("sizes", str(path), path.name)


@pytest.mark.parametrize("ending", ["csv", "txt", "parquet"])
def test_sizes_are_counted_by_region_and_size(ending: str, tmp_path: Path) -> None:
    found = ValueTally()
    counts = count_sizes(write(SIZES, tmp_path, ending), REGIONS, TO_3, found, raw())
    assert counts.toarray().tolist() == [[4, 1, 0], [0, 0, 2]]
    assert found.are_met(found.rules)


@pytest.mark.parametrize("is_top_coded", [False, True])
def test_a_second_row_of_a_region_and_size_is_refused(is_top_coded: bool, tmp_path: Path) -> None:
    """Sizes above a top code are other sizes, though they are counted as one."""
    above = pd.DataFrame({"region": ["01", "01"], "size": [4, 5], "count": [1, 1]})
    frame = pd.concat([SIZES, SIZES[:3], above[: 2 * is_top_coded]])
    found = ValueTally()
    path = write(frame, tmp_path, "csv")
    count_sizes(path, REGIONS, SizeRange(1, 3, is_top_coded), found, raw())
    (finding,) = findings(found)
    assert finding.rule.startswith("region and size must stand together in one row alone")
    assert finding.count == 3


@pytest.mark.parametrize(
    ("column", "value", "sentence"),
    [
        ("region", "03", "region must be a region of the finest level"),
        ("region", "", "region must be a region of the finest level"),
        ("size", "0", "size must be a whole number from 1 to 3"),
        ("size", "4", "size must be a whole number from 1 to 3"),
        ("size", "2.5", "size must be a whole number from 1 to 3"),
        ("size", "", "size must be a whole number from 1 to 3"),
        ("count", "-1", "count must be a whole number, at least 0"),
        ("count", "many", "count must be a whole number, at least 0"),
        ("count", "", "count must be a whole number, at least 0"),
    ],
)
def test_rows_that_break_a_rule_are_counted_and_left_out(
    column: str, value: str, sentence: str, tmp_path: Path
) -> None:
    frame = SIZES.astype(str)
    frame.loc[1, column] = value
    found = ValueTally()
    counts = count_sizes(write(frame, tmp_path, "csv"), REGIONS, TO_3, found, raw())
    (finding,) = findings(found)
    assert finding.rule.startswith(sentence)
    assert finding.count == 1
    assert value in ("", "0") or value not in finding.sentence().replace("from 1 to 3", "")
    assert counts.sum() == 5


@pytest.mark.parametrize("ending", ["csv", "txt", "parquet"])
def test_units_of_persons_are_counted_by_their_size(ending: str, tmp_path: Path) -> None:
    found = ValueTally()
    counts = count_records(write(RECORDS, tmp_path, ending), REGIONS, TO_3, 1, found, raw())
    assert counts.toarray().tolist() == [[1, 1, 0], [1, 1, 0]]
    assert found.are_met(found.rules)


def test_quantities_up_to_the_declared_one(tmp_path: Path) -> None:
    frame = RECORDS.assign(quantity=[3, 1, 1, 2, 0, 0, 1])
    counts = count_records(write(frame, tmp_path, "csv"), REGIONS, TO_3, 3, ValueTally(), raw())
    assert counts.toarray().tolist() == [[0, 1, 1], [1, 1, 0]]


def spoil(column: str, value: str | None, row: int = 4) -> Callable[[pd.DataFrame], None]:
    def change(frame: pd.DataFrame) -> None:
        frame.loc[row, column] = value

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (spoil("person", "p0"), "person must be filled, and stand in one row alone"),
        (spoil("person", None), "person must be filled, and stand in one row alone"),
        (spoil("unit", None), "unit must be filled in every row"),
        (spoil("region", "09"), "region must be a region of the finest level"),
        (spoil("region", "01"), "all rows of a unit must have the same region"),
        (spoil("quantity", "2"), "quantity must be 1, 0 or empty"),
        (spoil("quantity", "0", 6), "the quantities of a unit must add to a size from 1 to 3"),
        (spoil("unit", "c", 6), "the quantities of a unit must add to a size from 1 to 3"),
    ],
)
def test_records_that_break_a_rule_are_told(change, sentence: str, tmp_path: Path) -> None:
    frame = RECORDS.assign(quantity=["1", "1", "1", "1", "1", "1", "1"]).astype(object)
    change(frame)
    found = ValueTally()
    count_records(write(frame, tmp_path, "csv"), REGIONS, TO_3, 1, found, raw())
    assert findings(found)[0].rule.startswith(sentence)
    assert findings(found)[0].count == 1

"""Rows of microdata whose columns have codes of their own are counted, and held to their layout."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.validation.outcome import Failures
from spineflow.validation.topdown.cells import Cells
from spineflow.validation.topdown.declared import (
    DeclaredUniverse,
    released_rows,
)
from spineflow.validation.topdown.layout import Layout, LayoutColumn
from spineflow.validation.topdown.run_files import ExpectedUniverse

LAYOUT = Layout(
    (
        LayoutColumn("SCHEMA", constant="MPD"),
        LayoutColumn("COUNTY", digits=(0, 1)),
        LayoutColumn("BLOCK", digits=(1, 2)),
        LayoutColumn("EPNUM", is_number=True),
        LayoutColumn("RTYPE", attribute="kind", codes=("3", "3", "5")),
        LayoutColumn("RELSHIP", attribute="kind", codes=("20", "21", "37")),
        LayoutColumn("QSEX", attribute="sex", codes=("1", "2")),
    )
)
AREAS = pd.DataFrame(
    {"block_geocode": ["1.1", "1.2"], "county": ["1", "1"], "block": ["1", "2"]}, dtype="str"
)
ROWS = [
    ["MPD", "1", "1", 0, "3", "20", "1"],
    ["MPD", "1", "1", 1, "3", "21", "2"],
    ["MPD", "1", "2", 2, "5", "37", "2"],
    ["MPD", "1", "2", 3, "5", "37", "2"],
]


def universe() -> DeclaredUniverse:
    return DeclaredUniverse(
        expected=ExpectedUniverse(
            cells=Cells("people", {"kind": 3, "sex": 2}),
            geolevels=("all", "county", "block"),
            total=None,
            query_shares={},
            constraints={},
            structural_zeros={},
            is_pure=False,
            layout=LAYOUT,
            on_demand=False,
        ),
        labels={"kind": ("head", "spouse", "inmate"), "sex": ("male", "female")},
        columns=("county", "block"),
        count=None,
        exact={},
        bounds=(),
        held={},
        relations={},
        constraints=(),
    )


def counted(folder: Path, rows: list, in_text: list | None = None) -> tuple[list, int]:
    """Counts by area and cell, and how many failures there were."""
    frame = pd.DataFrame(rows, columns=list(LAYOUT.names))
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), folder / "mdf_people.parquet")
    frame = frame if in_text is None else pd.DataFrame(in_text, columns=list(LAYOUT.names))
    frame.to_csv(folder / "mdf_people.csv", sep="|", index=False)
    failures = Failures()
    counts = released_rows(folder / "mdf_people", universe(), AREAS, True, failures).counts
    return counts.toarray().tolist(), failures.outcome("any", "people", "").passed


def test_rows_are_counted_by_the_codes_that_tell_them(tmp_path: Path) -> None:
    found, passed = counted(tmp_path, ROWS)
    assert passed
    assert found == [[1, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 2]]


@pytest.mark.parametrize(
    ("column", "value"),
    [(0, "MUD"), (2, "9"), (3, 7), (4, "3"), (5, "22"), (6, "0")],
    ids=["constant", "area", "number", "two codes together", "code", "sex"],
)
def test_a_row_that_breaks_the_layout_fails(tmp_path: Path, column: int, value) -> None:
    rows = [list(row) for row in ROWS]
    rows[3][column] = value
    assert not counted(tmp_path, rows)[1]


@pytest.mark.parametrize("in_text", [ROWS[:-1], [*ROWS, ROWS[-1]], ROWS[::-1]])
def test_a_text_of_other_rows_fails(tmp_path: Path, in_text: list) -> None:
    assert not counted(tmp_path, ROWS, in_text)[1]

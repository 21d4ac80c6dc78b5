"""Rows of microdata of declared areas are counted, and held to their layout, labels or codes."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spineflow.validation.outcome import Failures
from spineflow.validation.run_files import UnusableRunFile, numbered
from spineflow.validation.topdown.area_index import AreaIndex
from spineflow.validation.topdown.cells import Cells
from spineflow.validation.topdown.conservation import LevelEstimates
from spineflow.validation.topdown.layout import Layout, LayoutColumn
from spineflow.validation.topdown.microdata import Microdata, check_microdata
from spineflow.validation.topdown.run_files import RunSpine, SpineLevel

CODED = Layout(
    (
        LayoutColumn("SCHEMA", constant="MPD"),
        LayoutColumn("COUNTY", geolevel="county"),
        LayoutColumn("BLOCK", geolevel="block"),
        LayoutColumn("EPNUM", is_number=True),
        LayoutColumn("RTYPE", attribute="kind", codes=("3", "3", "5")),
        LayoutColumn("RELSHIP", attribute="kind", codes=("20", "21", "37")),
        LayoutColumn("QSEX", attribute="sex", codes=("1", "2")),
    )
)
LABELLED = Layout(
    (
        LayoutColumn("county", geolevel="county"),
        LayoutColumn("block", geolevel="block"),
        LayoutColumn("kind", attribute="kind", codes=("head", "spouse", "inmate")),
        LayoutColumn("sex", attribute="sex", codes=("male", "female")),
    ),
    count="n",
    has_quotes=True,
)
AREAS = pa.table({"block_geocode": ["1.2", "1.1"], "county": ["1", "1"], "block": ["2", "1"]})
CODES = [
    ["MPD", "1", "1", 0, "3", "20", "1"],
    ["MPD", "1", "1", 1, "3", "21", "2"],
    ["MPD", "1", "2", 2, "5", "37", "2"],
    ["MPD", "1", "2", 3, "5", "37", "2"],
]
LABELS = [["1", "1", "head", "male", 1], ["1", "1", "spouse", "female", 1]]
LABELS += [["1", "2", "inmate", "female", 2]]
COUNTS = np.array([[1, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 2]])


def spine() -> RunSpine:
    """Two areas, which stand in another order than their geocodes."""
    codes = pa.array(["1.2", "1.1"])
    none, zeros = np.full(2, -1), np.zeros(2, dtype=np.int64)
    level = SpineLevel("block", codes, none, (Fraction(1),), zeros, zeros.astype(bool), zeros + 1)
    return RunSpine((level,), codes, (np.arange(2),))


def estimates_of(level: SpineLevel) -> LevelEstimates:
    counts = COUNTS[[int(code[-1]) - 1 for code in level.geocode.to_pylist()]]
    area, cell = np.nonzero(counts)
    return LevelEstimates(6, area * 6 + cell, counts[area, cell])


def counted(
    folder: Path, layout: Layout, rows: list, in_text: list | None = None, areas_per_part: int = 2
) -> tuple[list, int]:
    """Counts by area and cell, and how many failures there were."""
    frame = pd.DataFrame(rows, columns=list(layout.names))
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), folder / "mdf_people.parquet")
    frame = frame if in_text is None else pd.DataFrame(in_text, columns=list(layout.names))
    frame.to_csv(folder / "mdf_people.csv", sep="|", index=False)
    failures = Failures()
    files = Microdata(folder / "mdf_people", layout, Cells("people", {"kind": 3, "sex": 2}), True)
    found = check_microdata(
        files, spine(), estimates_of, failures, areas=AREAS, areas_per_part=areas_per_part
    )
    return np.vstack([rows.counts.toarray() for rows in found]).tolist(), failures.count


@pytest.mark.parametrize("areas_per_part", [1, 2])
@pytest.mark.parametrize(("layout", "rows"), [(CODED, CODES), (LABELLED, LABELS)])
def test_rows_are_counted_by_what_tells_them(
    tmp_path: Path, layout: Layout, rows: list, areas_per_part: int
) -> None:
    found, n_failures = counted(tmp_path, layout, rows, areas_per_part=areas_per_part)
    assert found == COUNTS.tolist() and not n_failures


@pytest.mark.parametrize("areas_per_part", [1, 2])
@pytest.mark.parametrize(
    ("layout", "rows", "column", "value"),
    [
        *((CODED, CODES, *change) for change in [(0, "MUD"), (2, "9"), (2, "1"), (3, 7)]),
        *((CODED, CODES, *change) for change in [(4, "3"), (5, "22"), (6, "0"), (6, "1")]),
        *((LABELLED, LABELS, *change) for change in [(1, "9"), (1, "1"), (2, "guest")]),
        *((LABELLED, LABELS, *change) for change in [(3, "male"), (4, 1), (4, 3), (4, -2)]),
    ],
)
def test_a_row_of_another_kind_fails(
    tmp_path: Path, layout: Layout, rows: list, column: int, value, areas_per_part: int
) -> None:
    changed = [list(row) for row in rows]
    changed[-1][column] = value
    assert counted(tmp_path, layout, changed, areas_per_part=areas_per_part)[1]


@pytest.mark.parametrize("rows", [LABELS[:-1], [*LABELS, LABELS[-1]], LABELS[1:]])
def test_rows_that_lack_or_are_too_many_fail(tmp_path: Path, rows: list) -> None:
    assert counted(tmp_path, LABELLED, rows)[1] and counted(tmp_path, LABELLED, rows, None, 1)[1]


@pytest.mark.parametrize("in_text", [CODES[:-1], [*CODES, CODES[-1]], CODES[::-1]])
def test_a_text_of_other_rows_fails(tmp_path: Path, in_text: list) -> None:
    assert counted(tmp_path, CODED, CODES, in_text)[1]


def test_other_areas_than_those_of_the_spine_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(UnusableRunFile, match="areas of the spine"):
        list(
            check_microdata(
                Microdata(tmp_path / "mdf", LABELLED, Cells("people", {"kind": 3, "sex": 2}), True),
                spine(),
                estimates_of,
                Failures(),
                areas=AREAS.slice(1),
            )
        )


def texts_of(rows: Sequence[tuple[str, str]]) -> dict:
    columns = [pa.array([row[i] for row in rows], pa.string()) for i in range(2)]
    return {name: numbered(column) for name, column in zip(("a", "b"), columns, strict=True)}


CODE = st.tuples(st.sampled_from("pqr"), st.sampled_from("pqrs"))


@given(st.lists(CODE, min_size=1, unique=True), st.lists(CODE))
def test_areas_are_found_by_all_their_codes(areas: list, rows: list) -> None:
    """As a look-up of the whole codes finds them."""
    columns = {name: pa.array([area[i] for area in areas]) for i, name in enumerate("ab")}
    found = AreaIndex.of(columns).areas(texts_of(rows))
    assert found.tolist() == [areas.index(row) if row in areas else -1 for row in rows]


def test_areas_of_equal_codes_are_not_told_apart() -> None:
    with pytest.raises(UnusableRunFile, match="apart"):
        AreaIndex.of({"a": pa.array(["p", "p"])})

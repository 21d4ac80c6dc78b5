"""Files of constraints of declared censuses: what is due where, and every way to lack it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.validation.outcome import Failures
from spineflow.validation.run_files import UnusableRunFile
from spineflow.validation.topdown.constraints import COMPLETE, check_constraint_files
from spineflow.validation.topdown.declarations import ExpectedConstraint, ExpectedUnits
from spineflow.validation.topdown.run_files import RunSpine, SpineLevel

ANCESTORS = (np.zeros(6, int), np.array([0, 1, 1, 2, 2, 2]), np.arange(6))
GEOCODES = (("0",), ("1.A", "0.A", "0.B"), tuple(f"block {n}" for n in range(6)))
REGIONS = np.array([0, 0, 0, 1, 1, 1])
"""Region A lies in two geounits, as where a branch takes a part of it, and region B is one."""
NAMES = ("country", "region", "block")


def spine() -> RunSpine:
    levels = []
    for name, geocode, ancestor in zip(NAMES, GEOCODES, ANCESTORS, strict=True):
        n = len(geocode)
        parent = np.zeros(n, dtype=int) if levels else np.full(n, -1)
        levels.append(
            SpineLevel(
                name,
                pa.array(geocode, pa.string()),
                parent,
                (Fraction(1, 3),),
                np.zeros(n, dtype=int),
                np.zeros(n, dtype=bool),
                np.bincount(ancestor),
            )
        )
    return RunSpine(tuple(levels), pa.array(GEOCODES[2], pa.string()), ANCESTORS)


UNITS = ExpectedUnits(REGIONS, np.array(["A", "B"], dtype=object))
LISTED = ExpectedUnits(REGIONS, np.array(["A", "B"], dtype=object), ("region", "sum_con"))
BLOCKS = ExpectedUnits(np.arange(6), np.array(GEOCODES[2], dtype=object))

Row = tuple[str, str, str, list[int]]


def rows(name: str, sign: str, codes: Sequence[str], value: list[int]) -> list[Row]:
    return [(code, name, sign, value) for code in codes]


CASES: dict[str, tuple[ExpectedConstraint, list[list[Row]]]] = {
    "everywhere": (
        ExpectedConstraint("kind_ub_con", "<=", 2),
        [rows("kind_ub_con", "<=", codes, [4, 5]) for codes in GEOCODES],
    ),
    "units in parts": (
        ExpectedConstraint("total_con", "=", 1, UNITS),
        [
            rows("total_con", "=", ["0"], [7]),
            rows("total_con", "=", ["0.B", "A"], [3]),
            [],
        ],
    ),
    "units that are listed": (
        ExpectedConstraint("total_con", "=", 1, LISTED),
        [rows("sum_con", "=", ["0"], [7]), rows("total_con", "=", ["A", "B"], [3]), []],
    ),
    "areas": (
        ExpectedConstraint("total_con", "=", 1, BLOCKS),
        [rows("total_con", "=", codes, [1]) for codes in GEOCODES],
    ),
}


def written(folder: Path, files: list[list[Row]]) -> Path:
    for name, own in zip(NAMES, files, strict=True):
        place = folder / "measurements" / "people" / name / "constraints"
        place.mkdir(parents=True)
        columns = zip(*own, strict=True) if own else ([], [], [], [])
        kinds = (pa.string(), pa.string(), pa.string(), pa.list_(pa.int64()))
        arrays = [pa.array(list(c), k) for c, k in zip(columns, kinds, strict=True)]
        table = pa.table(arrays, names=["geocode", "query_name", "sign", "value"])
        pq.write_table(table, place / "0.parquet")
    return folder


def failures_of(folder: Path, one: ExpectedConstraint) -> int:
    found = Failures()
    check_constraint_files(folder, "people", spine(), [one], {COMPLETE: found})
    return found.count


@pytest.mark.parametrize("case", CASES)
def test_what_is_due_stands_once(case: str, tmp_path: Path) -> None:
    one, files = CASES[case]
    assert not failures_of(written(tmp_path, files), one)


@pytest.mark.parametrize("case", CASES)
def test_any_row_that_lacks_or_is_too_many_is_noticed(case: str, tmp_path: Path) -> None:
    one, files = CASES[case]
    for level, own in enumerate(files):
        for number, (code, name, sign, value) in enumerate(own):
            changes = {
                "lacks": [],
                "twice": [own[number]] * 2,
                "another sign": [(code, name, {"=": "<="}.get(sign, "="), value)],
                "another name": [(code, "other_con", sign, value)],
                "another geocode": [(f"{code}x", name, sign, value)],
            }
            for what, instead in changes.items():
                changed = [list(rows) for rows in files]
                changed[level][number : number + 1] = instead
                folder = written(tmp_path / f"{level} {number} {what}", changed)
                assert failures_of(folder, one), (case, level, number, what)


def test_values_of_another_width_are_no_answers(tmp_path: Path) -> None:
    one, files = CASES["everywhere"]
    files = [files[0], files[1], rows("kind_ub_con", "<=", GEOCODES[2], [4])]
    with pytest.raises(UnusableRunFile):
        failures_of(written(tmp_path, files), one)


def test_a_unit_that_lies_in_parts_of_parts_stands_once(tmp_path: Path) -> None:
    """Region A is in two geounits at the first geolevel, so that blocks of it are free."""
    one, files = CASES["units in parts"]
    files = [files[0], files[1], rows("total_con", "=", ["A"], [3])]
    assert failures_of(written(tmp_path, files), one) == 1

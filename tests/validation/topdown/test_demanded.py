"""Measurements on demand that have other rows than can matter fail their check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.validation.outcome import Failures
from spineflow.validation.run_files import UnusableRunFile
from spineflow.validation.topdown.cells import Cells
from spineflow.validation.topdown.conservation import LevelEstimates
from spineflow.validation.topdown.demanded import check_demanded
from spineflow.validation.topdown.run_files import ExpectedUniverse, SpineLevel

CELLS = Cells("persons", {"sex": 2, "age": 3})
LEVELS = ("US", "State", "County")
EXPECTED = ExpectedUniverse(
    cells=CELLS,
    geolevels=LEVELS,
    total=Fraction(1),
    query_shares=dict.fromkeys(LEVELS, {"age": Fraction(1, 4), "detailed": Fraction(3, 4)}),
    constraints={},
    structural_zeros={"no old men": {"sex": [0], "age": [2]}},
    on_demand=True,
)
ESTIMATES = LevelEstimates(CELLS.n, np.array([1, 3, 6, 13, 16, 17]), np.ones(6, np.int64))
"""Of four states: the first has the cells 1 and 3, the second 0, the third 1, 4 and 5."""
DEMANDED = {
    # The first and the third state have two counties each, the second and the fourth one.
    "011": {"age": [0, 1], "detailed": [1, 3]},
    "012": {"age": [0, 1], "detailed": [1, 3]},
    "021": {"age": [], "detailed": []},
    "031": {"age": [1, 2], "detailed": [1, 4, 5]},
    "032": {"age": [1, 2], "detailed": [1, 4, 5]},
    "041": {"age": [], "detailed": []},
}
PARENTS = [0, 0, 1, 2, 2, 3]

Rows = Mapping[str, Mapping[str, Sequence[int]]]


def level_of(name: str, geocodes: Sequence[str], parent: Sequence[int]) -> SpineLevel:
    n = len(geocodes)
    none = np.zeros(n, dtype=np.int64)
    return SpineLevel(
        name,
        pa.array(geocodes),
        np.array(parent),
        (Fraction(1, 3),),
        none,
        none.astype(bool),
        none + 1,
    )


COUNTIES = level_of("County", list(DEMANDED), PARENTS)


def write(run: Path, level: str, rows: Rows, *, further_values: int = 0) -> None:
    """The file of a geolevel's measurements, with so many values more than rows."""
    folder = run / "measurements" / "persons" / level / "on_demand"
    folder.mkdir(parents=True)
    flat = [(code, name, own) for code, of in rows.items() for name, own in of.items()]
    columns = {
        "geocode": [code for code, _, _ in flat],
        "query_name": [f"{name}_dpq" for _, name, _ in flat],
        "row": pa.array([list(own) for _, _, own in flat], pa.list_(pa.int32())),
        "value": pa.array(
            [[7] * (len(own) + further_values) for _, _, own in flat], pa.list_(pa.int64())
        ),
    }
    pq.write_table(pa.table(columns), folder / "00000.parquet")


def failures_of(
    run: Path, level: SpineLevel = COUNTIES, above: LevelEstimates | None = ESTIMATES
) -> Failures:
    failures = Failures()
    check_demanded(run, EXPECTED, level, above, failures)
    return failures


def test_the_rows_that_parents_demand_pass(tmp_path: Path) -> None:
    write(tmp_path, "County", DEMANDED)
    assert failures_of(tmp_path).count == 0


@pytest.mark.parametrize(
    ("geocode", "query", "rows"),
    [
        ("012", "age", [0]),
        ("012", "age", [0, 1, 2]),
        ("012", "age", [1, 0]),
        ("012", "age", [0, 0]),
        ("012", "age", [0, 2]),
        ("012", "age", [-1, 1]),
        ("012", "age", []),
        ("021", "age", [0]),
        ("031", "detailed", [1, 4]),
        ("032", "detailed", [1, 4, 6]),
        ("032", "detailed", [2, 4, 5]),
        # The first row that the family after demands, as if it were one of this.
        ("012", "age", [0, 7]),
        ("041", "detailed", [5]),
    ],
)
def test_other_rows_are_found_with_their_geounit(
    tmp_path: Path, geocode: str, query: str, rows: list[int]
) -> None:
    write(tmp_path, "County", DEMANDED | {geocode: {**DEMANDED[geocode], query: rows}})
    found = failures_of(tmp_path)
    assert found.count == 1
    assert found.texts[0].startswith(f"County {geocode} was measured in other rows")


def test_rows_without_values_are_found_wherever_there_are_any(tmp_path: Path) -> None:
    write(tmp_path, "County", {"011": DEMANDED["011"]}, further_values=1)
    assert failures_of(tmp_path).count == 2


def test_the_root_is_asked_for_all_that_is_possible(tmp_path: Path) -> None:
    """Old women are possible, and so is an old person; an old man is not."""
    root = level_of("US", ["0"], [-1])
    write(tmp_path / "right", "US", {"0": {"age": [0, 1, 2], "detailed": [0, 1, 3, 4, 5]}})
    assert failures_of(tmp_path / "right", root, None).count == 0
    write(tmp_path / "wrong", "US", {"0": {"age": [0, 1], "detailed": [0, 1, 2, 3, 4, 5]}})
    assert failures_of(tmp_path / "wrong", root, None).count == 2


def test_geounits_of_other_parts_are_left_to_them(tmp_path: Path) -> None:
    write(tmp_path, "County", DEMANDED | {"031": {"age": [0], "detailed": [0]}})
    part = COUNTIES.part(np.array([0, 1, 2]), np.array([0, 0, 1]))
    assert failures_of(tmp_path, part, ESTIMATES.part(np.array([0, 1]))).count == 0
    part = COUNTIES.part(np.array([3, 4]), np.array([0, 0]))
    assert failures_of(tmp_path, part, ESTIMATES.part(np.array([2]))).count == 2


def test_rows_that_are_no_lists_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "measurements/persons/County/on_demand"
    folder.mkdir(parents=True)
    columns = {"geocode": ["011"], "query_name": ["age_dpq"], "row": [1], "value": [[1]]}
    pq.write_table(pa.table(columns), folder / "00000.parquet")
    with pytest.raises(UnusableRunFile, match="no lists of integers"):
        failures_of(tmp_path)

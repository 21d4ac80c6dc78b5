"""Margins that are no intervals of the cells of their table fail their check."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.validation.outcome import Outcome
from spineflow.validation.topdown.margins import check_margins

TABLE = {"STATE": ["01", "01", "02"], "P1": [4, 0, 7], "P2": [1, 2, 3]}
MARGINS = {
    "STATE": TABLE["STATE"],
    "P1_LOWER": [3.0, 0.0, 7.0],
    "P1_UPPER": [5.5, 0.0, 9.0],
    "P2_LOWER": [0, 2, 3],
    "P2_UPPER": [1, 2, 3],
}
LONG_TABLE = {"area": ["a", "a"], "sex": ["1", "2"], "count": [3, 4]}
LONG_MARGINS = {"area": ["a", "a"], "sex": ["1", "2"], "lower": [1, 2], "upper": [5, 6]}


def write(folder: Path, name: str, columns: dict[str, list] | pa.Table) -> Path:
    path = folder / "tables" / f"{name}.parquet"
    path.parent.mkdir(exist_ok=True)
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, path)
    path.with_suffix(".csv").touch()
    return path


def checked(folder: Path, **margins: list) -> Outcome:
    """The check of the first table, some columns of whose margins are others."""
    write(folder, "tract", TABLE)
    write(folder, "tract_margins", MARGINS | margins)
    return check_margins(folder)


def test_margins_of_both_kinds_of_tables_pass(tmp_path: Path) -> None:
    write(tmp_path, "long", LONG_TABLE)
    # Codes may be written as a dictionary: they are the same texts.
    coded = pa.table(LONG_MARGINS)
    coded = coded.set_column(0, "area", coded["area"].dictionary_encode())
    write(tmp_path, "long_margins", coded)
    found = checked(tmp_path)
    assert (found.passed, found.detail) == (True, "2 tables, cell by cell")


def test_a_cell_without_an_interval_has_neither_of_its_ends(tmp_path: Path) -> None:
    lower, upper = [3.0, None, 7.0], [5.5, None, 9.0]
    assert checked(tmp_path, P1_LOWER=lower, P1_UPPER=upper).passed
    assert not checked(tmp_path, P1_LOWER=lower).passed
    assert not checked(tmp_path, P1_UPPER=upper).passed


@pytest.mark.parametrize(
    ("column", "values", "n_wrong"),
    [
        ("P1_LOWER", [6.0, 0.0, 7.0], 1),
        ("P1_LOWER", [3.0, -1.0, 7.0], 1),
        ("P1_UPPER", [2.0, -1.0, 9.0], 2),
        ("P2_UPPER", [1, 1, 2], 2),
    ],
)
def test_ends_that_are_no_interval_are_counted(
    tmp_path: Path, column: str, values: list, n_wrong: int
) -> None:
    found = checked(tmp_path, **{column: values})
    assert not found.passed
    assert found.detail.startswith(f"{column[:2]} has an interval in tract_margins.parquet that")
    assert found.detail.endswith("2 failures in all") == (n_wrong == 2)


@pytest.mark.parametrize(
    ("margins", "words"),
    [
        ({"STATE": ["01", "02", "02"]}, "the rows of tract.parquet"),
        ({name: values[:2] for name, values in MARGINS.items()}, "the rows of tract.parquet"),
        ({"P3_LOWER": [0, 0, 0]}, "two columns for each of tract.parquet"),
    ],
)
def test_margins_of_other_rows_or_columns_are_found(
    tmp_path: Path, margins: dict[str, list], words: str
) -> None:
    found = checked(tmp_path, **margins)
    assert found.detail == f"tract_margins.parquet does not have {words}"
    assert not found.passed


def test_margins_stand_beside_their_table_and_as_text(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    none = check_margins(tmp_path)
    assert (none.passed, none.detail) == (False, "the tables have no margins")
    margins = write(tmp_path, "tract_margins", MARGINS)
    assert check_margins(tmp_path).detail == "tract_margins.parquet stands beside no table"
    write(tmp_path, "tract", TABLE)
    assert check_margins(tmp_path).passed
    margins.with_suffix(".csv").unlink()
    assert check_margins(tmp_path).detail == "tract_margins.parquet has no text beside it"

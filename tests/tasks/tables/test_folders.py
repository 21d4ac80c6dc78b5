"""Which files of a folder are a table: all of them, each once, in every way of writing them."""

from __future__ import annotations

import gzip
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.tables.findings import UnreadableInput
from spineflow.tasks.tables.layouts import TableLayout
from spineflow.tasks.tables.readers import Selection, read_partitions
from spineflow.tasks.tables.sources import InputFile, input_files

LAYOUT = TableLayout.expected("people", {"sex": "text", "age": "text"})
NORTH, SOUTH = b"sex,age\n1,30\n2,40\n", b"sex,age\n1,31\n2,41\n1,5\n"


def rows_of(path: Path | str) -> list[tuple[str, str]]:
    """Rows of a table in their order."""
    files = [
        InputFile(f.table, f.path, f.name, LAYOUT, None, f.folders, f.refused)
        for f in input_files("people", str(path))
    ]
    found = []
    for _, batch in read_partitions(files, Selection(("sex", "age"))):
        found += list(zip(batch["sex"].to_pylist(), batch["age"].to_pylist(), strict=True))
    return found


def write(folder: Path) -> Path:
    folder.mkdir()
    (folder / "north.csv").write_bytes(NORTH)
    (folder / "south.csv").write_bytes(SOUTH)
    return folder


@pytest.mark.parametrize(
    "place",
    [
        ".ipynb_checkpoints/north-checkpoint.csv",
        "_temporary/0/part.csv",
        "deep/.hidden/south.csv",
        ".north.csv.crc",
        "_SUCCESS",
        "north-checkpoint.csv",
        "NORTH-CHECKPOINT.CSV",
    ],
)
def test_hidden_files_are_passed_over(tmp_path: Path, place: str) -> None:
    folder = write(tmp_path / "people")
    expected = rows_of(folder)
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    (folder / place).write_bytes(NORTH)
    assert len(expected) == 5
    assert rows_of(folder) == expected == rows_of(folder / "**" / "*.csv")


@pytest.mark.parametrize("name", ["notes.json", "a.zip", "b.xlsx", "table", "north.csv.bak"])
def test_an_unknown_ending_is_refused_by_name(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path / "people")
    (folder / name).write_bytes(b"x")
    with pytest.raises(UnreadableInput, match=rf"^{name}: a file of a table must end in"):
        rows_of(folder)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("north.csv.gz", gzip.compress(NORTH, mtime=0), "has the name of north.csv"),
        ("north.txt", NORTH + b"1,7\n", "has the name of north.csv"),
    ],
)
def test_other_forms_of_a_file_beside_it_are_refused(
    tmp_path: Path, name: str, content: bytes, match: str
) -> None:
    folder = write(tmp_path / "people")
    (folder / name).write_bytes(content)
    with pytest.raises(UnreadableInput, match=match):
        rows_of(folder)


def test_an_archive_is_refused_as_one(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(UnreadableInput, match="ZIP archive"):
        rows_of(path)


@pytest.mark.parametrize("end", [b"\r", b"\r\n"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_return_ends_a_line(tmp_path: Path, end: bytes, packed: bool) -> None:
    folder = write(tmp_path / "people")
    content = SOUTH.replace(b"\n", end)
    (folder / "south.csv").write_bytes(gzip.compress(content, mtime=0) if packed else content)
    assert len(rows_of(folder)) == 5


def test_the_names_of_folders_are_columns(tmp_path: Path) -> None:
    for sex, ages in (("1", [30, 31]), ("2", [40])):
        folder = tmp_path / "people" / f"sex={sex}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"age": ages}), folder / "part-0.parquet")
    expected = [("1", 30), ("1", 31), ("2", 40)]
    assert rows_of(tmp_path / "people") == expected
    assert rows_of(tmp_path / "people" / "*" / "*.parquet") == expected


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array(np.array(["1990-01-31", "NaT"], "datetime64[ns]")), ["1990-01-31", None]),
        (pa.array([datetime(1990, 1, 31)], pa.timestamp("ms", "UTC")), ["1990-01-31"]),
        (
            pa.array([datetime(1990, 1, 30, 23)], pa.timestamp("us", "Europe/Vienna")),
            ["1990-01-31"],
        ),
        (pa.array([datetime(1990, 1, 31, 5)], pa.timestamp("s", "-05:00")), ["1990-01-31"]),
        (pa.array([datetime(1990, 1, 31)], pa.date64()), ["1990-01-31"]),
        (pa.array([Decimal("1.00"), None], pa.decimal32(5, 2)), [1, None]),
        (pa.array([Decimal("12.0")], pa.decimal64(12, 1)), [12]),
        (pa.array([Decimal("12.0")], pa.decimal128(30, 1)), [12]),
        (pa.array([Decimal("12.0")], pa.decimal256(60, 1)), [12]),
        (pa.array([True, False, None]), ["True", "False", None]),
        (pa.array(["á", None]).cast(pa.binary()), ["á", None]),
        (pa.array([b"ab"], pa.binary(2)), ["ab"]),
        (pa.array([b"ab", b"ab"]).dictionary_encode(), ["ab", "ab"]),
    ],
)
def test_types_of_parquet_are_read_as_text_writes_them(tmp_path: Path, column, texts) -> None:
    place = tmp_path / "people.parquet"
    pq.write_table(pa.table({"sex": column, "age": np.zeros(len(column), int)}), place)
    assert [sex for sex, _ in rows_of(place)] == texts


@pytest.mark.parametrize(
    ("column", "match"),
    [
        (pa.array([datetime(1990, 1, 31, 6)]), r"of type timestamp\[us\] and holds times of day"),
        (
            pa.array([datetime(1990, 1, 31)], pa.timestamp("s", "Asia/Kolkata")),
            "tz=Asia/Kolkata. and",
        ),
        (
            pa.array([datetime(1990, 1, 31)], pa.timestamp("s", "Mars/Base")),
            "zone that is not known",
        ),
        (pa.array([Decimal("0.5")], pa.decimal32(5, 2)), "decimals that are not integers"),
        (pa.array([b"\xff"]), "not UTF-8"),
        (pa.array([[1]]), "neither integers nor strings but of type list"),
    ],
)
def test_other_types_are_refused_by_name(tmp_path: Path, column, match: str) -> None:
    place = tmp_path / "people.parquet"
    pq.write_table(pa.table({"sex": column, "age": [1]}), place)
    with pytest.raises(UnreadableInput, match=match):
        rows_of(place)

"""Copies among the files of a table: the same records in any order, format and spelling."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st
from spineflow.tasks.census.joins import read_records
from spineflow.tasks.tables.layouts import TableLayout
from spineflow.tasks.tables.sources import InputFile
from spineflow.tasks.tables.value_tallies import FilesRead

KEYS, CODES = ("home",), ("sex", "age")
COLUMNS = (*KEYS, *CODES)
LAYOUT = TableLayout.expected("people", {"home": "key", "sex": "code", "age": "number"})
ROWS = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from(["1", "2", "á", None]), st.integers(0, 99)),
    min_size=1,
    max_size=12,
)
FORMS = ("csv", "parquet", "integers", "crlf", "zeros")


def write(path: Path, rows: list, form: str) -> None:
    """Write records in a form: texts or integers, other line ends, zeros before identifiers."""
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    if form == "zeros":
        frame["home"] = frame["home"].map("{:04}".format)
    if form in ("parquet", "integers"):
        if form == "parquet":
            frame = frame.astype({"home": str, "age": str})
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, lineterminator="\r\n" if form == "crlf" else "\n")


def copies(folder: Path, *tables: list, forms: tuple[str, ...], folders=((), ())) -> list[str]:
    """The names of the files that are refused."""
    files = []
    for number, (rows, form) in enumerate(zip(tables, forms, strict=True)):
        path = folder / f"{number}"
        write(path, rows, form)
        own = folders[number] if number < len(folders) else ()
        files.append(InputFile("people", str(path), path.name, LAYOUT, folders=own))
    read = FilesRead()
    for _ in read_records(files, CODES, KEYS, read):
        pass
    assert [file.n_rows for file in read.listed] == [len(rows) for rows in tables]
    return [finding.file for finding in read.copies(files)]


@given(rows=ROWS, forms=st.tuples(*[st.sampled_from(FORMS)] * 3), data=st.data())
def test_the_same_records_are_found_in_every_form(tmp_path_factory, rows, forms, data) -> None:
    folder = tmp_path_factory.mktemp("copies")
    again = data.draw(st.permutations(rows))
    assert copies(folder, rows, again, [*rows, rows[0]], forms=forms) == ["1"]


@given(rows=ROWS, at=st.integers(0, 11), column=st.integers(0, 2))
def test_one_other_value_makes_another_file(tmp_path_factory, rows, at, column) -> None:
    folder, other = tmp_path_factory.mktemp("others"), [list(row) for row in rows]
    own = other[at % len(rows)]
    own[column] = {0: own[0] + 1, 1: "2" if own[1] != "2" else None, 2: own[2] + 1}[column]
    assert copies(folder, rows, other, forms=("csv", "parquet")) == []


def test_rows_in_folders_of_other_values_are_others(tmp_path: Path) -> None:
    rows, forms = [(1, "1", 30)], ("csv", "csv")
    assert copies(tmp_path, rows, rows, forms=forms) == ["1"]
    folders = (("year", "2020"),), (("year", "2021"),)
    assert copies(tmp_path, rows, rows, forms=forms, folders=folders) == []

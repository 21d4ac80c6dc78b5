"""Lists of areas and pairs as files of offices abroad have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.tables.formats import TextFormat
from spineflow.tasks.topdown.intervals.areas import read_areas, read_pairs

ABROAD = TextFormat(separator=";", encoding="latin-1", key="census.files.other")
ROWS = [["São Brás", "01"], ["Peñafiel", "02"]]


def written(path: Path, separator: str, encoding: str, column: str = "secção") -> Path:
    lines = [f"area{separator}{column}", *(separator.join(row) for row in ROWS)]
    path.write_bytes("\r\n".join([*lines, ""]).encode(encoding))
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
@pytest.mark.parametrize("column", ["secção", "block"])
def test_what_a_file_shows_counts_before_what_is_declared(
    tmp_path: Path, separator: str, encoding: str, column: str
) -> None:
    """Only latin-1 needs to be told; a UTF-8 file read in it would have garbled names."""
    path = written(tmp_path / "areas.csv", separator, encoding, column)
    assert read_areas(path, "secção", ABROAD).to_numpy().tolist() == ROWS


@pytest.mark.parametrize("encoding", ["shift-jis", "iso2022_jp"])
def test_codes_of_several_bytes_are_read_as_declared(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "areas.csv"
    path.write_bytes("area,block\n東京,1\n".encode(encoding))
    found = read_areas(path, None, TextFormat(encoding=encoding))
    assert found.to_numpy().tolist() == [["東京", "1"]]


def test_a_column_that_is_missing_is_told_with_how_the_file_was_read(tmp_path: Path) -> None:
    path = written(tmp_path / "areas.csv", ",", "latin-1", "SECCAO")
    words = (
        r"areas\.csv, read in latin-1 as census\.files\.other says, has no column 'secção'; an "
        r"area .* with the code of a secção in 'secção' or 'block'\.$"
    )
    with pytest.raises(InputRefused, match=words):
        read_areas(path, "secção", ABROAD)
    with pytest.raises(InputRefused, match="has no column 'first'; each row names two"):
        read_pairs(path, ABROAD)

"""Text of a table as bytes: read in parts, line by line, whatever its encoding and compression."""

from __future__ import annotations

import gzip
from io import BytesIO
from pathlib import Path

import pytest
from spineflow.tasks.tables.findings import UnreadableInput
from spineflow.tasks.tables.sources import (
    InputFile,
    TextStream,
    input_files,
    open_binary,
    refuse_shared,
)

TEXT = "head\r\nfirst line\nsecond é\n\nlast"
LINES = ["head", "first line", "second é", "", "last"]


def opened(content: bytes) -> TextStream:
    return TextStream(InputFile("table", "t.csv", "t.csv"), BytesIO(content))


@pytest.mark.parametrize("how", ["plain", "gzip", "with a mark", "utf-16"])
def test_lines_are_read_one_after_the_other(how: str) -> None:
    content = {
        "plain": TEXT.encode(),
        "gzip": gzip.compress(TEXT.encode()),
        "with a mark": TEXT.encode("utf-8-sig"),
        "utf-16": TEXT.encode("utf-16"),
    }[how]
    text = opened(content)
    assert [text.read_line().decode() for _ in LINES[:3]] == LINES[:3]
    assert text.read().decode() == "\nlast"
    assert text.read() == b"" and text.read_line() == b""


def test_a_line_is_read_up_to_its_limit() -> None:
    text = opened(b"x" * 200_000 + b"\nnext")
    assert len(text.read_line(limit=100)) >= 100
    text = opened(b"ab\ncd")
    assert (text.read_line(), text.read_line(), text.read_line()) == (b"ab", b"cd", b"")


def test_parts_of_a_file_follow_each_other() -> None:
    text = opened(TEXT.encode())
    parts = []
    while part := text.read(7):
        assert len(part) <= 7
        parts.append(part)
    assert b"".join(parts).decode() == TEXT
    assert (text.readable(), text.seekable(), text.writable()) == (True, False, False)
    assert not text.closed
    text.close()
    assert text.closed


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(UnreadableInput, match="not UTF-8 text"):
        opened(b"a\nb\n\xff\xfe\xfa").read()


def test_a_file_is_the_table_of_one_name(tmp_path: Path) -> None:
    """People of two tables are charged as different people; a link is the same file."""
    (tmp_path / "people.csv").write_text("area\n1\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/a.csv").symlink_to(tmp_path / "people.csv")
    (tmp_path / "parts/b.csv").write_text("area\n2\n")
    paths = {"people": "people.csv", "areas": "areas.csv", "again": "parts"}
    files = {name: input_files(name, str(tmp_path / path)) for name, path in paths.items()}
    shared = refuse_shared(files)
    refused = {file.name for own in shared.values() for file in own if file.refused}
    assert refused == {"a.csv"} and shared["people"] == files["people"]
    with pytest.raises(UnreadableInput, match="declare 'people' as the table"):
        open_binary(shared["again"][0])

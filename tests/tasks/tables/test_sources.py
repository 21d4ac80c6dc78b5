"""Text of a table as bytes: read in parts, line by line, whatever its encoding and compression."""

from __future__ import annotations

import gzip
from io import BytesIO

import pytest
from spineflow.tasks.tables.findings import UnreadableInput
from spineflow.tasks.tables.sources import InputFile, TextStream

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

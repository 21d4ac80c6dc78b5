"""Rows of text against Python's own formatting."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from spineflow.tasks.topdown.release.text_rows import (
    NUMBER,
    OF_BLOCK,
    OF_CELL,
    Pieces,
    numbered_rows,
    repeated_rows,
)

VALUES = [0, 7, 9, 10, 99, 100, 12345678901, -3, 2**62]


def test_numbers_follow_their_lines() -> None:
    rng = np.random.default_rng(3)
    numbers = rng.choice(np.array(VALUES), size=(50, 6))
    lines = [f"place{i}|{'x' * (i % 4)}" for i in range(50)]
    text = bytes(numbered_rows(("\n".join(lines) + "\n").encode(), numbers, "|"))
    expected = ["|".join([line, *map(str, own)]) for line, own in zip(lines, numbers, strict=True)]
    assert text.decode().splitlines() == expected and text.endswith(b"\n")


def test_lines_and_numbers_are_as_many() -> None:
    with pytest.raises(ValueError, match="1 lines cannot have 2 rows"):
        numbered_rows(b"a\n", np.zeros((2, 1), dtype=np.int64), ",")


def test_nothing_gives_nothing() -> None:
    assert not bytes(numbered_rows(b"", np.zeros((0, 3), dtype=np.int64), ","))


@pytest.mark.slow
def test_rows_repeat_and_count_up() -> None:
    rng = np.random.default_rng(4)
    blocks, cells = ["35|001|", "35|0003|", "7||"], ["a|bc\n", "\n", "dé|\n"]
    block, cell, count = (rng.integers(0, n, size=40) for n in (3, 3, 5))
    # Slices of arrays begin inside their buffers.
    pieces = Pieces.of(
        [
            (OF_BLOCK, pa.array(["before", *blocks])[1:]),
            (NUMBER, pa.array(["|"])),
            (OF_CELL, pa.array([*cells, "after"])[:3]),
        ]
    )
    text = bytes(repeated_rows(pieces, block, cell, count, 8)).decode()
    expected, number = "", 8
    for b, c, n in zip(block, cell, count, strict=True):
        for _ in range(n):
            expected += f"{blocks[b]}{number}|{cells[c]}"
            number += 1
    assert text == expected

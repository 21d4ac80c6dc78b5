"""Rows of text against Python's own formatting."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.topdown.release.text_rows import numbered_rows

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

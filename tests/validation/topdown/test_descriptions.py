from __future__ import annotations

import numpy as np
from scipy import sparse
from spineflow.validation.outcome import Failures
from spineflow.validation.topdown.cells import Cells
from spineflow.validation.topdown.descriptions import check_description
from spineflow.validation.topdown.layout import ExpectedDescription
from spineflow.validation.topdown.microdata import SEPARATOR, ReleasedRows

CELLS = Cells("households", {"sex": 2, "size": 3}, {"alone": ("size", (0, 1, 1))})
TOLD = ExpectedDescription(
    "households",
    "sex",
    np.array([-1, 0, 1]),
    {"SIZE": ("size", ["1", "2", "3"]), "ALONE": ("alone", ["y", "n"])},
    {"SIZE": "0", "ALONE": "-"},
)
COUNTS = sparse.csr_array(np.array([[2, 0, 1, 0, 1, 0]]))
"""Of the first sex two alone and one of size 3, of the second one of size 2."""


def failures_of(*rows: tuple[int, str, str, int]) -> int:
    """Failures for rows of cells with the codes SIZE and ALONE, and how many they are."""
    cell, size, alone, count = zip(*rows, strict=True)
    codes = np.array([SEPARATOR.join(pair) for pair in zip(size, alone, strict=True)], object)
    given = ReleasedRows(
        slice(0, 1), 3, np.array(cell), np.array(count), codes, np.zeros(1, dtype=np.int64)
    )
    failures = Failures()
    check_description(TOLD, given, CELLS, COUNTS, failures)
    return failures.count


RIGHT = ((0, "0", "-", 5), (1, "1", "y", 2), (1, "3", "n", 1), (2, "2", "n", 1))


def test_rows_with_the_codes_of_both_universes_pass() -> None:
    assert failures_of(*RIGHT) == 0


def test_rows_with_codes_that_nobody_has_are_found() -> None:
    assert failures_of((0, "1", "y", 5), *RIGHT[1:])
    assert failures_of(RIGHT[0], (1, "2", "n", 2), *RIGHT[2:])
    assert failures_of(*RIGHT[:3], (2, "2", "y", 1))
    assert failures_of(*RIGHT[:1], (1, "1", "y", 3), *RIGHT[2:])
    assert failures_of(*RIGHT[:3])
    swapped = (*RIGHT[:1], (1, "1", "y", 1), (2, "1", "y", 1), (1, "3", "n", 1), (1, "2", "n", 1))
    assert failures_of(*swapped)

"""Released rows are held to declarations, in one part or in several."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse
from spineflow.validation.outcome import Failures
from spineflow.validation.topdown.cells import Cells
from spineflow.validation.topdown.declarations import (
    BOUNDS,
    EXACT,
    HELD,
    ON_ROWS,
    RELATIONS,
    ExpectedAnswers,
    ExpectedBound,
    ExpectedDeclarations,
    ExpectedTie,
)
from spineflow.validation.topdown.declared import DeclaredSums
from spineflow.validation.topdown.microdata import ReleasedRows

CELLS = Cells("people", {"role": 2, "sex": 2})
COUNTS = np.array([[1, 0, 2, 3], [0, 1, 0, 0], [2, 2, 1, 0]])
HOMES = np.array([[1, 5], [1, 0], [4, 1]])
"""Occupied and vacant ones: as many of the first kind as people of the first role."""
GEOCODE = pa.array(["a", "b", "c"])
ALL = np.ones(4, dtype=bool)
HEADS = np.array([True, True, False, False])
SEXES = sparse.csr_array(np.array([[3, 3], [0, 1], [3, 2]]))


def declared(**keywords) -> ExpectedDeclarations:
    """All kinds of declarations, which `COUNTS` meet, but for some."""
    by_unit = np.array([[1, 1, 2, 3], [2, 2, 1, 0]])
    limit = np.array([[6], [1], [5]])
    right = {
        "exact": {"cells": ExpectedAnswers("detailed", np.array([0, 0, 1]), by_unit)},
        "bounds": (ExpectedBound("people", "total", ALL, limit - 1, limit),),
        "held": {"by sex": ("sex", ALL, SEXES)},
        "relations": {
            "heads": (
                "=",
                {"people": np.array([1, 1, 0, 0]), "homes": np.array([-1, 0])},
            )
        },
        "tied": {"occupied": ExpectedTie("total", HEADS, "homes", np.array([0, -1]))},
    }
    return ExpectedDeclarations(**right | keywords)


def parts(n_in_part: int) -> Iterator[ReleasedRows]:
    for first in range(0, 3, n_in_part):
        counts = COUNTS[first : first + n_in_part]
        key = np.flatnonzero(counts)
        none = np.zeros(len(counts), dtype=np.int64)
        areas = slice(first, first + len(counts))
        yield ReleasedRows(areas, 4, key, counts.ravel()[key], None, none)


def failing(expected: ExpectedDeclarations, n_in_part: int = 3) -> dict[str, list[str]]:
    failures = {name: Failures() for name in ON_ROWS}
    sums = DeclaredSums(expected, CELLS, failures)
    for rows in parts(n_in_part):
        homes = sparse.csr_array(HOMES[rows.areas])
        sums.add(rows, GEOCODE[rows.areas], {"homes": homes}.__getitem__)
    sums.finish()
    return {name: found.texts for name, found in failures.items() if found.count}


@pytest.mark.parametrize("n_in_part", [1, 2, 3])
def test_what_is_declared_holds(n_in_part: int) -> None:
    assert failing(declared(), n_in_part) == {}


WRONG = {
    "exact": (
        EXACT,
        {"exact": {"n": ExpectedAnswers("total", np.array([0, 0, 1]), np.array([[8], [5]]))}},
    ),
    "lower": (
        BOUNDS,
        {"bounds": (ExpectedBound("b", "sex", HEADS, np.array([[0, 0], [1, 0], [0, 0]]), None),)},
    ),
    "upper": (
        BOUNDS,
        {"bounds": (ExpectedBound("b", "sex", HEADS, None, np.array([[1, 1], [1, 1], [2, 1]])),)},
    ),
    "held": (HELD, {"held": {"by sex": ("sex", HEADS, SEXES)}}),
    "tied": (HELD, {"tied": {"t": ExpectedTie("total", ALL, "homes", np.array([0, -1]))}}),
    "relation": (
        RELATIONS,
        {"relations": {"r": (">=", {"people": np.array([1, 1, 0, 0]), "homes": -np.ones(2, int)})}},
    ),
}


@pytest.mark.parametrize("n_in_part", [1, 2, 3])
@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_hold_is_found(case: str, n_in_part: int) -> None:
    check, keywords = WRONG[case]
    assert set(failing(declared(**keywords), n_in_part)) == {check}


@pytest.mark.parametrize("n_in_part", [1, 2, 3])
def test_the_area_that_breaks_a_bound_is_named(n_in_part: int) -> None:
    bound = ExpectedBound("b", "total", ALL, None, np.array([[6], [1], [4]]))
    found = failing(declared(bounds=(bound,)), n_in_part)
    assert found == {BOUNDS: ["b is not met by area c"]}


def test_only_what_is_declared_is_said_to_hold() -> None:
    assert not any(ExpectedDeclarations().checked.values())
    made = {name for name, is_made in declared().checked.items() if is_made}
    assert made == set(ON_ROWS)

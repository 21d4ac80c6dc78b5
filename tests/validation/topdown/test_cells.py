"""The checks' own numbering of cells and query rows, against the definition and the flows'."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.census.cef_2020 import PERSONS
from spineflow.tasks.census.queries import marginal_query
from spineflow.tasks.topdown.checks.expectations import cells_of
from spineflow.validation.topdown.cells import Cells, spelled

NAMES = ("a", "b", "c", "d")


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_cells_and_rows_are_those_of_the_cross_product(data) -> None:
    """Brute force: cells are tuples of levels, and the rows of a query tuples of groups."""
    names = data.draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    sizes = {name: data.draw(st.integers(1, 4)) for name in names}
    coarsenings = {}
    for name in names:
        n_groups = data.draw(st.integers(1, sizes[name]))
        group = [*range(n_groups), *(data.draw(st.integers(0, n_groups - 1)) for _ in range(9))]
        coarsenings[f"{name}_groups"] = (name, tuple(group[: sizes[name]]))
    cells = Cells("persons", sizes, coarsenings)
    tuples = list(product(*(range(size) for size in sizes.values())))
    assert cells.n == len(tuples)
    for axis, name in enumerate(sizes):
        assert cells.levels(name).tolist() == [levels[axis] for levels in tuples]

    kept = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    parts = [name if data.draw(st.booleans()) else f"{name}_groups" for name in kept]
    keys = []
    for levels in tuples:
        of = dict(zip(sizes, levels, strict=True))
        keys.append(
            tuple(
                of[name] if name in parts else coarsenings[f"{name}_groups"][1][of[name]]
                for name in names
                if name in kept
            )
        )
    numbers = {key: i for i, key in enumerate(sorted(set(keys)))}
    margin = cells.margin("*".join(parts))
    assert margin.row_of_cell.tolist() == [numbers[key] for key in keys]
    assert margin.n_rows == len(numbers)


@pytest.mark.parametrize(
    "name", ["total", "detailed", "cenrace*hhgq", "hhinstlevels * votingage * hispanic"]
)
def test_rows_are_those_that_are_measured(name: str) -> None:
    margin, query = cells_of(PERSONS).margin(name), marginal_query(PERSONS, name)
    assert spelled(name) == query.name
    assert margin.n_rows == query.n_rows
    assert np.array_equal(margin.row_of_cell, query.row_of_cell)


@pytest.mark.parametrize("name", ["weather", "hhgq * hhinstlevels", "hhgq*hhgq", ""])
def test_names_that_are_no_query_are_refused(name: str) -> None:
    with pytest.raises(ValueError):
        Cells("persons", {"hhgq": 8, "sex": 2}, cells_of(PERSONS).coarsenings).margin(name)


def test_conditions_hold_together() -> None:
    cells = Cells("persons", {"x": 2, "y": 3})
    assert np.flatnonzero(cells.where({"x": [1], "y": [0, 2]})).tolist() == [3, 5]

"""The checks' own reading of a census: cells, rows of queries, levels, against brute force."""

from __future__ import annotations

import tomllib
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.tasks.census.cef_2020 import CENSUS
from spineflow.tasks.census.queries import marginal_query
from spineflow.validation.topdown.declaration import (
    CENSUSES,
    Cells,
    Declaration,
    Grouping,
    groups_of,
    labels_of,
    positions_of,
    spell_query,
)

NAMES = ("a", "b", "c", "d")


def numbered(*sizes: int) -> dict[str, tuple[str, ...]]:
    """Attributes of so many levels."""
    return {n: tuple(map(str, range(size))) for n, size in zip(NAMES, sizes, strict=False)}


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_cells_and_rows_are_those_of_the_cross_product(data) -> None:
    """Brute force: cells are tuples of levels, and the rows of a query tuples of groups."""
    labels = numbered(*data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    groupings = {}
    for name, own in labels.items():
        n_groups = data.draw(st.integers(1, len(own)))
        groups = [*range(n_groups), *(data.draw(st.integers(0, n_groups - 1)) for _ in range(9))]
        names = tuple(map(str, range(n_groups)))
        groupings[f"{name}_groups"] = Grouping(name, names, tuple(groups[: len(own)]))
    cells = Cells("persons", labels, groupings)
    tuples = list(product(*(range(len(own)) for own in labels.values())))
    assert cells.n == len(tuples)
    for axis, name in enumerate(labels):
        assert cells.levels(name).tolist() == [levels[axis] for levels in tuples]
    kept = data.draw(st.lists(st.sampled_from(list(labels)), min_size=1, unique=True))
    parts = [name if data.draw(st.booleans()) else f"{name}_groups" for name in kept]
    keys = []
    for levels in tuples:
        of = dict(zip(labels, levels, strict=True))
        keys.append(
            tuple(
                of[name] if name in parts else groupings[f"{name}_groups"].groups[of[name]]
                for name in labels
                if name in kept
            )
        )
    numbers = {key: i for i, key in enumerate(sorted(set(keys)))}
    assert cells.rows("*".join(parts)).tolist() == [numbers[key] for key in keys]
    assert cells.n_rows("*".join(parts)) == len(numbers)
    allowed = data.draw(st.lists(st.sampled_from(labels[kept[0]]), min_size=1))
    at = list(labels).index(kept[0])
    wanted = [str(levels[at]) in allowed for levels in tuples]
    assert cells.where({kept[0]: allowed}).tolist() == wanted


def declared(universe: str) -> Cells:
    """A universe of the census of 2020, by its files."""
    census = tomllib.loads((CENSUSES / "cef_2020.toml").read_text(encoding="utf-8"))
    return Declaration(Path(), {}, census).all_cells(universe)


@pytest.mark.parametrize("query", ["total", "votingage*cenrace", "hhinstlevels * race_groups"])
def test_rows_are_those_that_are_measured(query: str) -> None:
    names = ("hhgq", "votingage", "hispanic", "cenrace")
    cells, schema = declared("persons"), CENSUS.schema("persons", names)
    own = Cells("persons", {name: cells.labels[name] for name in names}, cells.coarsenings)
    assert own.n == schema.n_cells
    assert own.n_rows(query) == marginal_query(schema, query).n_rows
    assert np.array_equal(own.rows(query), marginal_query(schema, query).row_of_cell)
    assert spell_query(query) == marginal_query(schema, query).name


@pytest.mark.parametrize("query", ["weather", "a * a_groups", "a*a", ""])
def test_names_that_are_no_query_are_refused(query: str) -> None:
    groups = {"a_groups": Grouping("a", ("x",), (0, 0))}
    with pytest.raises(ValueError):
        Cells("persons", numbered(2, 3), groups).rows(query)


def test_levels_of_other_universes_are_matched_by_their_labels() -> None:
    sizes = ("one", "two")
    own = Cells("homes", {"size": sizes, "kind": ("a", "b")})
    other = Cells("people", {"sex": ("f", "m"), "crowd": ("two", "one")})
    row = own.counted_of(other, "size", {"sex": ["m"]}, {"size": "crowd"})
    assert row.tolist() == [-1, -1, 1, 0]


@pytest.mark.parametrize(
    ("attribute", "labels"),
    [
        ({"bins": [0, 5, 6], "largest": 9}, ("0-4", "5", "6-9")),
        ({"bins": [0, 5], "largest": 9, "labels": ["x", "y"], "blank": "z"}, ("x", "y", "z")),
        ({"numbers": [3, 5]}, ("3", "4", "5")),
        ({"rules": [{"level": "b"}, {"level": "a"}, {"level": "b"}]}, ("b", "a")),
        ({"levels": {"q": ["1"], "p": ["2"]}}, ("q", "p")),
    ],
)
def test_labels_are_those_of_the_kind_of_attribute(attribute: dict, labels: tuple) -> None:
    assert labels_of(attribute) == labels


def test_levels_are_told_by_labels_positions_ranges_and_patterns() -> None:
    labels = ["0-4", "5-9", "10", "couple; 2", "couple; 3"]
    assert positions_of({"from": 0, "to": 9}, labels) == positions_of("0-9", labels) == [0, 1]
    assert positions_of("couple; *", labels) == [3, 4]
    assert positions_of(2, labels) == positions_of("10", labels) == [2]
    levels = {"few": ["0-9"], "pairs": ["couple*"], "threes": ["couple; 3"], "rest": []}
    assert groups_of(labels, levels) == (0, 0, 3, 1, 2)

"""Answers that are held to an earlier universe of the same run."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from spineflow.tasks.census.census import compiled
from spineflow.tasks.census.declarations import CensusDeclaration
from spineflow.tasks.census.queries import counted_rows, marginal_query

CENSUS: dict[str, Any] = {
    "geography": {"table": "areas", "geolevels": ["land", "town"]},
    "attributes": {
        "state": {
            "column": "state",
            "levels": {"let": ["1"], "owned": ["2"], "empty": ["3"], "free": ["4"]},
        },
        "tenure": {"column": "tenure", "levels": {"owned": ["b"], "let or free": ["a", "c"]}},
        "size": {"column": "size", "numbers": [1, 3]},
    },
    "coarsenings": {
        "tenure": {
            "attribute": "state",
            "levels": {"let or free": ["let", "free"], "owned": ["owned"], "none": ["empty"]},
        },
        "is_home": {"attribute": "state", "levels": {"home": [], "no home": ["empty"]}},
        "alone": {"attribute": "size", "levels": {"yes": ["1"], "no": ["2", "3"]}},
    },
    "universes": {
        "dwellings": {"table": "dwellings", "attributes": ["state"], "area": "town"},
        "households": {
            "table": "households",
            "attributes": ["size", "tenure"],
            "area": "town",
            "held_to": [
                {"universe": "dwellings", "query": "tenure", "of": {"is_home": ["home"]}},
            ],
        },
    },
}


def changed(*path: str | int, value: Any) -> CensusDeclaration:
    """The declaration with one part replaced."""
    tree = deepcopy(CENSUS)
    place: Any = tree
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return CensusDeclaration.model_validate(tree)


def test_answers_are_matched_by_label_in_any_order() -> None:
    census = compiled(CensusDeclaration.model_validate(CENSUS))
    universe = census.universes["households"]
    held = universe.held_to_universes[0]
    assert held.name == "tenure of dwellings" and universe.held_to_releases == ()
    assert universe.needs == ("dwellings",)
    assert census.earlier_releases == ()
    households, dwellings = census.schema("households"), census.schema("dwellings")
    rows = counted_rows(households, dwellings, held.query, held.where, held.of).toarray()
    # owned is the first level of the one, let or free the second; empty dwellings are not counted.
    assert rows.tolist() == [[0, 1], [1, 0], [0, 0], [0, 1]]
    assert marginal_query(households, held.query).n_rows == 2


def test_rows_of_several_attributes_are_those_of_the_query() -> None:
    schema = compiled(CensusDeclaration.model_validate(CENSUS)).schema("households")
    owned = {"tenure": ["owned"]}
    rows = counted_rows(schema, schema, "alone * tenure", owned, owned).toarray()
    inside = schema.cells_where(owned)
    due = marginal_query(schema, "alone * tenure").matrix.T.toarray() * inside[:, None]
    assert np.array_equal(rows, due)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("of",), {}, "has other levels of tenure, such as 'none'"),
        (("query",), "size", "lacks size"),
        (("universe",), "persons", "persons"),
        (("universe",), "households", "declare 'households' before 'households'"),
        (("where",), {"tenure": ["owned"]}, "has other levels of tenure, such as 'let or free'"),
    ],
)
def test_what_the_other_universe_does_not_tell_is_refused(path, value, words) -> None:
    place = ("universes", "households", "held_to", 0, *path)
    with pytest.raises(ValueError, match=words):
        compiled(changed(*place, value=value))


def test_descriptions_need_a_universe_that_is_held_and_codes_of_every_level() -> None:
    column = {"name": "SIZE", "attribute": "size", "first": 1}
    told = {"universe": "households", "columns": [column], "otherwise": {"SIZE": "0"}}
    own = [{"name": "STATE", "attribute": "state", "first": 0}]
    layout = {"columns": own, "described_by": told}
    place = ("universes", "dwellings", "microdata")
    assert compiled(changed(*place, value=layout)).universes["dwellings"].described_by == (
        "households"
    )
    few = {**told, "columns": [{"name": "SIZE", "attribute": "size", "codes": ["1", "2"]}]}
    with pytest.raises(ValueError, match="another number of codes"):
        compiled(changed(*place, value={**layout, "described_by": few}))
    with pytest.raises(ValueError, match="needs a code of every column"):
        changed(*place, value={**layout, "described_by": {**told, "otherwise": {}}})
    free = deepcopy(CENSUS)
    free["universes"]["households"].pop("held_to")
    free["universes"]["dwellings"]["microdata"] = layout
    with pytest.raises(ValueError, match="held to 'dwellings'"):
        compiled(CensusDeclaration.model_validate(free))

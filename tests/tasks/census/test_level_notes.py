"""Notes of `check` on levels that no record has, or that all have."""

from __future__ import annotations

import pytest
from scipy import sparse
from spineflow.tasks.census.census import compiled
from spineflow.tasks.census.declarations import CensusDeclaration
from spineflow.tasks.census.declared_input import level_notes

PEOPLE = compiled(
    CensusDeclaration.model_validate(
        {
            "geography": {"table": "areas", "geolevels": ["all", "area"]},
            "attributes": {
                "role": {
                    "rules": [
                        {"level": "head", "where": {"role": ["01"]}},
                        {"level": "other", "where": {}},
                    ]
                },
                "age": {"column": "age", "bins": [0, 18], "largest": 99},
            },
            "universes": {
                "people": {"table": "people", "area": "area", "attributes": ["role", "age"]}
            },
        }
    )
).universes["people"]


@pytest.mark.parametrize(
    ("counts", "note"),
    [
        ([0, 0, 3, 2], "every record has the level 'other' of role"),
        ([0, 0, 0, 0], "no record belongs to people"),
        ([1, 0, 3, 0], None),
    ],
)
def test_codes_that_look_misspelt_are_named(counts: list[int], note: str | None) -> None:
    found = list(level_notes(PEOPLE, PEOPLE.schema, sparse.csr_array([counts])))
    assert len(found) == (note is not None)
    assert note is None or note in found[0]

"""Declarations of a census that cannot hold together are named, and only those."""

from __future__ import annotations

import pytest
from spineflow.tasks.census.census import Census, compiled
from spineflow.tasks.census.declarations import CensusDeclaration
from spineflow.tasks.census.exact_answers import refuse_contradictions

KINDS = ("a", "b", "c")


def census(zeros: dict[str, str], bounds: dict[str, str]) -> Census:
    """A census of people of three kinds: of some there is nobody, of some at least one."""
    return compiled(
        CensusDeclaration.model_validate(
            {
                "geography": {"table": "areas", "geolevels": ["all", "area"]},
                "attributes": {"kind": {"column": "k", "levels": {n: [n] for n in KINDS}}},
                "universes": {
                    "homes": {"table": "homes", "attributes": ["kind"], "area": "area"},
                    "people": {
                        "table": "people",
                        "attributes": ["kind"],
                        "area": "area",
                        "structural_zeros": [
                            {"name": name, "where": {"kind": list(kinds)}}
                            for name, kinds in zeros.items()
                        ],
                        "bounds": [
                            {"name": name, "where": {"kind": list(kinds)}}
                            | {"per": "homes", "at_least": 1}
                            for name, kinds in bounds.items()
                        ],
                    },
                },
            }
        )
    )


def refuse(own: Census) -> None:
    schemas = {name: own.schema(name) for name in own.universes}
    zeros = {name: universe.zeros for name, universe in own.universes.items()}
    refuse_contradictions(own, schemas, zeros)


def test_declarations_that_hold_together_are_not_refused() -> None:
    refuse(census({"no a": "a"}, {"some": "ab", "more": "c"}))
    refuse(census({}, {"some": "a"}))
    refuse(census({"no a": "a", "no b": "b"}, {}))


def test_two_that_clash_are_named_and_no_other() -> None:
    own = census({"no a": "a", "no b": "b"}, {"some a": "a", "some c": "c"})
    with pytest.raises(ValueError, match="contradict each other; correct one of them") as refused:
        refuse(own)
    told = str(refused.value)
    assert "'no a'" in told and "'some a'" in told and " and " in told
    assert "no b" not in told and "some c" not in told


def test_three_that_clash_together_alone_are_all_named() -> None:
    own = census({"no a": "a", "no b": "b"}, {"one": "ab"})
    with pytest.raises(ValueError, match="contradict each other") as refused:
        refuse(own)
    told = str(refused.value)
    assert all(f"'{name}'" in told for name in ("no a", "no b", "one"))
    assert told.count(", ") == 2

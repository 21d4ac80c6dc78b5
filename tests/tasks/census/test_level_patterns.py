"""Levels that are named by patterns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spineflow.tasks.census.attribute_declarations import CoarseningDeclaration
from spineflow.tasks.census.compiled_schemas import compiled_coarsening
from spineflow.tasks.census.recodes import Recode
from spineflow.tasks.census.schema import Schema, positions_of

TYPES = ("alone", "couple; size 2", "couple; size 3", "other; size 2", "other; size 3", "odd * one")


class Levels:
    """As much of a recode as a coarsening asks for."""

    levels = TYPES


def groups(levels: dict[str, list[str]]) -> tuple[int, ...]:
    declared = CoarseningDeclaration(attribute="type", levels=levels)
    recodes: dict[str, Recode] = {"type": Levels()}  # type: ignore[dict-item]
    return compiled_coarsening("coarse", declared, recodes).groups


def test_a_pattern_stands_for_all_levels_that_fit_it() -> None:
    assert groups({"couple": ["couple; *"], "none": []}) == (1, 0, 0, 1, 1, 1)
    assert groups({"2": ["*; size 2"], "3": ["*size*3*"], "rest": []}) == (2, 0, 1, 0, 1, 2)


def test_the_longest_pattern_counts_and_a_label_before_all() -> None:
    coarse = {"all": ["*"], "pairs": ["*; size 2"], "one": ["other; size 2"]}
    assert groups(coarse) == (0, 1, 0, 2, 0, 0)
    assert groups(dict(reversed(coarse.items()))) == (2, 1, 2, 0, 2, 2)


def test_a_label_with_a_star_is_itself() -> None:
    assert positions_of("type", "odd * one", TYPES) == [5]
    assert positions_of("type", "o*", TYPES) == [3, 4, 5]


@pytest.mark.parametrize(
    ("levels", "says"),
    [
        ({"a": ["nobody*"], "b": []}, "has no level that fits 'nobody\\*'"),
        ({"a": ["*; size 2"], "b": ["couple; *"], "c": []}, "level 'couple; size 2' twice"),
        ({"a": ["alone"], "b": ["alone", "*"]}, "level 'alone' twice"),
    ],
)
def test_patterns_that_leave_it_open_are_refused(levels, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        groups(levels)


def test_conditions_take_patterns_too() -> None:
    schema = Schema("people", ("type",), (TYPES,))
    assert schema.positions({"type": ["couple; *", "alone"]}) == {"type": [0, 1, 2]}
    assert schema.spelt_out("type", ["other; *"]) == ["other; size 2", "other; size 3"]


@given(
    st.lists(st.text("ab.(\n", max_size=3), min_size=1, max_size=6, unique=True),
    st.text("ab.(*\n", max_size=4),
)
def test_only_the_star_is_special(labels: list[str], pattern: str) -> None:
    """By trying how the texts between the stars can stand in a label, one after the other."""

    def fits(texts: list[str], label: str) -> bool:
        first, *others = texts
        if not label.startswith(first):
            return False
        rest = label[len(first) :]
        return not rest if not others else any(fits(others, rest[k:]) for k in range(len(rest) + 1))

    expected = [at for at, label in enumerate(labels) if fits(pattern.split("*"), label)]
    if pattern in labels or "*" not in pattern:
        return
    if expected:
        assert positions_of("x", pattern, labels) == expected
    else:
        with pytest.raises(ValueError, match="fits"):
            positions_of("x", pattern, labels)

"""Names and points of the entities of declared areas."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from spineflow.tasks.census.areas import (
    Areas,
    described_columns,
    descriptions,
    load_areas,
    needed_columns,
)
from spineflow.tasks.census.attribute_declarations import CoarseningDeclaration
from spineflow.tasks.census.compiled_schemas import compiled_coarsening
from spineflow.tasks.census.declarations import CensusGeography, TableDeclaration
from spineflow.tasks.census.queries import positions_of
from spineflow.tasks.census.recodes import Recode
from spineflow.tasks.tables.findings import UnreadableInput
from spineflow.tasks.tables.sources import input_files
from spineflow.tasks.tables.value_tallies import ValueTally

AREAS = pd.DataFrame(
    {
        "region": ["S", "N", "N", "S"],
        "section": ["s2", "n1", "n2", "s1"],
        "region_name": ["South", "North, upper", "North, upper", "South"],
        "x": ["1.5", "-2", "-2", "1.5"],
        "y": ["", "60", "60", ""],
        "parish": ["p", "", "q", "p"],
        "parish_name": ["Saint P", "", "Saint Q", "Saint P"],
    }
)
DECLARED = {
    "table": "areas",
    "geolevels": ["country", "region", "section"],
    "entities": {
        "region": {"name": "region_name", "latitude": "y", "longitude": "x"},
        "parish": {"name": "parish_name"},
    },
}


def declared(**changes) -> CensusGeography:
    return CensusGeography.model_validate(DECLARED | changes)


def loaded(folder: Path, frame: pd.DataFrame, geography: CensusGeography, tables=()) -> Areas:
    frame.to_csv(folder / "areas.csv", index=False)
    files = input_files("areas", str(folder / "areas.csv"))
    return load_areas(files, geography, ValueTally(), needed_columns(geography, tables))


def test_entities_have_what_their_areas_repeat(tmp_path: Path) -> None:
    geography = declared()
    areas = loaded(tmp_path, AREAS, geography).frame
    assert descriptions(areas, geography, "region") == {
        "name": ["North, upper", "South"],
        "latitude": ["60", ""],
        "longitude": ["-2", "1.5"],
    }
    assert descriptions(areas, geography, "parish") == {"name": ["Saint P", "Saint Q"]}
    assert descriptions(areas, geography, "section") == {}


def test_tables_have_the_columns_of_their_levels_alone() -> None:
    assert described_columns(declared(), ["section", "parish"]) == ("name",)
    assert described_columns(declared(), ["parish", "region"]) == ("name", "latitude", "longitude")
    assert described_columns(declared(), ["country"]) == ()


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("region_name", ["South", "North", "Nord", "South"], "several values within a region"),
        ("parish_name", ["a", "", "b", "c"], "several values within a parish"),
        ("y", ["", "91", "91", ""], "no latitude in degrees"),
        ("x", ["east", "0", "0", "east"], "no longitude in degrees"),
    ],
)
def test_what_does_not_fit_is_refused(
    column: str, values: list[str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(UnreadableInput, match=f"{column} .*{said}"):
        loaded(tmp_path, AREAS.assign(**{column: values}), declared())


def test_columns_that_are_named_must_be_there(tmp_path: Path) -> None:
    """Before anything is spent: a level of a table, too."""
    with pytest.raises(UnreadableInput, match="the column parish_name is missing"):
        loaded(tmp_path, AREAS.drop(columns="parish_name"), declared())
    table = TableDeclaration(name="T", universe="people", levels=("country", "county"))
    with pytest.raises(UnreadableInput, match="the column county is missing"):
        loaded(tmp_path, AREAS, declared(), [table])


@pytest.mark.parametrize("entry", [{}, {"latitude": "y"}, {"name": "n", "longitude": "x"}])
def test_a_point_has_both_coordinates(entry: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="needs"):
        declared(entities={"region": entry})


COLUMNS = ("district", "section")


@pytest.mark.parametrize(
    ("districts", "sections", "codes"),
    [
        ("AAB", "123", ["1", "2", "3"]),
        ("ABB", "112", ["A1", "B1", "B2"]),
        ("AAB", "112", None),
    ],
)
def test_areas_are_told_apart_by_as_little_as_will_do(
    districts: str, sections: str, codes: list[str] | None
) -> None:
    frame = pd.DataFrame({"district": list(districts), "section": list(sections)}, dtype=object)
    found = Areas(frame, COLUMNS, {}).codes
    assert (None if found is None else found.tolist()) == codes


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

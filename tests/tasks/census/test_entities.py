"""Names and points of the entities of declared areas."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from pydantic import ValidationError
from spineflow.tasks.census.areas import (
    Areas,
    described_columns,
    descriptions,
    load_areas,
    needed_columns,
)
from spineflow.tasks.census.declarations import CensusGeography, TableDeclaration
from spineflow.tasks.census.evidence import EvidenceTally
from spineflow.tasks.tables.findings import UnreadableInput
from spineflow.tasks.tables.sources import input_files

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
    return load_areas(files, geography, EvidenceTally(), needed_columns(geography, tables))


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

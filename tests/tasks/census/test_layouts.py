"""What a layout of the tables does not read is refused where it is declared."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from spineflow.tasks.census.census import PRESETS
from spineflow.tasks.census.declarations import CensusDeclaration
from spineflow.tasks.runs.files import read_declared

OFTEN = {"person": "ID", "records_per_person": 2}
HELD = {"universe": "units", "query": "total"}


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("files",), {"persons": {}}, "files, which the layout 'cef' does not read"),
        (
            ("contributions",),
            {"persons": OFTEN},
            "contributions, which",
        ),
        (("universes", "persons", "held_to"), [HELD], "held_to, which the layout 'cef'"),
        (("layout",), "declared", "geography.rules = 'blocks', which need the layout 'cef'"),
    ],
)
def test_tables_of_the_census_edited_file_declare_what_their_reader_reads(
    place: tuple[str, ...], value: Any, words: str
) -> None:
    census = read_declared(PRESETS / "cef_2020.toml")
    CensusDeclaration.model_validate(census)
    node = census
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    with pytest.raises(ValidationError, match=words):
        CensusDeclaration.model_validate(census)


def test_records_that_are_declared_whole_have_areas() -> None:
    census = read_declared(PRESETS / "dhc_units_2020.toml")
    del census["universes"]["units"]["area"]
    with pytest.raises(ValidationError, match="universe 'units' without area"):
        CensusDeclaration.model_validate(census)

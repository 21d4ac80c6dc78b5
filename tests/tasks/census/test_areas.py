"""Codes that tell areas apart: the last geolevel's, those of all, or none."""

from __future__ import annotations

import pandas as pd
import pytest
from spineflow.tasks.census.areas import Areas, code_columns, joined_codes

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


def test_codes_of_all_geolevels_stand_one_after_the_other() -> None:
    frame = pd.DataFrame({"a": ["1", "2"], "b": ["x", "y"], "c": ["8", "9"]}, dtype=object)
    assert joined_codes(frame, ("a", "b", "c")).tolist() == ["1x8", "2y9"]
    assert joined_codes(frame, ("c", "a")).tolist() == ["81", "92"]
    assert code_columns(("nation", "a", "b", "c"), ["c", "nation", "a"]) == ("a", "c")

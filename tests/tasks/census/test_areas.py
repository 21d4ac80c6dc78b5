"""Codes that tell areas apart: the last geolevel's, those of all, or none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.census.areas import AreaIndex, Areas, refuse_alike
from spineflow.tasks.tables.columns import CodedColumn
from spineflow.tasks.tables.findings import UnreadableInput
from spineflow.tasks.tables.sources import InputFile

PIECES = Areas(
    pd.DataFrame(
        {"region": list("AABB"), "town": list("1234"), "cell": list("xyyz")}, dtype=object
    ),
    ("region", "town", "cell"),
    {},
)
FILE = InputFile("areas", "", "areas.csv")


def test_records_find_their_area_by_the_codes_of_the_last_geolevels() -> None:
    towns = CodedColumn(np.array([0, 1, 1]), ("2", "3", None))
    cells = CodedColumn(np.array([0, 0, 1]), ("y", "z", None))
    assert AreaIndex(PIECES, 2).positions([towns, cells]).tolist() == [1, 2, -1]
    refuse_alike(PIECES, "persons", ("town", "cell"), FILE)


@pytest.mark.parametrize(
    ("named", "refusal"),
    [(("cell",), "codes of cell.*codes of town"), (("a", "b", "c", "d"), "4 columns in area")],
)
def test_codes_that_several_areas_share_are_refused(named: tuple[str, ...], refusal: str) -> None:
    """Records were counted in the first of these areas."""
    with pytest.raises(UnreadableInput, match=refusal):
        refuse_alike(PIECES, "persons", named, FILE)

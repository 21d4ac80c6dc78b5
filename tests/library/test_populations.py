"""Tables of a population from the library: refusals are those of the package."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import spineflow
from spineflow.tasks.supplemental_dhc.ingest.population import RACE


def write_household(folder: Path) -> None:
    """A married couple with a child of three, who rent, and a vacant unit."""
    block = "44" + "0" * 14
    pd.DataFrame(
        {
            "geocode": [block] * 4,
            "unit": [1, 1, 1, None],
            "relationship": ["householder", "opposite-sex spouse", "biological child", None],
            "sex": ["female", "male", "male", "male"],
            "age": ["40", "41", "3", "20"],
            "hispanic": ["Hispanic", "not Hispanic", "not Hispanic", "Hispanic"],
            RACE: ["white", "black", "white + black", "Asian"],
        }
    ).to_parquet(folder / "population_persons.parquet")
    pd.DataFrame(
        {"geocode": [block] * 2, "unit": [1, 2], "size": [3, 0], "tenure": ["rented", None]}
    ).to_parquet(folder / "population_units.parquet")


def test_one_household_is_counted_by_hand(tmp_path: Path) -> None:
    write_household(tmp_path)
    rows = spineflow.people_in_households(tmp_path, ["State"])
    assert set(rows["region"]) == {"44"}
    found = rows.set_index(["table", "cell", "iteration"])["estimate"]
    assert found["PH1"].dropna().to_dict() == {
        (cell, code): value
        for code in ("*", "A", "H")
        for cell, value in ((1, 3.0), (2, 1.0), (3, 2.0))
    }
    assert found["PH2", 3, "*"] == 3 and found["PH2", 1, "*"] == 3
    child = found["PH3"]
    assert child[4, "*"] == child[4, "G"] == 1 and child[4, "A"] == child[4, "H"] == 0
    assert found["PH4", 1, "A"] == 3 and found["PH5", 1, "H"] == 3
    assert found["PH6", 3, "*"] == 1 and found["PH6", 4, "*"] == 0
    assert found["PH7", 4, "*"] == 3 and found["PH8", 3, "A"] == 3
    assert found["PH8"][2].isna().all()


def test_what_is_no_population_is_refused(tmp_path: Path) -> None:
    with pytest.raises(spineflow.SpineflowError, match="there is no such file"):
        spineflow.people_in_households(tmp_path)

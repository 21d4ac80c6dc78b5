"""What `import spineflow` offers, and what it costs to import it."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import pandas as pd
import pytest
import spineflow
from spineflow.tasks.supplemental_dhc.ingest import RACE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "library.md"

LOADED = """
import json, sys
import spineflow
at_first = [name for name in ("pandas", "numba", "prefect") if name in sys.modules]
for name in spineflow.__all__:
    getattr(spineflow, name)
frame = spineflow.budget("topdown", {
    "preset": "pl94_2020_us",
    "input": {"persons": "p", "units": "u", "geography": "g"},
    "privacy": {"dataset": "d"},
})
late = [name for name in ("prefect", "matplotlib") if name in sys.modules]
print(json.dumps([at_first, late, len(frame)]))
"""


@pytest.mark.slow
def test_importing_it_loads_little_and_no_prefect() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    at_first, late, queries = json.loads(done.stdout)
    assert (at_first, late) == ([], [])
    assert queries > 50


@pytest.mark.parametrize("name", spineflow.__all__)
def test_every_public_name_is_there_documented_and_on_the_page(name: str) -> None:
    public = getattr(spineflow, name)
    assert len(inspect.getdoc(public) or "") > 60
    page = PAGE.read_text(encoding="utf-8")
    assert f"`{name}" in page or f"spineflow.{name}" in page
    if inspect.isfunction(public):
        hints = inspect.get_annotations(public)
        assert "return" in hints and set(inspect.signature(public).parameters) <= set(hints)


def test_other_names_are_unknown() -> None:
    assert spineflow.__version__ == version("spineflow")
    assert set(spineflow.__all__) < set(dir(spineflow))
    with pytest.raises(AttributeError, match="no attribute 'topdwn'"):
        _ = spineflow.topdwn


def test_errors_are_of_one_class() -> None:
    from spineflow.tasks.runs import errors

    own = [
        one for one in vars(errors).values() if getattr(one, "__module__", "") == errors.__name__
    ]
    classes = [one for one in own if inspect.isclass(one)]
    assert classes and all(issubclass(one, spineflow.SpineflowError) for one in classes)


@pytest.mark.parametrize(
    "name",
    [
        "topdown",
        "detailed_groups",
        "detailed_households",
        "group_sizes",
        "supplemental_dhc",
        "trips",
    ],
)
def test_what_a_ledger_needs_is_in_the_signature(name: str) -> None:
    (privacy,) = get_args(
        inspect.get_annotations(getattr(spineflow, name), eval_str=True)["privacy"]
    )
    assert {"dataset", "ledger"} <= inspect.get_annotations(privacy).keys()


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

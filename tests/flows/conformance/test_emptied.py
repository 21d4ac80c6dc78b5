"""Inputs without a kind of record, or with one record alone: they are released as others are.

A run that ended otherwise for want of a record would tell neighbouring inputs apart with certainty.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from spineflow.flows.cli import main

from tests.flows.conformance.cases import CASES

pytestmark = [pytest.mark.soak, pytest.mark.usefixtures("in_process", "uncompared")]

Chosen = Callable[[pd.DataFrame], pd.Series]


def keep(file: Path, chosen: Chosen) -> None:
    """Keep some rows of a table."""
    if file.suffix == ".parquet":
        frame = pd.read_parquet(file)
        frame[chosen(frame)].to_parquet(file, index=False)
    else:
        frame = pd.read_csv(file, dtype=str, keep_default_na=False)
        frame[chosen(frame)].to_csv(file, index=False)


def keep_units(folder: Path, chosen: Chosen) -> None:
    """Keep some units of a county, and who lives there."""
    keep(folder / "units.parquet", chosen)
    ids = pd.read_parquet(folder / "units.parquet")["MAFID"]
    keep(folder / "persons.parquet", lambda persons: persons["MAFID"].isin(ids))


def is_facility(units: pd.DataFrame) -> pd.Series:
    return units["RTYPE"].astype(str) == "4"


def is_vacant(units: pd.DataFrame) -> pd.Series:
    return ~is_facility(units) & (units["FINAL_POP"].astype(int) == 0)


def without_a_tract(folder: Path) -> None:
    """Move nobody, but leave one tract without a unit."""
    blocks = pd.read_csv(folder / "grfc.txt", sep="|", dtype=str)
    of_tract = blocks.loc[blocks["TABTRACTCE"] == blocks["TABTRACTCE"].iloc[0], "OIDTABBLK"]
    keep_units(folder, lambda units: ~units["OIDTB"].astype(str).isin(of_tract))


COUNTY: dict[str, Callable[[Path], None]] = {
    "without facilities": lambda folder: keep_units(folder, lambda units: ~is_facility(units)),
    "facilities alone": lambda folder: keep_units(folder, is_facility),
    "without vacant units": lambda folder: keep_units(folder, lambda units: ~is_vacant(units)),
    "without a tract": without_a_tract,
}


def first_alone(name: str) -> Callable[[Path], None]:
    """Keep the first record of a table."""
    return lambda folder: keep(folder / name, lambda frame: frame.index == 0)


EMPTIED = [
    *[
        pytest.param(case, empty, id=f"{case} {label}")
        for case in ("topdown", "detailed households", "supplemental dhc")
        for label, empty in COUNTY.items()
    ],
    pytest.param("group sizes", first_alone("sizes.parquet"), id="one group"),
    pytest.param("trips", first_alone("trips.parquet"), id="one trip"),
    pytest.param("schools", first_alone("pupils.csv"), id="one pupil"),
    pytest.param("register", first_alone("persons.parquet"), id="one person"),
    pytest.param(
        "homes",
        lambda folder: keep(folder / "people.csv", lambda people: people["home"] == ""),
        id="empty homes",
    ),
]


@pytest.mark.parametrize(("case", "empty"), EMPTIED)
def test_what_has_no_record_of_a_kind_is_released(
    case: str, empty: Callable[[Path], None], tmp_path: Path
) -> None:
    settings = CASES[case].write(tmp_path)
    empty(tmp_path)
    assert main(["run", CASES[case].product, str(settings), "--run-dir", str(tmp_path / "r")]) == 0
    assert any((tmp_path / "r" / "release").iterdir())

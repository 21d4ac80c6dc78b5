"""Sums over a population: written from generated households, they are the tables without noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.supplemental_dhc.estimation import rows_of_population
from spineflow.tasks.supplemental_dhc.ingest import (
    PERSONS_FILE,
    RACE,
    TENURE_CODES,
    UNITS_FILE,
    person_codes,
)
from spineflow.tasks.topdown.ingest.generate import FEWEST_PERSONS, generate_county
from spineflow.tasks.topdown.ingest.generate_households import synthesize_households

from benchmarks.supplemental_dhc_ways import indexed, measured, root_mean_square


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A county whose households fit together, in `input`, and as a population, in `population`."""
    folder = tmp_path_factory.mktemp("population")
    generate_county(folder / "raw", persons=FEWEST_PERSONS, seed=9)
    synthesize_households(folder / "raw", folder / "input", seed=9)
    (folder / "population").mkdir()
    write_population(folder / "input", folder / "population")
    return folder


def write_population(source: Path, target: Path) -> None:
    """The true households, in the layout of a released population."""
    persons = pd.read_parquet(source / "persons.parquet")
    units = pd.read_parquet(source / "units.parquet")
    geography = pd.read_csv(source / "grfc.txt", sep="|", dtype=str)
    parts = ["TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK"]
    geocode = dict(zip(geography["OIDTABBLK"], geography[parts].agg("".join, axis=1), strict=True))
    units["geocode"] = units["OIDTB"].map(geocode)
    units["unit"] = np.arange(1, len(units) + 1)
    home = units[units["RTYPE"].astype(int) == 2]
    labels = {code: label for label, code in TENURE_CODES.items() if "or without" not in label}
    lived_in = home["FINAL_POP"] > 0
    pd.DataFrame(
        {
            "geocode": units["geocode"],
            "unit": units["unit"],
            "size": home["FINAL_POP"].reindex(units.index),
            "tenure": home["TEN"][lived_in].astype(int).map(labels).reindex(units.index),
        }
    ).to_parquet(target / UNITS_FILE)
    of_unit = units.set_index("MAFID").loc[persons["MAFID"]]
    inside = (of_unit["RTYPE"].astype(int) == 2).to_numpy()
    told = {"relationship": "RELSHIP", "age": "QAGE", "sex": "QSEX", "hispanic": "CENHISP"}
    found = {
        "geocode": of_unit["geocode"].to_numpy(),
        "unit": of_unit["unit"].where(inside).to_numpy(),
    }
    for name, column in (told | {RACE: RACE.upper()}).items():
        label_of = {code: label for label, code in person_codes()[name].items()}
        found[name] = persons[column].astype(int).map(label_of)
    pd.DataFrame(found).to_parquet(target / PERSONS_FILE)


def test_a_true_population_has_the_true_tables(folder: Path) -> None:
    truth = measured(folder / "input", "infinite = true\n")["estimate"]
    rows = indexed(rows_of_population(folder / "population", ["US", "State"]))
    own = rows["estimate"].reindex(truth.index)
    pd.testing.assert_series_equal(own, truth)
    assert len(rows) == len(truth) and truth.sum() > 0
    assert rows[["noisy", "low", "high"]].isna().all().all()
    assert (root_mean_square([own], truth) == 0).all()


@pytest.mark.parametrize("change", ["size", "unit", "tenure", "relationship"])
def test_a_population_that_does_not_fit_is_refused(
    folder: Path, tmp_path: Path, change: str
) -> None:
    units = pd.read_parquet(folder / "population" / UNITS_FILE)
    persons = pd.read_parquet(folder / "population" / PERSONS_FILE)
    if change == "size":
        units["size"] += 1
    elif change == "unit":
        persons["unit"] += len(units)
    elif change == "tenure":
        units["tenure"] = units["tenure"].where(units["tenure"].isna(), "squatted")
    else:
        persons["relationship"] = "ward"
    units.to_parquet(tmp_path / UNITS_FILE)
    persons.to_parquet(tmp_path / PERSONS_FILE)
    words = "do not fit" if change in ("size", "unit") else "labels that are not of"
    with pytest.raises(InputRefused, match=words):
        rows_of_population(tmp_path, ["State"])

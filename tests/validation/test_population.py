"""The checks of one population, on files that are right and on files that are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.census.census import preset_census
from spineflow.tasks.census.households import unit_columns
from spineflow.tasks.population.checks.expected import expected_population
from spineflow.tasks.population.ingest.released import Records
from spineflow.tasks.population.release.population import (
    PERSONS_FILE,
    UNITS_FILE,
    Population,
    Released,
    write_population,
)
from spineflow.tasks.population.workload import person_levels
from spineflow.tasks.population.workload.household_types import DERIVED, universe
from spineflow.tasks.topdown.ingest.generate_households import Persons, draw_households
from spineflow.validation.population import ExpectedPopulation, ReleasedCounts, check_population

from tests.tasks.population.declared_levels import household_levels

BLOCKS = np.array(["3500100000100000", "3500100000100001"])
CHECKS = (
    "every_person_has_a_home",
    "households_are_what_members_tell",
    "no_impossible_households",
    "redistricting_counts_are_kept",
)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A population of two blocks that fit together, with vacant units and a facility."""
    rng = np.random.default_rng(4)
    n_units = np.array([9, 6])
    n = 2 * n_units + 5
    block = np.repeat([0, 1], n)
    people = Persons(
        block,
        rng.random(len(block)) < 0.75,
        rng.integers(1, 3, len(block)),
        rng.integers(1, 12, len(block)),
    )
    members = draw_households(rng, people, np.repeat([0, 1], n_units))
    n_homes = int(n_units.sum())
    size = unit_columns(members, n_homes)["FINAL_POP"]
    levels = person_levels.levels_of(members, size)
    told = household_levels(members, n_homes)
    homes = np.zeros((len(universe().schema.attributes), n_homes), dtype=int)
    homes[list(DERIVED)] = told
    units = np.repeat([0, 1], n_units + 2)
    kinds = np.concatenate([np.append([0] * k, [4, 20]) for k in n_units])
    order = np.lexsort((kinds, units))
    source = Released(
        BLOCKS,
        block,
        levels,
        np.repeat([0, 1], n_units),
        homes,
        units=Records(units[order], kinds[order]),
    )
    folder = tmp_path_factory.mktemp("population")
    write_population(Population(source, members), folder)
    kept = pd.read_parquet(folder / PERSONS_FILE)
    pd.DataFrame(
        {"block": kept["geocode"], "sex": kept["sex"].map({"male": "1", "female": "2"})}
    ).to_parquet(folder / "released.parquet")
    return folder


def expected(folder: Path, released: Path) -> ExpectedPopulation:
    told = expected_population(folder, folder, preset_census("cef_2020"))
    counts = ReleasedCounts(released, ["block"], {"sex": ("sex", {"male": "1", "female": "2"})})
    return replace(told, persons_kept=(counts,), units_kept=())


def failed(folder: Path, released: Path) -> list[str]:
    return [one.name for one in check_population(expected(folder, released)) if not one.passed]


def test_a_population_passes(written: Path) -> None:
    outcomes = check_population(expected(written, written / "released.parquet"))
    assert [one.name for one in outcomes] == list(CHECKS)
    assert all(one.passed for one in outcomes), [one.detail for one in outcomes]


def another_unit(persons: pd.DataFrame, units: pd.DataFrame) -> None:
    other = persons["unit"].iloc[-1]
    persons.loc[0, "unit"] = other


def no_such_unit(persons: pd.DataFrame, units: pd.DataFrame) -> None:
    persons.loc[persons["unit"] == persons["unit"].iloc[0], "unit"] = 999


def two_householders(persons: pd.DataFrame, units: pd.DataFrame) -> None:
    home = units.loc[units["size"] > 1, "unit"].iloc[0]
    persons.loc[persons["unit"] == home, "relationship"] = "householder"


def one_unit_twice(persons: pd.DataFrame, units: pd.DataFrame) -> None:
    units.loc[units.index[-1], "unit"] = units["unit"].iloc[0]


def vacant(persons: pd.DataFrame, units: pd.DataFrame) -> None:
    units.loc[0, "occupied"] = False


def other_sex(persons: pd.DataFrame, units: pd.DataFrame) -> None:
    units.loc[0, "sex"] = "male" if units["sex"].iloc[0] == "female" else "female"


def other_oldest(persons: pd.DataFrame, units: pd.DataFrame) -> None:
    there = units["elderly"].iloc[0]
    units.loc[0, "elderly"] = next(e for e in units["elderly"].dropna().unique() if e != there)


def other_race(persons: pd.DataFrame, units: pd.DataFrame) -> None:
    units.loc[0, "race"] = "white" if units["race"].iloc[0] != "white" else "black"


def other_type(persons: pd.DataFrame, units: pd.DataFrame) -> None:
    kinds = units["hhtype_dhch"]
    units.loc[0, "hhtype_dhch"] = next(kind for kind in kinds.dropna() if kind != kinds.iloc[0])


def older_child(persons: pd.DataFrame, units: pd.DataFrame) -> None:
    child = persons["relationship"].isin(["biological child", "stepchild"]) & (
        persons["age"].astype(int) < 18
    )
    home = persons["unit"] == persons["unit"][child].iloc[0]
    persons.loc[home & (persons["age"].astype(int) < 18), "age"] = "40"


def impossible_age(persons: pd.DataFrame, units: pd.DataFrame) -> None:
    persons.loc[persons["relationship"] == "householder", "age"] = "3"


def other_count(persons: pd.DataFrame, units: pd.DataFrame) -> None:
    alone = (persons["relationship"] != "householder") & ~persons["relationship"].str.contains(
        "sex"
    )
    row = persons.index[alone][0]
    persons.loc[row, "sex"] = "male" if persons["sex"].iloc[row] == "female" else "female"


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (another_unit, CHECKS[0]),
        (no_such_unit, CHECKS[0]),
        (two_householders, CHECKS[0]),
        (one_unit_twice, CHECKS[0]),
        (vacant, CHECKS[0]),
        (other_sex, CHECKS[1]),
        (other_oldest, CHECKS[1]),
        (other_race, CHECKS[1]),
        (other_type, CHECKS[1]),
        (older_child, CHECKS[1]),
        (impossible_age, CHECKS[2]),
        (other_count, CHECKS[3]),
    ],
)
def test_what_is_wrong_is_found(
    written: Path,
    tmp_path: Path,
    fault: Callable[[pd.DataFrame, pd.DataFrame], None],
    check: str,
) -> None:
    persons, units = (pd.read_parquet(written / name) for name in (PERSONS_FILE, UNITS_FILE))
    fault(persons, units)
    persons.to_parquet(tmp_path / PERSONS_FILE)
    units.to_parquet(tmp_path / UNITS_FILE)
    assert check in failed(tmp_path, written / "released.parquet")


def test_a_file_that_cannot_be_read_fails(written: Path, tmp_path: Path) -> None:
    (tmp_path / PERSONS_FILE).write_text("no table")
    assert failed(tmp_path, written / "released.parquet") == list(CHECKS)

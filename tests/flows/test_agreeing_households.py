"""People who agree with released dwellings of a declared census: as many householders by sex as
occupied dwellings, and as many people as fit in by size, in every area of a run of the flow.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from spineflow.flows.running import prepare, run_stages_in_process
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.intervals.run_posterior import RunPosterior
from spineflow.tasks.topdown.product import TOPDOWN
from spineflow.tasks.topdown.settings import TopdownSettings

from tests.flows.in_process import judged_once, uncompared

pytestmark = pytest.mark.slow

COLUMNS = ["district", "section"]
SIZES = {"empty": (0, 0), "1": (1, 1), "2": (2, 2), "3 or more": (3, 9)}

CENSUS = """
[census.geography]
table = "areas"
geolevels = ["country", "district", "section"]
[census.attributes]
role = { column = "role", levels = { householder = ["h"], other = ["o"], institution = ["i"] } }
sex = { column = "sex", levels = { female = ["F"], male = ["M"] } }
age = { column = "age", bins = [0, 18], largest = 99, labels = ["minor", "adult"] }
[census.attributes.size]
column = "size"
levels = { empty = ["0"], "1" = ["1"], "2" = ["2"], "3 or more" = ["3"] }
[census.attributes.head]
column = "head"
levels = { nobody = ["-"], male = ["M"], female = ["F"] }
[census.coarsenings.lives]
attribute = "role"
levels = { household = ["householder", "other"], elsewhere = ["institution"] }
"""
DWELLINGS = """
[census.universes.dwellings]
table = "dwellings"
attributes = ["size", "head"]
area = ["district", "section"]
invariants = [{ query = "total", geolevel = "section" }]
structural_zeros = [
    { where = { size = ["empty"], head = ["male", "female"] } },
    { where = { size = ["1", "2", "3 or more"], head = ["nobody"] } },
]
"""
PERSONS = """
[census.universes.persons]
table = "persons"
attributes = ["role", "sex", "age"]
area = ["district", "section"]
bounds = [{ query = "total", per = "dwellings", at_most = 20 }]
structural_zeros = [{ where = { role = ["householder"], age = ["minor"] } }]
"""
HOUSEHOLDERS = """
[[census.universes.persons.agree]]
name = "householders"
kind = "householders"
query = "sex"
where = { role = ["householder"] }
universe = "dwellings"
called = { sex = "head" }
of = { head = ["female", "male"] }
"""
SIZE_ROWS = """
[[census.universes.persons.agree]]
name = "room"
kind = "sizes"
where = { lives = ["household"] }
universe = "dwellings"
size = "size"
people = { empty = 0, "1" = 1, "2" = 2, "3 or more" = [3, 9] }
"""
RUN = """
[input]
areas = "areas.csv"
persons = "persons.csv"
dwellings = "dwellings.csv"
confidential = false
[privacy]
dataset = "country"
{privacy}
[geography]
spine = "{spine}"
[run]
coherent = {coherent}
[release]
margins = {margins}
[budget.persons]
rho = "{rho}"
delta = "1e-10"
queries.other = {{ role = "1/4", "role * sex" = "1/4", detailed = "1/2" }}
[budget.dwellings]
rho = "{rho}"
delta = "1e-10"
queries.other = {{ size = "1/2", detailed = "1/2" }}
"""


def write_tables(folder: Path, seed: int = 2, most: int = 7) -> None:
    """Areas, below `most` dwellings in each, and their people, who agree."""
    rng = np.random.default_rng(seed)
    areas = [(district, section) for district in "12" for section in ("1", "2", "3", "12")]
    pd.DataFrame(areas, columns=COLUMNS).to_csv(folder / "areas.csv", index=False)
    dwellings, persons = [(*areas[0], 1, "F")], [(*areas[0], "h", "F", 40)]
    for area in areas:
        for _ in range(rng.integers(0, most)):
            people = int(rng.choice([0, 1, 2, 3, 5]))
            sex = str(rng.choice(["F", "M"])) if people else "-"
            dwellings.append((*area, min(people, 3), sex))
            for number in range(people):
                role = "o" if number else "h"
                persons.append(
                    (
                        *area,
                        role,
                        rng.choice(["F", "M"]) if number else sex,
                        9 if number > 1 else 40,
                    )
                )
    persons += [(*areas[0], "i", "F", 80)] * 4
    for name, rows, more in (
        ("dwellings", dwellings, ["size", "head"]),
        ("persons", persons, ["role", "sex", "age"]),
    ):
        pd.DataFrame(rows, columns=COLUMNS + more).to_csv(folder / f"{name}.csv", index=False)


def settings_of(folder: Path, name: str, census: str, **changes: str) -> TopdownSettings:
    """Settings of a run on the tables of a folder."""
    asked = {"privacy": "seed = 3", "coherent": "true", "rho": "1/5", "spine": "conventional"}
    asked["margins"] = "false"
    file = folder / f"{name}.toml"
    file.write_text(census + RUN.format(**(asked | changes)), encoding="utf-8")
    return TOPDOWN.load(file)


def run_of(folder: Path, name: str, census: str, **changes: str) -> RunDirectory:
    """A finished run."""
    asked = settings_of(folder, name, census, **changes)
    run = prepare(asked, folder / name)
    with judged_once(), uncompared():
        run_stages_in_process(TOPDOWN, run, asked)
    return run


def rows(run: RunDirectory, universe: str) -> pd.DataFrame:
    """The released rows."""
    return pd.read_parquet(run.release / f"mdf_{universe}.parquet").astype(str)


def disagreements(run: RunDirectory) -> tuple[int, int]:
    """Areas in which householders are not as many as dwellings, by sex, and in which people do not
    fit into dwellings."""
    dwellings, persons = rows(run, "dwellings"), rows(run, "persons")
    least, most, people = Counter[tuple](), Counter[tuple](), Counter[tuple]()
    heads, occupied = Counter[tuple](), Counter[tuple]()
    for row in dwellings.to_dict("records"):
        area = row["district"], row["section"]
        least[area] += SIZES[row["size"]][0]
        most[area] += SIZES[row["size"]][1]
        if row["size"] != "empty":
            occupied[*area, row["head"]] += 1
    for row in persons.to_dict("records"):
        area = row["district"], row["section"]
        people[area] += row["role"] != "institution"
        if row["role"] == "householder":
            heads[*area, row["sex"]] += 1
    areas = {*least, *people}
    return (
        sum(heads[key] != occupied[key] for key in {*heads, *occupied}),
        sum(not least[area] <= people[area] <= most[area] for area in areas),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("agreeing")
    write_tables(made)
    return made


BOTH = CENSUS + DWELLINGS + PERSONS + HOUSEHOLDERS + SIZE_ROWS
DWELLINGS_LAST = (
    CENSUS
    + PERSONS
    + """
[[census.universes.persons.bounds]]
query = "role"
where = { role = ["householder"] }
per = "dwellings"
at_most = 1
"""
    + DWELLINGS
    + """
[[census.universes.dwellings.agree]]
name = "householders"
kind = "householders"
query = "head"
where = { head = ["female", "male"] }
universe = "persons"
called = { head = "sex" }
of = { role = ["householder"] }
"""
).replace("""bounds = [{ query = "total", per = "dwellings", at_most = 20 }]\n""", "")


@pytest.fixture(scope="module")
def both(folder) -> RunDirectory:
    return run_of(folder, "both", BOTH, margins="true")


@pytest.fixture(scope="module")
def apart(folder) -> RunDirectory:
    return run_of(folder, "apart", BOTH, coherent="false")


def test_people_agree_with_dwellings_in_every_area(both) -> None:
    assert disagreements(both) == (0, 0)


def test_they_do_not_where_the_run_is_not_coherent(apart) -> None:
    assert min(disagreements(apart)) > 0


@pytest.mark.parametrize("census", [BOTH, DWELLINGS_LAST], ids=["people last", "dwellings last"])
def test_without_noise_the_truth_is_released(tmp_path, census) -> None:
    write_tables(tmp_path)
    run = run_of(tmp_path, "truth", census, privacy="infinite = true")
    codes = {"h": "householder", "o": "other", "i": "institution", "F": "female", "M": "male"}
    names = ["empty", "1", "2", "3 or more"]
    for universe, columns in (("persons", ["role", "sex"]), ("dwellings", ["size", "head"])):
        true = pd.read_csv(tmp_path / f"{universe}.csv", dtype=str).replace({"-": "nobody"})
        true = true.replace(dict.fromkeys(["role", "sex", "head"], codes))
        if universe == "dwellings":
            true["size"] = [names[int(size)] for size in true["size"]]
        found = rows(run, universe)
        counts = [one.groupby([*COLUMNS, *columns]).size() for one in (true, found)]
        pd.testing.assert_series_equal(*counts)


def test_intervals_speak_of_the_truth_and_know_nothing_of_it(folder, both, apart) -> None:
    """What follows from the noise of dwellings is no fact of people."""
    levels = []
    for name, run in (("both", both), ("apart", apart)):
        of_run = {"coherent": str(name == "both").lower(), "margins": str(name == "both").lower()}
        asked = settings_of(folder, name, BOTH, **of_run)
        levels.append(RunPosterior.read(run, asked, "persons"))
    for one, other in zip(levels[0].bounds, levels[1].bounds, strict=True):
        assert np.array_equal(one.lower, other.lower)
        assert np.array_equal(one.upper, other.upper)


@settings(max_examples=3, deadline=None, phases=[Phase.generate])
@given(
    seed=st.integers(0, 2**31),
    most=st.integers(1, 12),
    rho=st.sampled_from(["1/5000", "1/10", "50"]),
    spine=st.sampled_from(["conventional", "optimized"]),
    census=st.sampled_from([BOTH, DWELLINGS_LAST]),
)
def test_any_small_census_agrees_after_any_noise(
    tmp_path_factory, seed, most, rho, spine, census
) -> None:
    folder = tmp_path_factory.mktemp("any")
    write_tables(folder, seed, most)
    run = run_of(folder, "any", census, privacy=f"seed = {seed}", rho=rho, spine=spine)
    found = disagreements(run)
    assert found == (0, 0) if census is BOTH else found[0] == 0

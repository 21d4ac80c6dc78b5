"""Redistricting runs of a generated county whose housing units agree with persons, and not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.flows.running import prepare, run_stages_here
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.intervals.run_posterior import RunLevels
from spineflow.tasks.topdown.product import TOPDOWN
from spineflow.tasks.topdown.release import margins
from spineflow.tasks.topdown.release.margins import universes_without_margins
from spineflow.tasks.topdown.settings import TopdownSettings

from tests.flows.in_process import judged_once, uncompared

pytestmark = pytest.mark.slow

SETTINGS = """
preset = "pl94_2020_us"
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
confidential = false
[privacy]
dataset = "county"
{privacy}
[release]
margins = false
tables = false
[run]
{run}
"""
CODES = ["TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK"]
RUNS = {
    "apart": ("seed = 7", "coherent = false"),
    "coherent": ("seed = 7", "coherent = true"),
    "truth": ("infinite = true", "coherent = true"),
    "true apart": ("infinite = true", "coherent = false"),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> dict[str, RunDirectory]:
    """Runs of the same tables."""
    folder = tmp_path_factory.mktemp("county")
    generate_county(folder, persons=500, seed=3, state="35")
    runs = {}
    for name, (privacy, run) in RUNS.items():
        (folder / "settings.toml").write_text(SETTINGS.format(privacy=privacy, run=run))
        settings = TOPDOWN.load(folder / "settings.toml")
        runs[name] = prepare(settings, folder / name)
        with judged_once(), uncompared():
            run_stages_here(TOPDOWN, runs[name], settings)
    return runs


def blocks(run: RunDirectory) -> pd.DataFrame:
    """Persons in households, and occupied units, of every block with either."""
    persons = pd.read_parquet(run.release / "mdf_persons.parquet").astype(str)
    units = pd.read_parquet(run.release / "mdf_units.parquet").astype(str)
    counts = {
        "persons": persons[persons["RTYPE"] == "3"].groupby(CODES).size(),
        "occupied": units[units["HH_STATUS"] == "1"].groupby(CODES).size(),
    }
    return pd.DataFrame(counts).fillna(0).astype(int)


def test_households_are_possible_in_every_block(finished) -> None:
    found = blocks(finished["coherent"])
    assert (found["occupied"] <= found["persons"]).all()
    assert ((found["occupied"] > 0) == (found["persons"] > 0)).all()


def test_they_are_not_where_units_are_estimated_apart(finished) -> None:
    found = blocks(finished["apart"])
    is_impossible = (found["occupied"] > found["persons"]) | (found["occupied"] == 0)
    assert is_impossible.any()


def test_without_noise_the_truth_is_released(finished) -> None:
    for name in ("mdf_persons.parquet", "mdf_units.parquet"):
        files = [finished[run].release / name for run in ("truth", "true apart")]
        pd.testing.assert_frame_equal(*map(pd.read_parquet, files))


def test_intervals_take_no_limits_of_released_persons_for_facts(finished) -> None:
    levels = {}
    for name in ("apart", "coherent"):
        run = finished[name]
        settings = frozen_settings(TopdownSettings, run.settings)
        levels[name] = RunLevels.read(run, settings, "units")
    for apart, coherent in zip(levels["apart"].levels, levels["coherent"].levels, strict=True):
        assert np.array_equal(apart.type_is_possible, coherent.type_is_possible)
    for apart, coherent in zip(levels["apart"].bounds, levels["coherent"].bounds, strict=True):
        assert np.array_equal(apart.lower, coherent.lower)
        assert np.array_equal(apart.upper, coherent.upper)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        ('estimator = "block_by_block"\ncoherent = true', "run.coherent carries"),
        ('universes = ["units"]\ncoherent = true', "add them to run.universes"),
        ('universes = ["persons"]\ncoherent = true', "run.coherent does nothing"),
    ],
)
def test_what_cannot_agree_is_refused(tmp_path, run, reason) -> None:
    generate_county(tmp_path, persons=600, seed=3, state="35")
    file = tmp_path / "settings.toml"
    file.write_text(SETTINGS.format(privacy="seed = 7", run=run))
    with pytest.raises(InputRefused, match=reason):
        TOPDOWN.load(file)


DECLARED = """
[census.geography]
table = "areas"
geolevels = ["country", "district", "section"]
[census.attributes]
lives = { column = "lives", levels = { household = ["h"], institution = ["i"] } }
sex = { column = "sex", levels = { female = ["F"], male = ["M"] } }
use = { column = "use", levels = { occupied = ["o"], empty = ["e"] } }
[census.universes.persons]
table = "persons"
attributes = ["lives", "sex"]
area = ["district", "section"]
bounds = [{ query = "lives", where = { lives = ["household"] }, per = "dwellings", at_most = 6 }]
[census.universes.dwellings]
table = "dwellings"
attributes = ["use"]
area = ["district", "section"]
count = "number"
invariants = [{ query = "total", geolevel = "section" }]
[[census.universes.dwellings.agree]]
name = "occupants"
query = "use"
where = { use = ["occupied"] }
universe = "persons"
of = { lives = ["household"] }
at_most = 6
[input]
areas = "areas.csv"
persons = "persons.csv"
dwellings = "dwellings.csv"
confidential = false
[privacy]
dataset = "country"
seed = 3
[geography]
spine = "conventional"
[run]
coherent = true
[budget.persons]
rho = "1/10"
delta = "1e-10"
queries.other = { lives = "1/2", "lives * sex" = "1/2" }
[budget.dwellings]
rho = "1/100"
delta = "1e-10"
queries.other = { use = "1" }
"""


@pytest.mark.soak(4)
def test_margins_in_pieces_wait_for_what_units_are_held_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a large run makes them, whose estimates behind the margins go beside its own."""
    monkeypatch.setattr(margins, "LEAST_APART", 0)
    generate_county(tmp_path, persons=500, seed=3, state="35")
    text = SETTINGS.format(privacy="seed = 7", run="coherent = true")
    (tmp_path / "settings.toml").write_text(
        text.replace("margins = false\ntables = false", "margins = true")
    )
    settings = TOPDOWN.load(tmp_path / "settings.toml")
    run = prepare(settings, tmp_path / "run")
    with judged_once(), uncompared():
        run_stages_here(TOPDOWN, run, settings)
    assert set(settings.run.universes) == {"persons", "units"}
    assert universes_without_margins(run, settings) == {}
    assert list(run.release.rglob("*_margins.csv"))


def test_universes_of_any_census_agree_in_its_own_areas(tmp_path) -> None:
    """Sections have one code in several districts, and dwellings are rows with a count."""
    rng = np.random.default_rng(2)
    areas = [(district, section) for district in "12" for section in ("1", "2", "12")]
    pd.DataFrame(areas, columns=["district", "section"]).to_csv(tmp_path / "areas.csv", index=False)
    dwellings, persons = [], []
    for area in areas:
        occupied, empty = rng.integers(0, 4, 2)
        dwellings += [(*area, "o", occupied), (*area, "e", empty)]
        persons += [(*area, "h", rng.choice(["F", "M"])) for _ in range(2 * occupied)]
    persons += [(*areas[0], "i", "F")]
    columns = ["district", "section"]
    for name, rows, more in (
        ("dwellings", [row for row in dwellings if row[-1]], ["use", "number"]),
        ("persons", persons, ["lives", "sex"]),
    ):
        pd.DataFrame(rows, columns=columns + more).to_csv(tmp_path / f"{name}.csv", index=False)
    file = tmp_path / "settings.toml"
    found = {}
    for coherent in (True, False):
        text = DECLARED if coherent else DECLARED.replace("coherent = true", "coherent = false")
        file.write_text(text, encoding="utf-8")
        settings = TOPDOWN.load(file)
        run = prepare(settings, tmp_path / str(coherent))
        with judged_once(), uncompared():
            run_stages_here(TOPDOWN, run, settings)
        told = (run.root / "validation/checks.json").read_text(encoding="utf-8")
        assert ("released_universes_agree" in told) is coherent
        units, people = (
            pd.read_parquet(run.release / f"mdf_{name}.parquet")
            for name in ("dwellings", "persons")
        )
        occupied = units[units["use"] == "occupied"].groupby(columns, observed=True)["number"].sum()
        inside = people[people["lives"] == "household"].groupby(columns, observed=True).size()
        both = pd.concat([occupied, inside], axis=1).fillna(0)
        both.columns = ["occupied", "inside"]
        is_possible = (both["occupied"] <= both["inside"]) & (
            both["inside"] <= 6 * both["occupied"]
        )
        found[coherent] = bool(is_possible.all())
    assert found == {True: True, False: False}

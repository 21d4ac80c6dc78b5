"""Redistricting runs of a generated county whose housing units agree with persons, and not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from spineflow.flows.running import prepare, run_stages_in_process
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.intervals.run_posterior import RunPosterior
from spineflow.tasks.topdown.product import TOPDOWN
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
seed = 7
[release]
margins = false
tables = false
[run]
{run}
"""
CODES = ["TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK"]
RUNS = {
    "apart": "coherent = false",
    "coherent": "coherent = true",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> dict[str, RunDirectory]:
    """Runs of the same tables."""
    folder = tmp_path_factory.mktemp("county")
    generate_county(folder, persons=500, seed=3, state="35")
    runs = {}
    for name, run in RUNS.items():
        (folder / "settings.toml").write_text(SETTINGS.format(run=run))
        settings = TOPDOWN.load(folder / "settings.toml")
        runs[name] = prepare(settings, folder / name)
        with judged_once(), uncompared():
            run_stages_in_process(TOPDOWN, runs[name], settings)
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


def minors_alone(run: RunDirectory) -> int:
    """Blocks with minors in households and no adult in one."""
    persons = pd.read_parquet(run.release / "mdf_persons.parquet").astype(str)
    persons = persons[persons["RTYPE"] == "3"]
    is_adult = persons["VOTING_AGE"] == "2"
    return int((~is_adult.groupby([persons[name] for name in CODES]).any()).sum())


def test_no_block_has_minors_alone(finished) -> None:
    assert minors_alone(finished["coherent"]) == 0


def test_they_are_not_where_units_are_estimated_apart(finished) -> None:
    found = blocks(finished["apart"])
    is_impossible = (found["occupied"] > found["persons"]) | (found["occupied"] == 0)
    assert is_impossible.any()


def test_intervals_take_no_limits_of_released_persons_for_facts(finished) -> None:
    levels = {}
    for name in ("apart", "coherent"):
        run = finished[name]
        settings = frozen_settings(TopdownSettings, run.settings)
        levels[name] = RunPosterior.read(run, settings, "units")
    for apart, coherent in zip(levels["apart"].levels, levels["coherent"].levels, strict=True):
        assert np.array_equal(apart.type_is_possible, coherent.type_is_possible)
    for apart, coherent in zip(levels["apart"].bounds, levels["coherent"].bounds, strict=True):
        assert np.array_equal(apart.lower, coherent.lower)
        assert np.array_equal(apart.upper, coherent.upper)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        ('estimator = "block_by_block"\ncoherent = true', "run.coherent needs run.estimator"),
        ('universes = ["units"]\ncoherent = true', "add it to run.universes"),
    ],
)
def test_what_cannot_agree_is_refused(tmp_path, run, reason) -> None:
    generate_county(tmp_path, persons=600, seed=3, state="35")
    file = tmp_path / "settings.toml"
    file.write_text(SETTINGS.format(run=run))
    with pytest.raises(InputRefused, match=reason):
        TOPDOWN.load(file)

"""The housing units of the DHC product, held to a redistricting run of a generated county."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.answers.estimates import read_estimates
from spineflow.tasks.census.histograms import read_histogram
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.paths import spine_folder
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import read_spine, shards_by_geolevel

pytestmark = pytest.mark.slow

CODES = ["TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK"]


@pytest.fixture(
    scope="module", params=["private", pytest.param("infinite", marks=pytest.mark.soak(4))]
)
def finished(request) -> tuple[RunDirectory, RunDirectory, TopdownSettings]:
    """A redistricting run, and a run of units held to it, with its settings: with noise, and
    without on units that lack the columns that their members tell."""
    if request.param == "private":
        return request.getfixturevalue("held_run")("dhc-units")
    return request.getfixturevalue("held_without_noise")(
        "dhc_units_2020_us", units="untold.parquet"
    )


def counts_of(run: RunDirectory, settings: TopdownSettings, universe: str) -> pd.DataFrame:
    """Released counts by the geocode of a block and cell, from the estimates of blocks."""
    spine, n_cells = read_spine(spine_folder(run, universe)), settings.schema_of(universe).n_cells
    last = spine.geolevels[-1]
    shards = shards_by_geolevel(run, universe)[last.name]
    files = [run.estimates(universe, last.name, shard.name) for shard in shards]
    found = read_estimates(files, last.geocode, n_cells).tocoo()
    codes = np.array([geocode[-16:] for geocode in last.geocode])
    return pd.DataFrame({"block": codes[found.row], "cell": found.col, "count": found.data})


def test_occupied_and_vacant_units_are_those_of_the_redistricting_release(finished) -> None:
    earlier, run, settings = finished
    theirs = pd.read_parquet(earlier.release / "mdf_units.parquet")
    theirs = theirs[theirs["RTYPE"] == "2"].assign(block=theirs[CODES].agg("".join, axis=1))
    due = theirs.groupby(["block", "HH_STATUS"]).size()
    ours = counts_of(run, settings, "units")
    ours = ours[ours["cell"] < 11]
    status = np.where(ours["cell"] < 4, "1", "2")
    found = ours.assign(HH_STATUS=status).groupby(["block", "HH_STATUS"])["count"].sum()
    assert found.sort_index().to_dict() == due.sort_index().to_dict()


def test_facilities_of_every_type_are_those_of_the_input(finished) -> None:
    _, run, settings = finished
    folder = Path(settings.input.paths()["units"]).parent
    units = pd.read_parquet(folder / "units.parquet")
    places = pd.read_csv(folder / "grfc.txt", sep="|", dtype=str).set_index("OIDTABBLK")
    units = units[units["RTYPE"].astype(str) == "4"].join(places, on="OIDTB")
    labels = settings.schema_of("units").labels("tenvacgq")
    cell = units["QGQTYP"].astype(str).map(lambda code: labels.index(f"GQ {code}"))
    due = units.assign(block=units[CODES].agg("".join, axis=1), cell=cell)
    due = due.groupby(["block", "cell"]).size()
    ours = counts_of(run, settings, "units")
    found = ours[ours["cell"] >= 11].groupby(["block", "cell"])["count"].sum()
    assert found.to_dict() == due.to_dict()


def test_tenures_of_households_are_those_of_units(finished) -> None:
    _, run, settings = finished
    units = counts_of(run, settings, "units")
    units = units[units["cell"] < 4]
    of_units = units.assign(tenure=np.minimum(units["cell"], 2))
    households, schema = counts_of(run, settings, "households"), settings.schema_of("households")
    levels = np.unravel_index(households["cell"], schema.shape)
    of_households = households.assign(tenure=levels[schema.attributes.index("hhtenshort_3lev")])
    by = ["block", "tenure"]
    found = of_households.groupby(by)["count"].sum()
    assert found.to_dict() == of_units.groupby(by)["count"].sum().to_dict()


def test_checks_pass_and_no_pass_left_what_it_was_held_to(finished) -> None:
    _, run, _ = finished
    checks = json.loads((run.root / "validation/checks.json").read_text())
    text = json.dumps(checks)
    assert "held_answers_agree" in text and '"passed": false' not in text
    solves = pd.concat(map(pd.read_parquet, (run.root / "solves/households").rglob("*.parquet")))
    assert not solves["relaxed"].any()
    assert {"least squares 2", "rounder 2"} <= set(solves["stage"])


def test_without_noise_the_release_is_the_input(finished) -> None:
    _, run, settings = finished
    if not settings.privacy.infinite:
        pytest.skip("the run has noise")
    for universe in ("units", "households"):
        n_cells = settings.schema_of(universe).n_cells
        spine = read_spine(spine_folder(run, universe))
        truth = read_histogram(run.histogram(universe), spine.block_geocode, n_cells=n_cells)
        for level in spine.geolevels:
            shards = shards_by_geolevel(run, universe)[level.name]
            files = [run.estimates(universe, level.name, shard.name) for shard in shards]
            estimates = read_estimates(files, level.geocode, n_cells)
            starts = np.searchsorted(spine.ancestors(level.name), np.arange(len(level) + 1))
            for i in range(len(level)):
                own = truth[starts[i] : starts[i + 1]].sum(axis=0)
                assert not abs(own - estimates[[i]].toarray()[0]).any()

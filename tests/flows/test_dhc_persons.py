"""The persons of the DHC product, held to a redistricting run of the same generated county."""

from __future__ import annotations

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


@pytest.fixture(
    scope="module", params=["private", pytest.param("infinite", marks=pytest.mark.soak(4))]
)
def finished(request) -> tuple[RunDirectory, RunDirectory, TopdownSettings]:
    """A redistricting run, and a DHC run held to it, with its settings: with noise, and
    without."""
    if request.param == "private":
        return request.getfixturevalue("held_run")("dhc-persons")
    return request.getfixturevalue("held_without_noise")(
        "dhc_persons_2020_us", units="units.parquet"
    )


def released(run: RunDirectory) -> pd.DataFrame:
    """Rows of released persons with their block's code."""
    rows = pd.read_parquet(run.release / "mdf_persons.parquet")
    codes = ["TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK"]
    return rows.assign(block=rows[codes].agg("".join, axis=1))


def test_every_block_has_the_redistricting_counts(finished) -> None:
    earlier, run, _ = finished
    theirs, ours = released(earlier), released(run)
    # The first digit of a type is that of its major type; 7 to 9 are other noninstitutional.
    major = ours["GQTYPE"].str[0].replace({"8": "7", "9": "7"})
    age = ours["QAGE"].astype(int)
    ours = ours.assign(GQTYPE_PL=major, VOTING_AGE=np.where(age < 18, "1", "2"))
    names = ["block", "GQTYPE_PL", "VOTING_AGE", "CENHISP", "CENRACE"]
    assert theirs.groupby(names).size().sort_index().equals(ours.groupby(names).size().sort_index())


def test_group_quarters_have_persons_where_and_only_where_facilities_are(finished) -> None:
    _, run, settings = finished
    folder = Path(settings.input.paths()["units"]).parent
    units = pd.read_parquet(folder / "units.parquet")
    places = pd.read_csv(folder / "grfc.txt", sep="|", dtype=str).set_index("OIDTABBLK")
    units = units[units["RTYPE"].astype(str) == "4"].join(places, on="OIDTB")
    columns = ["TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK"]
    rest = dict.fromkeys(["702", "704", "706", "903", "904"], "997")
    kind = units["QGQTYP"].astype(str).replace(rest)
    facilities = units.assign(block=units[columns].agg("".join, axis=1), GQTYPE=kind)
    n_facilities = facilities.groupby(["block", "GQTYPE"]).size().sort_index()
    rows = released(run)
    n_persons = rows[rows["GQTYPE"] != "000"].groupby(["block", "GQTYPE"]).size().sort_index()
    assert n_persons.index.equals(n_facilities.index)
    assert (n_persons >= n_facilities).all()


def test_no_pass_left_what_it_was_held_to(finished) -> None:
    _, run, _ = finished
    solves = pd.concat(map(pd.read_parquet, (run.root / "solves/persons").rglob("*.parquet")))
    assert not solves["relaxed"].any()
    assert {"least squares 2", "rounder 2"} <= set(solves["stage"])


def test_without_noise_the_release_is_the_input(finished) -> None:
    _, run, settings = finished
    if not settings.privacy.infinite:
        pytest.skip("the run has noise")
    n_cells, spine = settings.schema_of("persons").n_cells, read_spine(spine_folder(run, "persons"))
    truth = read_histogram(run.histogram("persons"), spine.block_geocode, n_cells=n_cells)
    for level in spine.geolevels:
        shards = shards_by_geolevel(run, "persons")[level.name]
        files = [run.estimates("persons", level.name, shard.name) for shard in shards]
        estimates = read_estimates(files, level.geocode, n_cells)
        starts = np.searchsorted(spine.ancestors(level.name), np.arange(len(level) + 1))
        for i in range(len(level)):
            own = truth[starts[i] : starts[i + 1]].sum(axis=0)
            assert not abs(own - estimates[[i]].toarray()[0]).any()

"""The persons of the DHC product, held to a redistricting run of the same generated county."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.flows import topdown
from spineflow.flows.running import prepare, run_stages_here
from spineflow.tasks.answers.estimates import read_estimates
from spineflow.tasks.census.histograms import read_histogram
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.paths import spine_folder
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import read_spine
from spineflow.tasks.topdown.spine.shards import shards_by_geolevel

from tests.tasks.topdown.dhc_input import write_edited

pytestmark = pytest.mark.slow

SETTINGS = """
preset = "{preset}"
[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
confidential = false
{redistricting}
[privacy]
dataset = "county"
{infinite}
"""


@pytest.fixture(scope="module", params=["private", "infinite"])
def finished(request, tmp_path_factory) -> tuple[RunDirectory, RunDirectory, TopdownSettings]:
    """A redistricting run, and a DHC run held to it, with its settings."""
    folder = tmp_path_factory.mktemp(request.param)
    generate_county(folder / "raw", persons=600, seed=3)
    write_edited(folder / "raw", folder)
    infinite = "infinite = true" if request.param == "infinite" else ""
    runs = []
    for preset, held in (
        ("pl94_2020_us", ""),
        ("dhc_persons_2020_us", 'redistricting = "pl94_2020_us"'),
    ):
        file = folder / f"{preset}.toml"
        file.write_text(SETTINGS.format(preset=preset, redistricting=held, infinite=infinite))
        settings = topdown.PRODUCT.load(file)
        run = prepare(settings, folder / preset)
        run_stages_here(topdown.PRODUCT, run, settings)
        runs.append(run)
    return *runs, settings


def released(run: RunDirectory) -> pd.DataFrame:
    """Rows of released persons with their block's code."""
    rows = pd.read_parquet(run.release / "mdf_persons.parquet")
    codes = ["State", "County", "Tract", "Block_Group", "Block"]
    if codes[0] not in rows.columns:
        codes = ["TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK"]
    return rows.assign(block=rows[codes].agg("".join, axis=1))


def test_every_block_has_the_redistricting_counts(finished) -> None:
    earlier, run, settings = finished
    schema = settings.schema_of("persons")
    hhgq = schema.coarsening("hhgq")
    theirs, ours = released(earlier), released(run)
    kind = dict(zip(schema.labels("relgq"), hhgq.groups, strict=True))
    ours = pd.DataFrame(
        {
            "block": ours["block"],
            "GQTYPE_PL": ours["relgq"].map(kind).astype(str),
            "VOTING_AGE": np.where(ours["age"].astype(int) < 18, "1", "2"),
            "CENHISP": ours["hispanic"].map({"not Hispanic": "1", "Hispanic": "2"}),
            "CENRACE": ours["cenrace"].map(
                {label: f"{i:02d}" for i, label in enumerate(schema.labels("cenrace"), 1)}
            ),
        }
    )
    names = list(ours.columns)
    assert theirs.groupby(names).size().sort_index().equals(ours.groupby(names).size().sort_index())


def test_group_quarters_have_persons_where_and_only_where_facilities_are(finished) -> None:
    _, run, settings = finished
    folder = Path(settings.input.paths()["units"]).parent
    units = pd.read_parquet(folder / "units.parquet")
    places = pd.read_csv(folder / "grfc.txt", sep="|", dtype=str).set_index("OIDTABBLK")
    units = units.join(places, on="OIDTB")
    columns = ["TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK"]
    kind = units["QGQTYP"].astype(str).str.strip()
    rest = {"702": "997", "704": "997", "706": "997", "903": "997", "904": "997"}
    facilities = units.assign(block=units[columns].agg("".join, axis=1), kind=kind.replace(rest))
    facilities = (
        facilities[facilities["RTYPE"].astype(str) == "4"].groupby(["block", "kind"]).size()
    )
    rows = released(run)
    rows = rows[rows["relgq"].str.startswith("GQ ")]
    persons = rows.groupby(["block", rows["relgq"].str.removeprefix("GQ ")]).size()
    persons.index.names = facilities.index.names
    assert persons.index.sort_values().equals(facilities.index.sort_values())
    assert (persons >= facilities).all()


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
        shards = shards_by_geolevel(spine_folder(run, "persons"))[level.name]
        files = [run.estimates("persons", level.name, shard.name) for shard in shards]
        estimates = read_estimates(files, level.geocode, n_cells)
        starts = np.searchsorted(spine.ancestors(level.name), np.arange(len(level) + 1))
        for i in range(len(level)):
            own = truth[starts[i] : starts[i + 1]].sum(axis=0)
            assert not abs(own - estimates[[i]].toarray()[0]).any()

"""The whole DAG on a real state and on counties of it: production settings, no noise; a county as
Puerto Rico."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from spineflow.flows.cli import main
from spineflow.tasks.census.histograms import read_histogram
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.checks.accuracy.errors import read_figures
from spineflow.tasks.topdown.paths import spine_folder

from tests.block_estimates import read_block_estimates
from tests.real_state import COUNTIES, run_state, write_counties

PERSONS = 1_052_567
HOUSING_UNITS = 466_117
FACILITIES = 326


def assert_whole(
    run: RunDirectory, persons: int = PERSONS, housing: int = HOUSING_UNITS, other: int = FACILITIES
) -> None:
    assert json.loads((run.checks / "checks.json").read_text())["passed"]
    assert pq.read_metadata(run.release / "mdf_persons.parquet").num_rows == persons
    rtype = pd.read_parquet(run.release / "mdf_units.parquet", columns=["RTYPE"])["RTYPE"]
    assert rtype.value_counts().to_dict() == {"2": housing, "4": other}


@pytest.mark.slow
@pytest.mark.soak(300)
def test_production_settings(prefect_server, shared: Path, tmp_path: Path) -> None:
    """Every node is solved to its optimum, and the redistricting criterion holds off the spine."""
    state = shared / "data" / "ri2010"
    overrides = ["input.confidential=false", "privacy.seed=0"]
    run = run_state(tmp_path, state, overrides=overrides, in_flow=True)
    assert_whole(run)
    solves = pd.concat(map(pd.read_parquet, (run.root / "solves").rglob("*.parquet")))
    assert (solves["status"] == "optimal").all()
    assert not solves["relaxed"].any()
    criterion = read_figures(run).criterion
    rows = criterion[(criterion["population"] == "total population") & ~criterion["on_spine"]]
    assert rows["entities"].sum() > 800
    assert np.average(rows["share_within"].fillna(0), weights=rows["entities"]) >= 0.95


@pytest.mark.slow
def test_infinite_budget_reproduces_every_block(real_without_noise: RunDirectory) -> None:
    run = real_without_noise
    for universe, n_cells in (("persons", 2016), ("units", 2)):
        estimates = read_block_estimates(run.root, universe).to_pandas()
        blocks = sorted(set(estimates["block_geocode"]))
        truth = read_histogram(run.histogram(universe), blocks, n_cells=n_cells).tocoo()
        found = estimates.set_index(["block_geocode", "cell"])["count"].sort_index()
        expected = pd.Series(
            truth.data, index=pd.MultiIndex.from_arrays([[blocks[i] for i in truth.row], truth.col])
        ).sort_index()
        assert found.index.tolist() == expected.index.tolist()
        assert (found.to_numpy() == expected.to_numpy()).all()


@pytest.mark.slow
@pytest.mark.soak(300)
def test_a_county_relabelled_as_puerto_rico(shared: Path, tmp_path: Path) -> None:
    write_counties(shared / "data" / "ri2010", tmp_path, COUNTIES[:1], TABBLKST="72")
    units, persons = (pd.read_parquet(tmp_path / f"{x}.parquet") for x in ("units", "persons"))
    run = run_state(tmp_path, tmp_path, "pl94_2020_pr", overrides=["release.margins=false"])
    of_type = units["RTYPE"].astype(str).value_counts()
    assert_whole(run, len(persons), of_type["2"], of_type["4"])
    geounits = pd.read_parquet(spine_folder(run, "persons") / "geounits.parquet")
    geolevels = list(dict.fromkeys(geounits["geolevel"]))
    assert geolevels == ["State", "County", "Tract", "Block_Group", "Block"]
    totals = read_block_estimates(run.root, "persons").to_pandas()
    assert set(totals["block_geocode"].str[:2]) == {"72"}


PARTS = ("TABBLKST", "TABBLKCOU", "TABTRACTCE")
DIGITS = {"State": 2, "County": 5, "Tract": 11}

SETTINGS = """\
[input]
persons = "{folder}/CEF20_PER.txt.gz"
units = "{folder}/CEF20_UNIT.txt.gz"
geography = "{folder}/GRFC.txt"
[privacy]
dataset = "bristol"
[products.topdown]
preset = "pl94_2020_us"
run = {{ universes = ["units"] }}
release = {{ margins = false, tables = false }}
[products.group-sizes]
privacy = {{ epsilon = "1" }}
geography = {{ levels = ["US", "State", "County", "Tract"] }}
"""


def disagreements(run: Path) -> pd.DataFrame:
    """Regions whose units differ between the two releases of a run of products, level by level."""
    units = pd.read_parquet(run / "topdown" / "release" / "mdf_units.parquet", columns=list(PARTS))
    geocode = units[PARTS[0]].astype(str).str.cat([units[part].astype(str) for part in PARTS[1:]])
    totals = pd.read_parquet(run / "group-sizes" / "release" / "group_totals.parquet")
    found = []
    for level, own in totals.groupby("level"):
        region = geocode.str[: DIGITS[level]] if level in DIGITS else pd.Series("0", geocode.index)
        both = pd.DataFrame(
            {"topdown": region.value_counts(), "group-sizes": own.set_index("region")["groups"]}
        ).fillna(0)
        differ = both[both["topdown"] != both["group-sizes"]]
        found.append(differ.rename_axis("region").reset_index().assign(level=level))
    return pd.concat(found)


@pytest.mark.soak(5)
@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server", "uncompared")
def test_bristol_has_the_same_units_in_both_releases(shared: Path, tmp_path: Path) -> None:
    folder = shared / "data" / "ri2010_bristol_fixed_width"
    file = tmp_path / "products.toml"
    file.write_text(SETTINGS.format(folder=folder.resolve()), encoding="utf-8")
    run = tmp_path / "run"
    assert main(["run", "products", str(file), "--run-dir", str(run)]) == 0
    totals = pd.read_parquet(run / "group-sizes" / "release" / "group_totals.parquet")
    assert set(totals["level"]) == {"US", *DIGITS}
    assert disagreements(run).empty


if __name__ == "__main__":
    print(disagreements(Path(sys.argv[1])))

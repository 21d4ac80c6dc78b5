"""The whole DAG on a real state and on counties of it: production settings, no noise; a county as
Puerto Rico."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.census.histograms import read_histogram
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.checks.accuracy.errors import read_figures

from tests.block_estimates import read_block_estimates
from tests.real_state import run_state

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

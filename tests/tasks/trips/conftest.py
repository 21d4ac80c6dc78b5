"""Finished runs on eight towns in three regions, each of which takes a moment."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product as pairs
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from spineflow.flows.running import call_stages, prepare
from spineflow.tasks.products.product import product
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.trips.settings import TripsSettings

from tests.flows.in_process import judged_once

Finished = Callable[..., tuple[RunDirectory, TripsSettings]]
REGIONS = {town: town[0] for town in ("A1", "A2", "A3", "B1", "B2", "B3", "C1", "C2")}


def trips() -> pd.DataFrame:
    """Trips between a third of all pairs of towns, most of them of few people."""
    draws = np.random.default_rng(8)
    ends = pd.DataFrame(list(pairs(REGIONS, REGIONS)), columns=["origin", "destination"])
    chosen = ends[draws.random(len(ends)) < 0.33].reset_index(drop=True)
    return chosen.assign(n=np.rint(draws.lognormal(2.5, 1.2, len(chosen))).astype(int) + 1)


def areas() -> pd.DataFrame:
    """The regions and the towns in them."""
    rows = [("region", region, "") for region in dict.fromkeys(REGIONS.values())]
    rows += [("town", town, region) for town, region in REGIONS.items()]
    return pd.DataFrame(rows, columns=["level", "area", "parent"])


def write_districts(file: Path) -> None:
    """The areas with a district around every town alone."""
    own = areas()
    is_town = own["level"] == "town"
    districts = own[is_town].assign(level="district", area=[f"{town}0" for town in REGIONS])
    towns = own[is_town].assign(parent=districts["area"])
    pd.concat([own[~is_town], districts, towns]).to_csv(file, index=False)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Function from overrides of settings to a finished run of public data; equal overrides share
    one run, which is not to be changed."""

    @cache
    def run_of(*overrides: str) -> tuple[RunDirectory, TripsSettings]:
        folder = tmp_path_factory.mktemp("trips")
        trips().to_parquet(folder / "trips.parquet")
        areas().to_csv(folder / "areas.csv", index=False)
        write_districts(folder / "districts.csv")
        own = trips()
        rows = own.loc[own.index.repeat(own["n"]), ["origin", "destination"]]
        # Of three rows two are one person's, in whatever order they stand.
        people = [f"p{row // 3}{'ab'[row % 3 // 2]}" for row in range(len(rows))]
        rows.assign(pid=people).to_parquet(folder / "people.parquet")
        tree: dict[str, Any] = {
            "input": {
                "trips": str(folder / "trips.parquet"),
                "areas": str(folder / "areas.csv"),
                "origin": "origin",
                "destination": "destination",
                "count": "n",
                "confidential": False,
            },
            "privacy": {"dataset": "towns", "epsilon": "2", "delta": "1e-6"},
        }
        if "privacy.infinite=true" not in overrides:
            tree["privacy"]["seed"] = 3
        own_product = product("trips")
        if "input.person=pid" in overrides:
            tree["input"] |= {"trips": str(folder / "people.parquet")}
            del tree["input"]["count"]
        given = [one.replace("=districts", f"={folder}/districts") for one in overrides]
        settings = own_product.load(tree, given)
        assert isinstance(settings, TripsSettings)
        run = prepare(settings, folder / "run")
        with judged_once():
            call_stages(run, settings)
        return run, settings

    return run_of

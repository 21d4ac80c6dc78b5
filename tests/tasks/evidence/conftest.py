"""A comparison of methods on a town of a hundred households, which takes a moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from spineflow.flows.running import call_stages, prepare
from spineflow.tasks.evidence.settings import EvidenceSettings
from spineflow.tasks.products.product import product
from spineflow.tasks.runs.directory import RunDirectory

from tests.flows.in_process import judged_once
from tests.library import towns

HOUSEHOLDS = 100
TABLES = (("AGE_SEX", "sex * age"), ("KINDS", "kind"))
CENSUS: dict[str, Any] = {
    "geography": {"table": "areas", "geolevels": ["country", "region", "section"]},
    "attributes": {
        "sex": {"column": "sex", "levels": {"female": ["f"], "male": ["m"]}},
        "age": {"column": "age", "bins": [0, 18, 65], "largest": 115, "labels": ["a", "b", "c"]},
        "kind": {"column": "kind", "levels": {"x": ["x"], "y": ["y"], "z": ["z"]}},
    },
    "universes": {
        "residents": {
            "table": "residents",
            "attributes": ["sex", "age", "kind"],
            "through": {"column": "home", "table": "homes", "key": "id"},
            "area": "section",
        }
    },
    "tables": [
        {"name": name, "universe": "residents", "query": query, "levels": ["region", "section"]}
        for name, query in TABLES
    ],
}
METHODS: dict[str, Any] = {
    "as_is": {"kind": "nothing"},
    "rounding": {"kind": "rounding", "how": "nearest", "bases": [3, 10]},
    "controlled": {"kind": "rounding", "how": "controlled", "bases": [3]},
    "ranges": {"kind": "coarsening", "thresholds": [4]},
    "merging": {"kind": "coarsening", "how": "minimum_size", "thresholds": [60]},
    "without_cells": {"kind": "suppression", "thresholds": [3]},
    "swapping": {"kind": "swapping", "rates": ["1/2"]},
    "keys": {"kind": "cell_keys", "variances": ["1"], "additive": True},
    "private": {"kind": "differential_privacy", "rho": ["1"]},
}


def town() -> dict[str, pd.DataFrame]:
    """Residents of the homes of six sections in two regions, and these."""
    draws = np.random.default_rng(3)
    sections = towns.areas()
    homes = pd.DataFrame(
        {"id": range(HOUSEHOLDS), "section": draws.choice(sections["section"], HOUSEHOLDS)}
    )
    home = np.repeat(homes["id"].to_numpy(), draws.integers(1, 5, HOUSEHOLDS))
    residents = pd.DataFrame(
        {
            "home": home,
            "sex": draws.choice(["f", "m"], len(home)),
            "age": draws.integers(0, 100, len(home)),
            "kind": draws.choice(["x", "y", "z"], len(home), p=[0.7, 0.2, 0.1]),
        }
    )
    return {"areas": sections, "homes": homes, "residents": residents}


@pytest.fixture(scope="session")
def people() -> pd.DataFrame:
    """The residents with section, region and age group, as the tables count them."""
    tables = town()
    own = tables["residents"].merge(tables["homes"], left_on="home", right_on="id")
    ages = pd.cut(own["age"], [-1, 17, 64, 115], labels=["a", "b", "c"]).astype(str)
    return own.merge(tables["areas"], on="section").assign(age=ages)


@pytest.fixture(scope="session")
def compared(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[RunDirectory, EvidenceSettings]]:
    """A finished comparison of the town; not to be changed."""
    folder = tmp_path_factory.mktemp("compared")
    for name, table in town().items():
        table.to_parquet(folder / f"{name}.parquet")
    even = dict.fromkeys(("country", "region", "section"), "1/3")
    budget = {"rho": "1", "delta": "1e-10", "geolevels": even}
    budget["queries"] = {name: {"total": "1/2", "detailed": "1/2"} for name in even}
    tree = {
        "input": {name: str(folder / f"{name}.parquet") for name in town()}
        | {"confidential": False},
        "privacy": {"dataset": "town"},
        "topdown": {
            "census": CENSUS,
            "geography": {"spine": "conventional"},
            "run": {"universes": ["residents"]},
            "budget": {"residents": budget},
        },
        "evidence": {
            "universe": "residents",
            "risk": "kind",
            "regions": ["region", "section"],
            "known": "sex * age",
            "learned": "kind",
            "note": "All residents are made up.",
        },
        "methods": METHODS,
    }
    own = product("evidence")
    settings = own.load(tree)
    assert isinstance(settings, EvidenceSettings)
    run = prepare(settings, folder / "run")
    with judged_once():
        call_stages(run, settings)
    yield run, settings

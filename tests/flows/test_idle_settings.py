"""No setting of trips and group sizes does nothing: each is toggled, and runs are compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from spineflow.tasks.group_sizes.ingest import read
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.group_sizes.product import GROUP_SIZES
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.trips.ingest import ingest
from spineflow.tasks.trips.product import TRIPS

from tests.flows.idle_settings import (
    ABSENT,
    Search,
    Tree,
    merged,
    refuse_idle,
    refuse_unconsidered,
    run_to_tables,
)

TRIPS_SEARCH = Search(
    TRIPS,
    {
        "input.count": ("weight",),
        "input.person": ("person", ABSENT),
        "input.destination_areas": ("others.csv",),
        "privacy.epsilon": ("2",),
        "privacy.delta": ("1/100000",),
        "privacy.conversion": ("tight",),
        "privacy.rho": ("1/7",),
        "privacy.neighbors": ("bounded", "unbounded"),
        "privacy.trips_per_person": (1, 2, 3),
        "privacy.distinct_trips": (True,),
        "privacy.excess_trips": ("refused", "dropped"),
        "privacy.total": ("measured",),
        "privacy.infinite": (True,),
        "privacy.seed": (2,),
        "mechanism.name": (
            "inftda",
            "tda_l2",
            "tda_chebyshev",
            "inftda_full_information",
            "gaussian_leaves",
            "stability_histogram",
        ),
        "mechanism.tree": ("origin",),
        "mechanism.remove_small_values": ("last",),
        "mechanism.shares": ("geometric", "optimised", ["1/2", "1/6", "1/6", "1/6"]),
        "mechanism.share_ratio": ("2",),
        "mechanism.projection": ("euclidean",),
        "mechanism.most_nodes": (1,),
        "input.public_levels": (True,),
    },
    run_to_tables(TRIPS),
    excused={
        **dict.fromkeys(
            (
                "input.trips",
                "input.origin",
                "input.destination",
                "input.areas",
                "input.table",
                "input.levels",
            ),
            "where the data are",
        )
    },
    by_data={
        "input.person": "the table is held to what is promised, which it keeps",
        "input.destination_areas": "areas without trips matter where empty cells are measured",
        "mechanism.name": "projections may agree",
        "mechanism.projection": "projections may agree",
        "mechanism.remove_small_values": "no small value may be left to remove",
        "input.public_levels": "goes with confidential input, which is refused here for its seed",
        "privacy.excess_trips": "nobody may have more trips than are promised",
        "privacy.total": "may say what follows from the neighbours",
    },
)

TRIPS_BASE: Tree = {
    "input": {
        "trips": "trips.csv",
        "origin": "home",
        "destination": "work",
        "areas": "areas.csv",
        "confidential": False,
    },
    "privacy": {"dataset": "d", "epsilon": "1", "delta": "1/1000000", "seed": 1},
}
SEVERAL: Tree = {
    "input": {"person": "person"},
    "privacy": {"trips_per_person": 3, "total": "measured"},
}
TRIPS_BASES: dict[str, Tree] = {
    "inftda": TRIPS_BASE,
    "geometric": merged(TRIPS_BASE, {"mechanism": {"shares": "geometric", "share_ratio": "3"}}),
    "l2": merged(TRIPS_BASE, {"mechanism": {"name": "tda_l2"}}),
    "highs": merged(TRIPS_BASE, {"mechanism": {"name": "tda_chebyshev"}}),
    "full": merged(TRIPS_BASE, {"mechanism": {"name": "inftda_full_information"}}),
    "selected": merged(
        TRIPS_BASE, {"mechanism": {"name": "inftda_full_information", "most_nodes": 1}}
    ),
    "leaves": merged(TRIPS_BASE, {"mechanism": {"name": "gaussian_leaves"}}),
    "stability": merged(TRIPS_BASE, {"mechanism": {"name": "stability_histogram"}}),
    "unbounded": merged(TRIPS_BASE, {"privacy": {"neighbors": "unbounded"}}),
    "several": merged(TRIPS_BASE, SEVERAL),
    "distinct": merged(TRIPS_BASE, SEVERAL, {"privacy": {"distinct_trips": True}}),
    "dropped": merged(
        TRIPS_BASE,
        {"input": {"person": "person"}, "privacy": {"excess_trips": "dropped"}},
    ),
    "rho": {
        "input": TRIPS_BASE["input"],
        "privacy": {"dataset": "d", "rho": "1/5", "seed": 1},
    },
    "table": {
        "input": {
            "table": "table.csv",
            "levels": ["province", "town", "sex"],
            "areas": "values.csv",
            "confidential": False,
        },
        "privacy": TRIPS_BASE["privacy"],
    },
}


def write_trips(folder: Path) -> None:
    """Trips of six hundred persons, up to three each in distinct cells, most in few of them."""
    random = np.random.default_rng(5)
    towns = {f"{province}{i}": province for province in "ABC" for i in range(4)}
    names = list(towns)
    n = len(names)
    weight = 1 / np.arange(1, n * n + 1) ** 1.3
    cells = random.permutation(n * n)
    rows = [
        (person, names[cell // n], names[cell % n], 1 + person % 3)
        for person in range(600)
        for cell in random.choice(
            cells, size=1 + person % 3, replace=False, p=weight / weight.sum()
        )
    ]
    frame = pd.DataFrame(rows, columns=["person", "home", "work", "weight"])
    frame.to_csv(folder / "trips.csv", index=False)
    areas = [("province", name, "") for name in "ABC"]
    areas += [("town", name, above) for name, above in towns.items()]
    columns = ["level", "area", "parent"]
    pd.DataFrame(areas, columns=columns).to_csv(folder / "areas.csv", index=False)
    others = [*areas, ("town", "B9", "B")]
    pd.DataFrame(others, columns=columns).to_csv(folder / "others.csv", index=False)
    values = [*areas, ("sex", "f", ""), ("sex", "m", "")]
    pd.DataFrame(values, columns=columns).to_csv(folder / "values.csv", index=False)
    table = pd.DataFrame(
        {
            "province": [towns[name] for name in frame["home"]],
            "town": frame["home"],
            "sex": np.where(frame["person"] % 2, "f", "m"),
            "weight": frame["weight"],
        }
    )
    table.to_csv(folder / "table.csv", index=False)


GROUP_SIZES_SEARCH = Search(
    GROUP_SIZES,
    {
        "privacy.epsilon": ("2",),
        "privacy.rho": ("1/7",),
        "privacy.neighbors": ("unbounded", "bounded"),
        "privacy.infinite": (True,),
        "privacy.seed": (2,),
        "invariants.groups": (True, 900, ABSENT),
        "invariants.level": ("nation", "state", "county", "State"),
        "geography.levels": (["State", "County"], ["State", "County", "Tract"]),
        "mechanism.name": (
            "hierarchical",
            "hierarchical_dp",
            "cumulative",
            "cumulative_dp",
            "chain_dp",
            "topdown",
        ),
        "mechanism.smallest_size": (0, 1),
        "mechanism.largest_size": (9,),
        "mechanism.top_coded": (False,),
        "mechanism.largest_quantity": (1, 2),
        "mechanism.levels": (
            {"nation": "0", "state": "1/3", "county": "2/3"},
            {"US": "0", "State": "1/3", "County": "2/3"},
        ),
        "mechanism.calibration": ("proven", "published"),
    },
    run_to_tables(GROUP_SIZES),
    excused={
        "invariants.numbers": "a table that the input is held against",
        **{
            f"input.{name}": "where the data are"
            for name in ("records", "sizes", "regions", "persons", "units", "geography")
        },
    },
    by_data={
        "invariants.groups": "a number is held against the input, which has as many",
        "mechanism.smallest_size": "may say what follows from the input",
        "mechanism.top_coded": "there may be no group above the largest size",
        "mechanism.largest_quantity": "records are held to it, and keep it",
        "mechanism.calibration": "the published scale is the proven one where that is in its "
        "table; the run then protects nobody in words alone",
        "mechanism.name": "the mechanism that is chosen may be named",
        "invariants.level": "the level that is public anyway may be named",
        "geography.levels": "the levels that are there anyway may be named",
    },
)

SIZES_BASE: Tree = {
    "input": {"sizes": "sizes.parquet", "regions": "regions.csv", "confidential": False},
    "invariants": {"groups": True},
    "mechanism": {"largest_size": 12},
    "privacy": {"dataset": "d", "epsilon": "1", "seed": 1},
}
GROUP_SIZES_BASES: dict[str, Tree] = {
    **{
        name: merged(SIZES_BASE, {"mechanism": {"name": name}})
        for name in GROUP_SIZES_SEARCH.toggles["mechanism.name"]
    },
    "by region": merged(SIZES_BASE, {"invariants": {"level": "county"}}),
    "published": merged(
        SIZES_BASE, {"mechanism": {"name": "chain_dp", "calibration": "published"}}
    ),
    "rho": {**SIZES_BASE, "privacy": {"dataset": "d", "rho": "1/5", "seed": 1}},
    "records": {
        **SIZES_BASE,
        "input": {"records": "records.csv", "regions": "regions.csv", "confidential": False},
    },
    "census": {
        "input": {
            "persons": "county/persons.parquet",
            "units": "county/units.parquet",
            "geography": "county/grfc.txt",
            "confidential": False,
        },
        "mechanism": {"largest_size": 12},
        "privacy": SIZES_BASE["privacy"],
    },
}


def write_groups(folder: Path) -> None:
    write_dataset(folder, census_like(groups=900, counties=6, states=2, largest=20))
    regions = pd.read_csv(folder / "regions.csv", dtype=str)
    counties = regions.loc[regions["level"] == "county", "region"].to_numpy()
    random = np.random.default_rng(3)
    unit = random.integers(0, 80, 200)
    records = pd.DataFrame(
        {"person": np.arange(200), "unit": unit, "region": counties[unit % counties.size]}
    )
    records.to_csv(folder / "records.csv", index=False)
    generate_county(folder / "county", persons=2_000)


def known_by(key_of: Callable[[Any], Any], function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same function of some of the settings, called once for each."""
    known: dict[str, Any] = {}

    def found(settings: Any) -> Any:
        key = repr(key_of(settings))
        if key not in known:
            known[key] = function(settings)
        return known[key]

    return found


SEARCHES: dict[str, tuple[Search, dict[str, Tree], Callable[[Path], None]]] = {
    "trips": (TRIPS_SEARCH, TRIPS_BASES, write_trips),
    "group-sizes": (GROUP_SIZES_SEARCH, GROUP_SIZES_BASES, write_groups),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_every_setting_is_toggled_or_excused(name: str) -> None:
    refuse_unconsidered(SEARCHES[name][0])


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
def test_no_setting_does_nothing(name: str, tmp_path: Path, monkeypatch) -> None:
    search, bases, write = SEARCHES[name]
    write(tmp_path)
    # The areas of a run, which few settings change, are read anew for its costs, plan and charge.
    shape, hierarchy = ingest.public_shape, read.public_hierarchy
    monkeypatch.setattr(
        ingest, "public_shape", known_by(lambda own: (own.input, own.mechanism.tree), shape)
    )
    monkeypatch.setattr(
        read, "public_hierarchy", known_by(lambda own: (own.input, own.geography), hierarchy)
    )
    refuse_idle(search, bases, tmp_path, monkeypatch, NEVER_EFFECTIVE)


NEVER_EFFECTIVE = {
    "input.person",
    "input.public_levels",
    "privacy.excess_trips",
    "invariants.groups",
    "mechanism.top_coded",
}
"""Toggles that are there to be refused, that state what holds anyway."""

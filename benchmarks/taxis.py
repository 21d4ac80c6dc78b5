"""Generated taxis of a city, its boroughs and zones, in the size of those of [GroupSizes2021]; a
taxi's size is the number of its trips.
"""

from __future__ import annotations

import numpy as np
from spineflow.tasks.group_sizes.ingest.generate import GroupDataset, region_table, size_table

TAXI_GROUPS = 13_282
TAXI_LARGEST = 13_282
TAXI_MEAN_SIZE = 1_844
TAXI_BOROUGHS = {
    "Bronx": 43,
    "Brooklyn": 61,
    "EWR": 1,
    "Manhattan": 69,
    "Queens": 69,
    "Staten Island": 20,
}
"""Zones of every borough."""
TAXI_ZONES = sum(TAXI_BOROUGHS.values())


def taxi_like(
    *,
    groups: int = TAXI_GROUPS,
    largest: int = TAXI_LARGEST,
    mean_size: float = TAXI_MEAN_SIZE,
    zones: int = TAXI_ZONES,
    seed: int = 1,
) -> GroupDataset:
    """Taxis of six boroughs and their zones; sizes follow a gamma distribution cut at `largest`.

    The boroughs share the zones as they do in the city; each has one at least.
    """
    rng = np.random.default_rng(seed)
    ends = np.cumsum(list(TAXI_BOROUGHS.values()))
    shared = np.maximum(1, np.diff(np.rint(ends * zones / TAXI_ZONES).astype(int), prepend=0))
    zone_names = [
        (f"{borough}-{i + 1}", borough)
        for borough, n in zip(TAXI_BOROUGHS, shared.tolist(), strict=True)
        for i in range(n)
    ]
    codes = np.array([name for name, _ in zone_names])
    weight = rng.lognormal(0, 1.5, codes.size) * np.array(
        [8.0 if borough == "Manhattan" else 1.0 for _, borough in zone_names]
    )
    zone = rng.choice(codes.size, groups, p=weight / weight.sum())
    size = np.clip(rng.gamma(2.2, mean_size / 2.2, groups).astype(np.int64), 1, largest)
    counts = np.zeros((codes.size, largest), dtype=np.int64)
    np.add.at(counts, (zone, size - 1), 1)
    links = {
        "city": [("New York", "")],
        "borough": [(borough, "New York") for borough in TAXI_BOROUGHS],
        "zone": zone_names,
    }
    return GroupDataset("taxi-like", size_table(codes, counts), region_table(links), largest)

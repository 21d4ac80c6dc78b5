"""Small spines and geographies for the tests of geography/."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from spineflow.geography.levels import Geolevel, Spine
from spineflow.geography.rules import AianRange, SpineRules

COLUMNS = {"aian": "AIANNHCE", "mcd": "COUSUBFP", "place": "PLACEFP"}
NAMES = ("US", "State", "County", "Tract", "Block_Group", "Block")


def spine_from_parents(parents: list[list[int]], shares: list[list[Fraction]]) -> Spine:
    """A spine from the parent positions and the shares of every geounit, root level first."""
    depth = len(parents)
    names = (*NAMES[: depth - 1], "Block")
    n_blocks = [np.ones(len(parents[-1]), dtype=np.int64)]
    for below, above in zip(parents[:0:-1], parents[-2::-1], strict=True):
        n_blocks.insert(
            0, np.bincount(below, weights=n_blocks[0], minlength=len(above)).astype(np.int64)
        )
    geolevels = []
    above = np.array([""], dtype=object)
    for index, (level_parents, level_shares) in enumerate(zip(parents, shares, strict=True)):
        parent = np.array(level_parents, dtype=np.int64)
        if index:
            starts = np.searchsorted(parent, parent)
            geocode = above[parent] + np.array(
                [f"{rank:02d}" for rank in np.arange(len(parent)) - starts], dtype=object
            )
        else:
            geocode = above
        distinct = sorted(set(level_shares))
        code = np.array([distinct.index(share) for share in level_shares], dtype=np.int32)
        geolevels.append(
            Geolevel(
                name=names[index],
                geocode=geocode,
                parent=parent,
                plb_shares=tuple(distinct),
                plb_share_code=code,
                is_aian=np.zeros(len(parent), dtype=bool),
                n_blocks=n_blocks[index],
            )
        )
        above = geocode
    n = len(parents[-1])
    block_geocode = np.array([f"{number:016d}" for number in range(n)], dtype=object)
    return Spine("optimized", tuple(geolevels), block_geocode, np.arange(n))


@pytest.fixture
def make_spine():
    """Factory: parents and shares by geounit -> Spine."""
    return spine_from_parents


@pytest.fixture
def make_random_spine():
    """Factory: seed, depth, most children, (equal shares within a geolevel) -> Spine."""

    def build(seed: int, depth: int = 4, most_children: int = 3) -> Spine:
        rng = np.random.default_rng(seed)
        parents = [[-1]]
        for _ in range(depth - 1):
            n_children = rng.integers(1, most_children + 1, size=len(parents[-1]))
            parents.append(np.repeat(np.arange(len(n_children)), n_children).tolist())
        weights = [int(weight) for weight in rng.integers(1, 12, size=depth)]
        shares = [
            [Fraction(weight, sum(weights))] * len(level)
            for weight, level in zip(weights, parents, strict=True)
        ]
        return spine_from_parents(parents, shares)

    return build


@pytest.fixture
def rules() -> SpineRules:
    """Rules with reservations on the spine, statistical areas off it, and one strong-MCD state."""
    return SpineRules(
        columns=COLUMNS,
        aian_ranges=(
            AianRange(low="0001", high="4989", area="reservation", on_spine=True),
            AianRange(low="8000", high="8999", area="statistical area", on_spine=False),
        ),
        strong_mcd_states=("44",),
    )


@pytest.fixture
def geography() -> pd.DataFrame:
    """Two states: 44 (strong MCD) with an AIAN area across two counties, 35 without any."""
    rows = []
    for state, county, tract, group, block in [
        (state, county, tract, group, block)
        for state in (35, 44)
        for county in (1, 3)
        for tract in (100, 201)
        for group in (1, 2)
        for block in range(4)
    ]:
        geocode = f"{state:02d}{county:03d}{tract:06d}{group}{group}{block:03d}"
        in_area = state == 44 and tract == 201 and group == 2 and block >= 2
        rows.append(
            {
                "block_geocode": geocode,
                "AIANNHCE": "0100" if in_area else "9999",
                "COUSUBFP": "00020" if block % 2 else "00010",
                "PLACEFP": "55000" if block == 3 else "99999",
                "SDUNI": "00007" if group == 1 else "00008",
            }
        )
    return pd.DataFrame(rows).astype("str").sort_values("block_geocode", ignore_index=True)


@pytest.fixture
def shares() -> dict[str, Fraction]:
    """Shares of a national run, unequal."""
    weights = dict(zip(NAMES, (1, 2, 3, 5, 7, 2), strict=True))
    return {name: Fraction(weight, 20) for name, weight in weights.items()}

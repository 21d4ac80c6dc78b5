"""Spines of a declared census: groups of areas and the geounits that they may not reach across."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.geography.declared import (
    GEOCODE,
    ColumnCategory,
    DeclaredRules,
    area_paths,
    declared_spine,
    declared_units,
)

LEVELS = ("land", "region", "town", "section")


@st.composite
def areas_of(draw) -> pd.DataFrame:
    """A table of areas of a few regions and towns, each area in one of two zones."""
    rows = []
    for region in range(draw(st.integers(1, 3))):
        for town in range(draw(st.integers(1, 3))):
            for section in range(draw(st.integers(1, 6))):
                rows.append((str(region), str(town), str(section), draw(st.sampled_from("ab"))))
    areas = pd.DataFrame(rows, columns=[*LEVELS[1:], "zone"])
    areas[GEOCODE] = area_paths(areas, LEVELS[1:])
    return areas.sort_values(GEOCODE).reset_index(drop=True)


def optimized(areas, names, not_crossed, cutoff):
    rules = DeclaredRules(
        geolevels=LEVELS,
        categories=(ColumnCategory(name="zone", column="zone"),),
        fanout_cutoff=cutoff,
        bypass=False,
        not_crossed=not_crossed,
    )
    shares = dict.fromkeys(names, Fraction(1, len(names)))
    return declared_spine(
        areas, geolevel_shares=shares, kind="optimized", rules=rules, is_pure=False
    )


def crosses(spine, unit, grouped) -> bool:
    """Whether a group has areas of several units."""
    group = spine.ancestors(grouped)
    pairs = np.unique(np.stack([group, unit[spine.block_row]]), axis=1)
    return pairs.shape[1] > len(np.unique(group))


@pytest.mark.slow
@settings(deadline=None)
@given(
    areas=areas_of(),
    names=st.sampled_from([LEVELS, ("land", "town", "section"), ("land", "region", "section")]),
    cutoff=st.integers(0, 12),
)
def test_groups_are_formed_within_what_they_may_not_reach_across(areas, names, cutoff):
    hold_within(areas, names, cutoff)


@pytest.mark.parametrize(
    "names", [LEVELS, ("land", "town", "section"), ("land", "region", "section")]
)
def test_groups_of_a_few_towns_are_formed_within_them(names):
    """Two regions of two towns, whose sections are in either zone: free groups cross towns."""
    rows = [
        (region, town, str(section), "ab"[(section + int(town)) % 2])
        for region in "12"
        for town in "12"
        for section in range(3)
    ]
    areas = pd.DataFrame(rows, columns=[*LEVELS[1:], "zone"])
    areas[GEOCODE] = area_paths(areas, LEVELS[1:])
    hold_within(areas.sort_values(GEOCODE).reset_index(drop=True), names, 4)
    spine = optimized(areas, LEVELS, None, 4)
    assert crosses(spine, declared_units(areas, LEVELS)["town"].number, "town")
    # Below a region the zones, of three sections each, are the groups.
    group, zone = spine.ancestors("town"), areas["zone"].to_numpy()[spine.block_row]
    assert len(np.unique(group)) == 4 and len(set(zip(group, zone, strict=True))) == 4


def hold_within(areas, names, cutoff):
    """Groups are within the units that they may not cross, and as free ones where these do not."""
    units = declared_units(areas, LEVELS)
    grouped = names[-2]
    free = optimized(areas, names, None, cutoff)
    for not_crossed in LEVELS[LEVELS.index(names[-3]) + 1 : -1]:
        spine = optimized(areas, names, not_crossed, cutoff)
        unit = units[not_crossed].number
        assert not crosses(spine, unit, grouped)
        assert sorted(spine.block_row.tolist()) == list(range(len(areas)))
        if not crosses(free, unit, grouped):
            assert spine.block_row.tolist() == free.block_row.tolist()
            for one, other in zip(spine.geolevels, free.geolevels, strict=True):
                assert one.geocode.tolist() == other.geocode.tolist()
        above = spine.ancestors(names[-3])
        parents = pd.DataFrame({"unit": unit[spine.block_row], "above": above})
        assert not parents.drop_duplicates().duplicated("unit").any()

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from spineflow.geography.categories import off_spine_categories
from spineflow.geography.spine import SpineRules, build_spine
from spineflow.geography.variance import (
    fan_out,
    geounit_counts,
    noisier_than_larger,
    summarise_spines,
)

from benchmarks.national_geography import (
    AIAN_RANGES,
    STRONG_MCD_STATES,
    NationalSizes,
    generate_geography,
)

PLANTED = NationalSizes(
    blocks=24_000,
    tracts=340,
    counties=30,
    places=200,
    mcds=240,
    aian_areas=40,
    school_districts=60,
    states=8,
)
"""Places and minor civil divisions across tracts, AIAN areas across counties."""

RULES = SpineRules(aian_ranges=AIAN_RANGES, strong_mcd_states=STRONG_MCD_STATES)
PERSONS = dict(
    zip(
        ("US", "State", "County", "Tract", "Block_Group", "Block"),
        (Fraction(weight, 4099) for weight in (104, 1440, 447, 687, 1256, 165)),
        strict=True,
    )
)


@pytest.mark.parametrize("is_pure", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_optimised_spine_brings_every_targeted_category_closer(seed, is_pure):
    geography, facilities = generate_geography(PLANTED, seed=seed)
    categories = off_spine_categories(geography, RULES, group_quarters=facilities)
    assert [category.name for category in categories] == ["aian", "group_quarters", "mcd", "place"]
    spines = {
        kind: build_spine(
            geography,
            geolevel_shares=PERSONS,
            kind=kind,
            rules=RULES,
            is_pure=is_pure,
            group_quarters=facilities,
        )
        for kind in ("aian", "optimized")
    }
    summary = summarise_spines(spines, categories, is_pure=is_pure, privacy_loss=2.556)
    for frame in (summary.distances, summary.standard_deviations):
        figures = frame.set_index(["spine", "category"])
        before, after = figures.loc["aian"], figures.loc["optimized"]
        assert before.index.tolist() == [category.name for category in categories]
        assert (after["mean"] < before["mean"]).all()
        assert (after["q90"] < before["q90"]).all()


def test_counts_and_fan_outs(geography, shares, rules):
    spine = build_spine(
        geography, geolevel_shares=shares, kind="conventional", rules=rules, is_pure=False
    )
    counts = geounit_counts(spine).set_index("geolevel")
    assert counts["geounits"].to_dict() == {
        "US": 1,
        "State": 2,
        "County": 4,
        "Tract": 8,
        "Block_Group": 16,
        "Block": 64,
    }
    assert (counts["measured"] + counts["bypassed"] == counts["geounits"]).all()
    table = fan_out(spine)
    assert table[table["geolevel"] == "Block_Group"]["n_children"].tolist() == [4]
    assert table[table["geolevel"] == "Block_Group"]["geounits"].tolist() == [16]
    for name, rows in table.groupby("geolevel"):
        children = spine.names[spine.names.index(name) + 1]
        assert (rows["n_children"] * rows["geounits"]).sum() == counts["geounits"][children]


def test_areas_with_more_noise_than_larger_ones_are_found():
    rows = [("block", 1, 5.0), ("group", 30, 17.0), ("tract", 100, 2.0), ("county", 3000, 1.9)]
    frame = pd.DataFrame(rows, columns=["category", "blocks", "mean"])
    found = noisier_than_larger(frame)
    assert [(own["category"], larger["category"]) for own, larger in found] == [
        ("block", "tract"),
        ("group", "tract"),
    ]
    assert not noisier_than_larger(frame.assign(mean=[1.0, 2.0, 3.0, 0.0]))
    assert not noisier_than_larger(frame.assign(mean=np.inf))


@pytest.mark.parametrize("seed", [0, 1])
def test_groups_that_follow_block_groups_nest_in_them(seed):
    geography, facilities = generate_geography(PLANTED, seed=seed)
    rules = replace(RULES, categories=("aian", "group_quarters", "mcd", "place", "block_group"))
    spine = build_spine(
        geography,
        geolevel_shares=PERSONS,
        kind="optimized",
        rules=rules,
        is_pure=False,
        group_quarters=facilities,
    )
    group = spine.ancestors("Block_Group")
    tabulated = geography["block_geocode"].astype(str).str[:12].to_numpy()[spine.block_row]
    pairs = pd.DataFrame({"group": group, "tabulated": tabulated}).drop_duplicates()
    assert len(pairs) == len(spine.geolevel("Block_Group"))

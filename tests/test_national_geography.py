from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from spineflow.geography.categories import off_spine_categories
from spineflow.geography.hierarchy import BlockCodes
from spineflow.geography.rules import SpineRules

from benchmarks.national_geography import (
    AIAN_RANGES,
    STRONG_MCD_STATES,
    NationalSizes,
    generate_geography,
)

SIZES = NationalSizes().scaled(1 / 256)


def test_sizes_and_repeatability():
    geography, facilities = generate_geography(SIZES, seed=4)
    again, facilities_again = generate_geography(SIZES, seed=4)
    pd.testing.assert_frame_equal(geography, again)
    np.testing.assert_array_equal(facilities, facilities_again)
    assert len(geography) == len(facilities) == SIZES.blocks == round(5_900_000 / 256)
    codes = BlockCodes(geography)
    assert codes.tract[-1] + 1 == SIZES.tracts
    assert codes.county[-1] + 1 == SIZES.counties
    assert len(np.unique(codes.state)) == 51
    assert all(isinstance(dtype, pd.StringDtype) for dtype in geography.dtypes)


def test_entities_break_nesting():
    sizes = replace(SIZES, counties=200)
    geography, _ = generate_geography(sizes, seed=4)
    rules = SpineRules(aian_ranges=AIAN_RANGES, strong_mcd_states=STRONG_MCD_STATES)
    categories = {category.name: category for category in off_spine_categories(geography, rules)}
    codes = BlockCodes(geography)

    def share_across(category, geounit) -> float:
        """Share of the category's entities that lie in more than one of the geounits."""
        pairs = pd.DataFrame({"entity": category.entity, "geounit": geounit})
        counts = pairs.drop_duplicates().groupby("entity")["geounit"].size()
        return float((counts[category.targeted()] > 1).mean())

    assert share_across(categories["place"], codes.tract) > 0.5
    assert share_across(categories["place"], codes.county) > 0.02
    assert share_across(categories["mcd"], codes.tract) > 0.1
    assert share_across(categories["mcd"], codes.county) == 0
    assert share_across(categories["aian"], codes.tract) > 0.3

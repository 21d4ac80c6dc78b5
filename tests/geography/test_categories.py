from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from spineflow.geography.categories import combine, group_quarters_category, off_spine_categories


def labels(category) -> np.ndarray:
    return category.label[category.entity]


def by_name(geography, rules, **keywords):
    categories = off_spine_categories(geography, rules, **keywords)
    return {category.name: category for category in categories}


def test_mcds_outside_areas_of_strong_states_and_places_elsewhere(geography, rules):
    categories = by_name(geography, rules)
    assert list(categories) == ["aian", "mcd", "place"]
    code = geography["block_geocode"]
    in_area = (geography["AIANNHCE"] == "0100").to_numpy()
    by_mcd = code.str.startswith("44").to_numpy() & ~in_area
    mcd = np.where(by_mcd, code.str[:5] + geography["COUSUBFP"], "outside")
    np.testing.assert_array_equal(labels(categories["mcd"]), mcd)
    has_place = (geography["PLACEFP"] != "99999").to_numpy() & ~by_mcd
    place = np.where(has_place, code.str[:2] + geography["PLACEFP"], "outside")
    np.testing.assert_array_equal(labels(categories["place"]), place)
    assert has_place[in_area].any()
    np.testing.assert_array_equal(labels(categories["aian"]) == "0100", in_area)


def test_areas_off_the_spine_are_outside(geography, rules):
    statistical = geography.assign(AIANNHCE="8500")
    aian = by_name(statistical, rules)["aian"]
    assert aian.label.tolist() == ["outside"]
    assert not aian.targeted().any()


def test_group_quarters_combinations():
    facilities = np.zeros((4, 7), dtype=int)
    facilities[1, 0] = facilities[3, 0] = 5
    facilities[1, 4] = facilities[2, 4] = 1
    category = group_quarters_category(facilities, 4)
    assert labels(category).tolist() == ["outside", "1+5", "5", "1"]
    assert category.targeted().sum() == 3


def test_any_column_is_a_category_within_states(geography, rules):
    geography["LEGISLATIVE"] = np.where(geography.index % 2, "012", "99999")
    rules = replace(
        rules,
        categories=("LEGISLATIVE", "school_district", "block_group"),
        school_district_column="SDUNI",
    )
    categories = by_name(geography, rules)
    assert set(labels(categories["LEGISLATIVE"])) == {"35012", "44012", "outside"}
    assert set(categories["school_district"].label) == {"3500007", "3500008", "4400007", "4400008"}
    assert categories["school_district"].outside == -1
    expected = geography["block_geocode"].str[:12].to_numpy(object)
    np.testing.assert_array_equal(labels(categories["block_group"]), expected)


def test_text_columns_of_any_kind_give_the_same(geography, rules):
    expected = by_name(geography, rules)["place"]
    for column in (geography["PLACEFP"].astype(object), geography["PLACEFP"].astype("category")):
        place = by_name(geography.assign(PLACEFP=column), rules)["place"]
        np.testing.assert_array_equal(labels(place), labels(expected))


def test_combinations_number_equal_tuples(geography, rules):
    categories = off_spine_categories(geography, rules)
    number = combine(categories, len(geography))
    table = pd.DataFrame({category.name: category.entity for category in categories})
    assert pd.Series(number).nunique() == len(table.drop_duplicates())
    assert (table.assign(number=number).groupby("number").nunique() == 1).all(axis=None)
    assert combine((), 3).tolist() == [0, 0, 0]

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from spineflow.geography.categories import combine, group_quarters_category, off_spine_categories
from spineflow.geography.levels import shares_add_to_one
from spineflow.geography.rules import AianRange, GeographyRefused, SpineRules, select_aian_areas
from spineflow.geography.spine import build_spine

DHC = (
    "US",
    "State",
    "County",
    "Prim",
    "Tract_Subset_Group",
    "Tract_Subset",
    "Block_Group",
    "Block",
)


def equal_shares(names) -> dict[str, Fraction]:
    return {name: Fraction(1, len(names)) for name in names}


def one_state_shares(shares) -> dict[str, Fraction]:
    rest = {name: share for name, share in shares.items() if name != "US"}
    return {name: share / sum(rest.values()) for name, share in rest.items()}


def check_structure(spine):
    """Rules that hold for every spine."""
    assert shares_add_to_one(spine.geolevels)
    assert len(spine.geolevels[0]) == 1
    for above, below in zip(spine.geolevels, spine.geolevels[1:], strict=False):
        assert (np.diff(below.parent) >= 0).all()
        assert np.unique(below.parent).tolist() == list(range(len(above)))
        assert len(set(below.geocode)) == len(below)
        sums = np.bincount(below.parent, weights=below.n_blocks)
        assert sums.tolist() == above.n_blocks.tolist()
        for parent in range(len(above)):
            own = below.geocode[below.parent == parent].tolist()
            assert own == sorted(own)
            if above.name != "US":
                assert all(code.startswith(above.geocode[parent]) for code in own)
    for level in spine.geolevels:
        ancestor = spine.ancestors(level.name)
        start, stop = len(level) // 3, len(level) - len(level) // 4
        below = spine.blocks_below(level.name, start, stop)
        inside = (ancestor >= start) & (ancestor < stop)
        assert np.arange(spine.n_blocks)[below].tolist() == np.flatnonzero(inside).tolist()
        assert spine.ancestors(level.name, below).tolist() == ancestor[below].tolist()
    blocks = spine.geolevels[-1]
    pairs = zip(blocks.geocode, spine.block_geocode, strict=True)
    assert all(code.endswith(block) for code, block in pairs)
    assert sorted(spine.block_row) == list(range(spine.n_blocks))


@pytest.mark.parametrize("is_pure", [False, True])
@pytest.mark.parametrize("kind", ["conventional", "aian", "optimized", "dhc"])
def test_every_kind_is_a_tree_with_exact_shares(geography, shares, rules, kind, is_pure):
    rules = replace(rules, columns={**rules.columns, "school_district": "SDUNI"})
    levels = equal_shares(DHC) if kind == "dhc" else shares
    spine = build_spine(geography, geolevel_shares=levels, kind=kind, rules=rules, is_pure=is_pure)
    check_structure(spine)
    assert spine.names == tuple(levels)
    assert len(spine.geolevel("US")) == 1
    np.testing.assert_array_equal(
        spine.block_geocode, geography["block_geocode"].to_numpy(object)[spine.block_row]
    )


def test_conventional_geocodes_are_digits_of_the_block_geocode(geography, shares, rules):
    spine = build_spine(
        geography, geolevel_shares=shares, kind="conventional", rules=rules, is_pure=False
    )
    assert spine.geolevel("US").geocode.tolist() == ["0"]
    assert spine.geolevel("State").geocode.tolist() == ["35", "44"]
    assert spine.geolevel("County").geocode.tolist() == ["35001", "35003", "44001", "44003"]
    for name, width in [("Tract", 11), ("Block_Group", 12), ("Block", 16)]:
        expected = geography["block_geocode"].str[:width].drop_duplicates().tolist()
        assert spine.geolevel(name).geocode.tolist() == expected
    assert not any(level.is_aian.any() for level in spine.geolevels)


def test_aian_branch_starts_at_the_state(geography, shares, rules):
    spine = build_spine(geography, geolevel_shares=shares, kind="aian", rules=rules, is_pure=False)
    state = spine.geolevel("State")
    assert state.geocode.tolist() == ["035", "044", "144"]
    assert state.is_aian.tolist() == [False, False, True]
    county = spine.geolevel("County").geocode.tolist()
    assert county == ["03510001", "03510003", "04410001", "04410003", "14410001", "14410003"]
    assert spine.geolevel("Tract").geocode[:2].tolist() == ["035100011", "035100012"]
    in_area = geography["AIANNHCE"].to_numpy(object)[spine.block_row] == "0100"
    np.testing.assert_array_equal(spine.geolevel("Block").is_aian, in_area)
    assert spine.geolevel("Block").geocode[0] == "0351000111" + "3500100010011000"


def test_area_types_are_selectable(geography, shares, rules):
    areas = select_aian_areas(rules.aian_ranges, ["statistical area"])
    spine = build_spine(
        geography,
        geolevel_shares=shares,
        kind="aian",
        rules=replace(rules, aian_ranges=areas),
        is_pure=False,
    )
    assert spine.geolevel("State").geocode.tolist() == ["035", "044"]
    with pytest.raises(GeographyRefused, match="'colony' is no type of AIAN area"):
        select_aian_areas(rules.aian_ranges, ["colony"])


def test_state_at_the_root_is_not_split(geography, shares, rules):
    geography = geography[geography["block_geocode"].str.startswith("44")].reset_index(drop=True)
    levels = one_state_shares(shares)
    spine = build_spine(
        geography,
        geolevel_shares=levels,
        kind="aian",
        rules=replace(rules, bypass=False),
        is_pure=False,
    )
    check_structure(spine)
    assert spine.geolevel("State").geocode.tolist() == ["044"]
    county = spine.geolevel("County")
    assert county.geocode.tolist() == ["044100011", "044100012", "044100031", "044100032"]
    assert county.is_aian.tolist() == [False, True, False, True]
    outside = geography.assign(AIANNHCE="9999")
    spine = build_spine(
        outside, geolevel_shares=levels, kind="optimized", rules=rules, is_pure=False
    )
    check_structure(spine)
    assert spine.geolevel("County").geocode.tolist() == ["04410001", "04410003"]


def test_optimised_block_groups_hold_one_combination_of_entities(geography, shares, rules):
    group_quarters = np.zeros((len(geography), 7), dtype=int)
    group_quarters[::5, 4] = 2
    rules = replace(rules, fanout_cutoff=0, bypass=False)
    spine = build_spine(
        geography,
        geolevel_shares=shares,
        kind="optimized",
        rules=rules,
        is_pure=False,
        group_quarters=group_quarters,
    )
    categories = off_spine_categories(geography, rules, group_quarters=group_quarters)
    assert [category.name for category in categories] == ["aian", "group_quarters", "mcd", "place"]
    combination = combine(categories, len(geography))[spine.block_row]
    group = spine.ancestors("Block_Group")
    pairs = pd.DataFrame({"group": group, "combination": combination})
    assert (pairs.groupby("group")["combination"].nunique() == 1).all()
    tract_blocks = spine.geolevel("Tract").n_blocks[spine.geolevel("Block_Group").parent]
    assert (spine.geolevel("Block_Group").n_blocks <= np.floor(np.sqrt(tract_blocks))).all()
    assert len(spine.geolevel("Block_Group")) > len(pairs["combination"].unique())


def test_optimised_spine_keeps_the_tracts_of_the_aian_spine(geography, shares, rules):
    rules = replace(rules, bypass=False)
    built = {
        kind: build_spine(geography, geolevel_shares=shares, kind=kind, rules=rules, is_pure=False)
        for kind in ("aian", "optimized")
    }
    for name in ("State", "County", "Tract"):
        aian, optimized = (built[kind].geolevel(name).geocode.tolist() for kind in built)
        assert aian == optimized


def test_tract_groups_stay_within_a_county(geography, rules):
    names = ("US", "State", "County", "Tract_Group", "Tract", "Block_Group", "Block")
    spine = build_spine(
        geography,
        geolevel_shares=equal_shares(names),
        kind="optimized",
        rules=replace(rules, bypass=False),
        is_pure=False,
    )
    check_structure(spine)
    # Two tracts per county part fit into one group, and merging them costs no distance.
    assert len(spine.geolevel("Tract_Group")) == len(spine.geolevel("County"))


@pytest.mark.parametrize("greedy", [False, True])
def test_dhc_levels(geography, rules, greedy):
    rules = replace(
        rules,
        columns={**rules.columns, "school_district": "SDUNI"},
        greedy_tract_subset_groups=greedy,
        bypass=False,
    )
    spine = build_spine(
        geography, geolevel_shares=equal_shares(DHC), kind="dhc", rules=rules, is_pure=False
    )
    check_structure(spine)
    frame = geography.iloc[spine.block_row].reset_index(drop=True)
    code = frame["block_geocode"]
    in_area = frame["AIANNHCE"] == "0100"
    by_mcd = code.str.startswith("44") & ~in_area
    prim = code.str[:5] + in_area.astype(str) + frame["COUSUBFP"].where(by_mcd, frame["PLACEFP"])
    subset = prim + code.str[:11]
    for name, expected in [("Prim", prim), ("Tract_Subset", subset)]:
        pairs = pd.DataFrame({"geounit": spine.ancestors(name), "key": expected})
        assert len(pairs.drop_duplicates()) == len(spine.geolevel(name)) == expected.nunique()
    pairs = pd.DataFrame(
        {
            "geounit": spine.ancestors("Block_Group"),
            "district": frame["SDUNI"],
            "block_group": code.str[:12],
        }
    )
    assert (pairs.groupby("geounit").nunique() == 1).all(axis=None)


def test_prim_column_defines_prims(geography, rules):
    geography["PRIM"] = np.where(geography["block_geocode"].str[10] == "0", "A", "B")
    rules = replace(rules, columns={**rules.columns, "school_district": "SDUNI"}, bypass=False)
    spine = build_spine(
        geography, geolevel_shares=equal_shares(DHC), kind="dhc", rules=rules, is_pure=False
    )
    # Each of the four counties has both prims outside the area; the area lies in prim B.
    assert len(spine.geolevel("Prim")) == 4 * 2 + 2


def test_build_is_deterministic_and_local(geography, shares, rules):
    """A tract's geounits do not depend on other states."""
    whole, part = (
        build_spine(
            frame.reset_index(drop=True),
            geolevel_shares=shares,
            kind="optimized",
            rules=replace(rules, bypass=False),
            is_pure=False,
        )
        for frame in (geography, geography[geography["block_geocode"].str.startswith("44")])
    )
    codes = [code for code in whole.geolevel("Block").geocode if code[1:3] == "44"]
    assert codes == part.geolevel("Block").geocode.tolist()


def refuse(match, geography, shares, rules, kind="optimized", **keywords):
    with pytest.raises(GeographyRefused, match=match):
        build_spine(
            geography, geolevel_shares=shares, kind=kind, rules=rules, is_pure=False, **keywords
        )


def test_refused_geographies(geography, shares, rules):
    twice = pd.concat([geography, geography.iloc[[3]]]).sort_values("block_geocode")
    refuse("block 3500100010011003 is repeated", twice.reset_index(drop=True), shares, rules)
    refuse("sorted by block_geocode", geography.iloc[::-1].reset_index(drop=True), shares, rules)
    refuse("no block that can hold anybody", geography.iloc[:0], shares, rules)
    short = geography.assign(block_geocode=geography["block_geocode"].str[:15])
    refuse("does not have 16 digits", short, shares, rules)
    refuse("has no column 'PLACEFP'", geography.drop(columns="PLACEFP"), shares, rules)
    gaps = geography.assign(PLACEFP=geography["PLACEFP"].where(geography.index > 0))
    refuse("'PLACEFP' of the geography has missing values", gaps, shares, rules)
    mixed = geography.assign(PLACEFP=[1, *geography["PLACEFP"].tolist()[1:]])
    refuse("'PLACEFP' of the geography holds int and str values", mixed, shares, rules)
    numbers = geography.assign(COUSUBFP=geography["COUSUBFP"].astype(int))
    refuse("'COUSUBFP' of the geography has the type int64", numbers, shares, rules)
    refuse("root geolevel 'State' would have 2", geography, one_state_shares(shares), rules)


def test_refused_settings(geography, shares, rules):
    refuse("'Ward' is not part of", geography, equal_shares(("US", "Ward", "Block")), rules)
    refuse("must be in the order", geography, equal_shares(("US", "Tract", "County")), rules)
    refuse("must begin .* and end with 'Block'", geography, equal_shares(("US", "State")), rules)
    refuse("must begin with 'US' or 'State'", geography, equal_shares(("Tract", "Block")), rules)
    refuse(
        "'Tract_Group' needs the geolevel 'Tract'",
        geography,
        equal_shares(("US", "Tract_Group", "Block")),
        rules,
    )
    refuse("has no column 'school_district'", geography, equal_shares(DHC), rules, kind="dhc")
    refuse("has no column 'WARD'", geography, shares, replace(rules, categories=("place", "WARD")))
    refuse("facilities have the shape", geography, shares, rules, group_quarters=np.zeros((3, 7)))


def test_refused_rules():
    with pytest.raises(GeographyRefused, match="named twice"):
        SpineRules(categories=("place", "place"))


def test_refused_aian_ranges():
    first = AianRange(low="0001", high="4989", area="reservation", on_spine=True)
    second = AianRange(low="4800", high="4999", area="joint use", on_spine=True)
    with pytest.raises(GeographyRefused, match="overlap at 4800"):
        SpineRules(aian_ranges=(first, second))
    with pytest.raises(GeographyRefused, match="runs from 4989 down to 0001"):
        AianRange(low="4989", high="0001", area="reservation", on_spine=True)


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


def test_group_quarters_combinations():
    facilities = np.zeros((4, 7), dtype=int)
    facilities[1, 0] = facilities[3, 0] = 5
    facilities[1, 4] = facilities[2, 4] = 1
    category = group_quarters_category(facilities, 4)
    assert labels(category).tolist() == ["outside", "1+5", "5", "1"]
    assert category.targeted().sum() == 3

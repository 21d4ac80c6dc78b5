from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from spineflow.geography.levels import GeographyRefused
from spineflow.geography.spine import build_spine
from spineflow.geography.tables import spine_from_tables, spine_to_tables


@pytest.fixture(params=[False, True])
def spine(request, geography, shares, rules):
    return build_spine(
        geography, geolevel_shares=shares, kind="optimized", rules=rules, is_pure=request.param
    )


def test_round_trip(spine):
    geounits, blocks = spine_to_tables(spine)
    assert geounits["geolevel"].unique().to_pylist() == list(spine.names)
    shuffled = np.random.default_rng(1).permutation(len(geounits))
    number = np.array([spine.names.index(name) for name in geounits["geolevel"].to_pylist()])
    geounits = geounits.take(shuffled[np.argsort(number[shuffled], kind="stable")])
    again = spine_from_tables(geounits, blocks.take(np.arange(len(blocks))[::-1]))
    assert again.kind == "optimized"
    assert again.names == spine.names
    np.testing.assert_array_equal(again.block_geocode, spine.block_geocode)
    np.testing.assert_array_equal(again.block_row, spine.block_row)
    for level, expected in zip(again.geolevels, spine.geolevels, strict=True):
        assert level.plb_shares == expected.plb_shares
        for field in ("geocode", "parent", "plb_share_code", "is_aian", "bypassed", "n_blocks"):
            np.testing.assert_array_equal(getattr(level, field), getattr(expected, field))


def test_blocks_table_names_the_path(spine):
    _, blocks = spine_to_tables(spine)
    for above, below in zip(spine.names[1:], spine.names[2:], strict=False):
        pairs = zip(blocks[above].to_pylist(), blocks[below].to_pylist(), strict=True)
        assert all(code.startswith(prefix) for prefix, code in pairs)


def test_refused_tables(geography, shares, rules):
    spine = build_spine(
        geography, geolevel_shares=shares, kind="conventional", rules=rules, is_pure=False
    )
    geounits, blocks = (table.to_pandas() for table in spine_to_tables(spine))

    def refuse(match, changed_geounits=geounits, changed_blocks=blocks):
        tables = (
            pa.Table.from_pandas(frame, preserve_index=False)
            for frame in (changed_geounits, changed_blocks)
        )
        with pytest.raises(GeographyRefused, match=match):
            spine_from_tables(*tables)

    def with_parent(geocode, parent):
        changed = geounits["parent"].where(geounits["geocode"] != geocode, parent)
        return geounits.assign(parent=changed)

    for parent in ("99", "0", "35001"):
        refuse("the parents of County are not all", with_parent("35001", parent))
    is_county = geounits["geolevel"] == "County"
    refuse(
        "do not add to exactly 1",
        geounits.assign(plb_share=geounits["plb_share"].where(~is_county, "1/7")),
    )
    refuse("the parents of County are not all", geounits.loc[[*geounits.index, 1]])
    refuse("the blocks are not all", changed_blocks=blocks.loc[[0, *blocks.index]])
    refuse("the blocks are not all", changed_blocks=blocks.iloc[1:])
    is_block = geounits["geolevel"] == "Block"
    first = geounits[is_block & (geounits["parent"] == "350010001001")]["geocode"]
    refuse("the parents of Block are not all", geounits[~geounits["geocode"].isin(first)])
    shared = blocks.assign(Block=blocks["Block"].where(blocks.index > 0, blocks["Block"][1]))
    refuse("the blocks are not all", changed_blocks=shared)

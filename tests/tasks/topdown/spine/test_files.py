from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from spineflow.geography.levels import Spine
from spineflow.geography.spine import SpineRules, build_spine
from spineflow.tasks.census.histograms import block_histogram
from spineflow.tasks.census.invariants import (
    N_KINDS,
    block_invariants,
    inhabitable,
    read_inhabitable,
)
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.runs.stamps import write_frame
from spineflow.tasks.topdown.spine.files import ARRAYS, BLOCKS, GEOUNITS, read_spine, write_spine

from benchmarks.national_geography import AIAN_RANGES, NationalSizes, generate_geography

NAMES = ("US", "State", "County", "Tract", "Block_Group", "Block")


@pytest.fixture(scope="module")
def spine() -> Spine:
    sizes = NationalSizes(
        blocks=400, tracts=24, counties=6, places=9, mcds=9, aian_areas=3, states=2
    )
    geography, facilities = generate_geography(sizes, seed=1)
    return build_spine(
        geography,
        geolevel_shares={name: Fraction(1, 6) for name in NAMES},
        kind="optimized",
        rules=SpineRules(aian_ranges=AIAN_RANGES),
        is_pure=False,
        group_quarters=facilities,
    )


def test_what_is_written_is_read(spine: Spine, tmp_path: Path) -> None:
    write_spine(spine, tmp_path)
    again = read_spine(tmp_path)
    assert (again.kind, again.names) == (spine.kind, spine.names)
    np.testing.assert_array_equal(again.block_geocode, spine.block_geocode)
    np.testing.assert_array_equal(again.block_row, spine.block_row)
    for level, expected in zip(again.geolevels, spine.geolevels, strict=True):
        assert level.plb_shares == expected.plb_shares
        for field in ("geocode", "parent", "plb_share_code", "is_aian", "bypassed", "n_blocks"):
            np.testing.assert_array_equal(getattr(level, field), getattr(expected, field))
    assert list(pd.read_parquet(tmp_path / GEOUNITS)) == [
        "geolevel",
        "geocode",
        "parent",
        "plb_share",
        "is_aian",
        "bypassed",
        "n_blocks",
    ]
    assert list(pd.read_parquet(tmp_path / BLOCKS)) == ["block_geocode", *NAMES]


def test_the_table_of_blocks_names_their_paths(spine: Spine, tmp_path: Path) -> None:
    write_spine(spine, tmp_path)
    blocks = pd.read_parquet(tmp_path / BLOCKS)
    for above, below in pairwise(NAMES[1:]):
        pairs = zip(blocks[above], blocks[below], strict=True)
        assert all(code.startswith(prefix) for prefix, code in pairs)


@pytest.mark.parametrize("name", [GEOUNITS, BLOCKS, ARRAYS])
def test_spoilt_files_are_refused(spine: Spine, tmp_path: Path, name: str) -> None:
    write_spine(spine, tmp_path)
    if name == ARRAYS:
        (tmp_path / name).unlink()
    else:
        pd.read_parquet(tmp_path / name).iloc[1:].to_parquet(tmp_path / name)
    with pytest.raises(InputRefused, match=name):
        read_spine(tmp_path)


def test_blocks_that_can_hold_somebody_are_read_from_the_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    code = pd.Series([f"{number:016d}" for number in range(40)], dtype="str")
    geography = pd.DataFrame({"block_geocode": code, "PLACEFP": code.str[-5:]})
    block, kind = rng.integers(0, 40, 30), rng.integers(0, N_KINDS, 30)
    units = block_histogram(block, kind, n_blocks=40, n_cells=N_KINDS)
    invariants = block_invariants(code, units)
    write_frame(tmp_path / "invariants.parquet", invariants)
    geography.to_parquet(tmp_path / "geography.parquet", index=False)
    blocks, counts = read_inhabitable(
        tmp_path / "geography.parquet", tmp_path / "invariants.parquet"
    )
    used = inhabitable(invariants)
    assert 0 < used.sum() < len(used)
    pd.testing.assert_frame_equal(blocks, geography[used].reset_index(drop=True))
    expected = invariants[used].reset_index(drop=True).drop(columns="block_geocode")
    pd.testing.assert_frame_equal(counts, expected)

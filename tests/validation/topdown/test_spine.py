"""Shares on paths, and parts of spines, against walking the tree."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spineflow.validation.topdown.measurements import batches_of_level, count_unknown
from spineflow.validation.topdown.spine import (
    RunSpine,
    SpineLevel,
    cut_depth,
    spine_parts,
    unbalanced_paths,
)


@pytest.mark.slow
@settings(deadline=None, max_examples=80)
@given(st.data())
def test_sums_agree_with_walking_each_path(data):
    parents, shares, codes = [np.array([-1])], [[Fraction(1, 7)]], [np.array([0])]
    for _ in range(data.draw(st.integers(1, 4))):
        above = parents[-1].size
        parent = data.draw(st.lists(st.integers(0, above - 1), min_size=1, max_size=12))
        some = st.fractions(0, 1, max_denominator=10**6) | st.just(Fraction(6, 7))
        level = data.draw(st.lists(some, min_size=1, max_size=4))
        place = st.integers(0, len(level) - 1)
        code = data.draw(st.lists(place, min_size=len(parent), max_size=len(parent)))
        parents.append(np.array(parent))
        shares.append(level)
        codes.append(np.array(code))
    wrong = []
    for leaf in range(parents[-1].size):
        position, walked = leaf, Fraction(0)
        for level in reversed(range(len(parents))):
            walked += shares[level][codes[level][position]]
            position = parents[level][position]
        wrong += [leaf] if walked != 1 else []
    assert unbalanced_paths(parents, shares, codes).tolist() == wrong


def test_denominators_beyond_64_bits_stay_exact():
    primes = [10**18 + 9, 10**18 + 3]
    first, second = Fraction(1, primes[0]), Fraction(1, primes[1])
    parents = [np.array([-1]), np.array([0, 0]), np.array([0, 1])]
    shares = [[first], [second], [1 - first - second, 1 - first]]
    codes = [np.array([0]), np.array([0, 0]), np.array([0, 1])]
    assert unbalanced_paths(parents, shares, codes).tolist() == [1]


def test_a_negative_share_is_unbalanced_even_if_the_path_adds_to_one():
    parents = [np.array([-1]), np.array([0])]
    shares = [[Fraction(3, 2)], [Fraction(-1, 2)]]
    assert unbalanced_paths(parents, shares, [np.array([0]), np.array([0])]).tolist() == [0]


def level_of(name: str, codes: list[str], parent: list[int], *, is_part: bool = False):
    none = np.zeros(len(codes), dtype=np.int64)
    numbers = np.array(parent)
    return SpineLevel(name, pa.array(codes), numbers, (), none, none > 0, none, is_part)


@pytest.fixture
def spine() -> RunSpine:
    """Two states, four counties, nine blocks, listed in another order than their geocodes."""
    counties = ["42", "11", "12", "41"]
    blocks = ["419", "117", "111", "121", "411", "415", "425", "128", "127"]
    levels = (
        level_of("US", ["0"], [-1]),
        level_of("State", ["4", "1"], [0, 0]),
        level_of("County", counties, [0, 1, 1, 0]),
        level_of("Block", blocks, [counties.index(code[:2]) for code in blocks]),
    )
    areas = sorted(blocks)
    ancestors = [
        np.array([level.geocode.to_pylist().index(code[:n] or "0") for code in areas])
        for n, level in enumerate(levels)
    ]
    return RunSpine(levels, pa.array(areas), tuple(ancestors))


@pytest.mark.parametrize("blocks_per_part", [1, 2, 3, 4, 9])
def test_parts_are_subtrees_that_hold_every_geounit_once(spine: RunSpine, blocks_per_part) -> None:
    depth = cut_depth(spine, blocks_per_part)
    seen: list[list[int]] = [[] for _ in spine.levels]
    for part in spine_parts(spine, blocks_per_part):
        assert part.depth in (0, depth)
        for i, (level, geounits) in enumerate(zip(part.levels, part.geounits, strict=True)):
            whole = spine.levels[part.depth + i]
            assert level.geocode.to_pylist() == whole.geocode.take(pa.array(geounits)).to_pylist()
            if i:
                parents = part.geounits[i - 1][level.parent]
                np.testing.assert_array_equal(parents, whole.parent[geounits])
            if i or not part.depth:
                seen[part.depth + i] += geounits.tolist()
            own = level.geocode.take(pa.array(part.geounit_of_area(spine, i)))
            areas = spine.area_geocode.take(pa.array(part.areas))
            n = part.depth + i
            assert own.to_pylist() == [code[:n] or "0" for code in areas.to_pylist()]
    for level, geounits in zip(spine.levels, seen, strict=True):
        assert sorted(geounits) == list(range(level.n))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files with a row for each of a hundred geocodes, ten in a row group."""
    for number in range(2):
        codes = [f"{i:04d}" for i in range(50 * number, 50 * number + 50)]
        table = pa.table({"geocode": codes, "count": list(range(50))})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=10)
    return tmp_path


def test_a_part_reads_the_row_groups_of_its_geounits_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    original = pq.ParquetFile.iter_batches

    def counted(file: pq.ParquetFile, *, row_groups, **named):
        read.extend(row_groups)
        return original(file, row_groups=row_groups, **named)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    part = level_of("Block", ["0071", "0012", "0075"], [0, 0, 0], is_part=True)
    batches = list(batches_of_level(folder, ["geocode", "count"], part))
    rows = [row for batch in batches for row in batch.to_pylist()]
    wanted = [("0012", 12), ("0071", 21), ("0075", 25)]
    assert [(row["geocode"], row["count"]) for row in rows] == wanted
    assert len(read) == 2


def test_rows_of_no_geounit_are_counted(folder: Path) -> None:
    known = [f"{i:04d}" for i in range(100)]
    assert count_unknown(folder, level_of("Block", known[::-1], [0] * 100)) == 0
    assert count_unknown(folder, level_of("Block", known[3:90], [0] * 87)) == 13

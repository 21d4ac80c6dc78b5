"""Spines are cut into parts that hold every geounit once, and files are read part by part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.validation.topdown.run_files import (
    RunSpine,
    SpineLevel,
    count_unknown,
    read_batches,
    read_spine,
)
from spineflow.validation.topdown.spine_parts import cut_depth, spine_parts

GEOLEVELS = ("US", "State", "County", "Tract", "Block_Group", "Block")


@pytest.fixture(scope="module")
def spine(right_runs) -> RunSpine:
    return read_spine(right_runs["noisy"].path, "persons", GEOLEVELS)


@pytest.mark.parametrize("blocks_per_part", [1, 2, 3, 4, 7])
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
    for level, geounits in zip(spine.levels, seen, strict=True):
        assert sorted(geounits) == list(range(level.n))


def test_a_small_spine_is_one_part(spine: RunSpine) -> None:
    (part,) = spine_parts(spine)
    assert part.levels == spine.levels
    assert not any(level.is_part for level in part.levels)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files with a row for each of a hundred geocodes, ten in a row group."""
    for number in range(2):
        codes = [f"{i:04d}" for i in range(50 * number, 50 * number + 50)]
        table = pa.table({"geocode": codes, "count": list(range(50))})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=10)
    return tmp_path


def level_of(spine: RunSpine, codes: list[str]) -> SpineLevel:
    n = len(codes)
    other = spine.levels[-1].part(np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64))
    object.__setattr__(other, "geocode", pa.array(codes))
    return other


def test_a_part_reads_the_row_groups_of_its_geounits_alone(
    spine: RunSpine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    original = pq.ParquetFile.iter_batches

    def counted(file: pq.ParquetFile, *, row_groups, **named):
        read.extend(row_groups)
        return original(file, row_groups=row_groups, **named)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    part = level_of(spine, ["0071", "0012", "0075"])
    batches = list(read_batches(folder, ["geocode", "count"], level=part))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert rows == [
        {"geocode": "0012", "count": 12},
        {"geocode": "0071", "count": 21},
        {"geocode": "0075", "count": 25},
    ]
    assert len(read) == 2


def test_rows_of_no_geounit_are_counted(spine: RunSpine, folder: Path) -> None:
    known = [f"{i:04d}" for i in range(100)]
    assert count_unknown(folder, level_of(spine, known[::-1])) == 0
    assert count_unknown(folder, level_of(spine, known[3:90])) == 13

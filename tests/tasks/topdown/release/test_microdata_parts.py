"""Microdata of a country are written some blocks at a time, and say the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.answers.estimates import write_estimates
from spineflow.tasks.census.invariants import read_invariants
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.measurement.measure import shard_histograms
from spineflow.tasks.topdown.paths import invariants_file, spine_folder
from spineflow.tasks.topdown.release import microdata
from spineflow.tasks.topdown.release.microdata import (
    BlockCounts,
    block_estimate_parts,
    write_microdata,
)
from spineflow.tasks.topdown.spine.files import read_shards, read_spine

from tests.block_estimates import read_block_estimates

BLOCKS_PER_PART = 10
N_CELLS = {"persons": 2016, "units": 2}


def parts_of(
    run: RunDirectory, universe: str, blocks_per_part: int = BLOCKS_PER_PART
) -> Iterator[BlockCounts]:
    blocks = np.arange(read_spine(spine_folder(run, universe)).n_blocks)
    return block_estimate_parts(
        run, universe, N_CELLS[universe], blocks, blocks_per_part=blocks_per_part
    )


@pytest.fixture(scope="module")
def estimated(cut_county) -> RunDirectory:
    """A run whose block estimates are the truth."""
    run, settings = cut_county
    for universe in ("persons", "units"):
        spine, n_cells = (
            read_spine(spine_folder(run, universe)),
            settings.schema_of(universe).n_cells,
        )
        for shard in read_shards(spine_folder(run, universe)):
            if shard.geolevel == "Block":
                write_estimates(
                    run.estimates(universe, "Block", shard.name),
                    spine.geolevel("Block").geocode[shard.start : shard.stop],
                    shard_histograms(run, universe, spine, shard, n_cells),
                )
    return run


@pytest.mark.parametrize("universe", ["persons", "units"])
def test_parts_hold_every_block_once_and_in_order(estimated: RunDirectory, universe: str) -> None:
    whole = read_block_estimates(estimated.root, universe)
    parts = list(parts_of(estimated, universe))
    assert len(parts) > 4
    geocode = [code for part in parts for code in part.block_geocode.to_pylist()]
    counts = [part.counts.sum(axis=1) for part in parts]
    assert max(map(len, counts)) <= BLOCKS_PER_PART
    assert geocode == sorted(set(geocode))
    due = whole.group_by("block_geocode").aggregate([("count", "sum")]).to_pydict()
    found = dict(zip(geocode, np.concatenate(counts).tolist(), strict=True))
    assert {code: n for code, n in found.items() if n} == dict(
        zip(due["block_geocode"], due["count_sum"], strict=True)
    )


def test_a_part_reads_the_files_of_its_shards_alone(
    estimated: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file is read for one part or two and once more for each branch, not for every part."""
    read: list[str] = []
    original = pq.ParquetFile

    def counted(path: Path, **named):
        read.append(str(path))
        return original(path, **named)

    monkeypatch.setattr(pq, "ParquetFile", counted)
    parts = list(parts_of(estimated, "persons"))
    files = [path for path in read if "estimates" in path]
    assert len(set(files)) > 4
    assert len(files) < len(set(files)) * len(parts) / 2


@pytest.mark.parametrize("universe", ["persons", "units"])
def test_microdata_do_not_depend_on_the_parts(
    cut_county, estimated: RunDirectory, tmp_path: Path, universe: str, monkeypatch
) -> None:
    monkeypatch.setattr(microdata, "ROWS_PER_BATCH", 100)
    _, settings = cut_county
    schema = settings.schema_of(universe)
    texts, tables = [], []
    for blocks_per_part in (BLOCKS_PER_PART, 1 << 16):
        folder = tmp_path / str(blocks_per_part)
        parts = parts_of(estimated, universe, blocks_per_part)
        if universe == "persons":
            files = write_microdata(parts, schema, folder)
        else:
            invariants = read_invariants(invariants_file(estimated))
            files = write_microdata(parts, schema, folder, invariants)
        texts.append(files.read_bytes())
        tables.append(pq.read_table(files.with_suffix(".parquet")))
    assert texts[0] == texts[1]
    assert tables[0].equals(tables[1])

"""The generated country has the size that was asked for and passes every rule."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.trips.ingest.generate import CountrySize, generate_country
from spineflow.tasks.trips.ingest.ingest import check_input
from spineflow.tasks.trips.settings import TripsSettings

SMALL = CountrySize(regions=3, provinces=8, municipalities=60, pairs=900, commuters=40_000)


def test_generated_country_is_accepted_whole(tmp_path: Path) -> None:
    file = generate_country(tmp_path, SMALL, seed=2)
    check = check_input(load_settings(TripsSettings, file, presets=tmp_path))
    assert not check.findings
    found = check.accepted()
    assert found.leaves.total == SMALL.commuters
    assert 800 < found.leaves.keys.size <= SMALL.pairs
    tree = found.shape.tree
    assert [tree.n_nodes(level) for level in (2, 4, 6)] == [3**2, 8**2, 60**2]


def test_the_seed_decides_the_country(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        generate_country(tmp_path / name, SMALL, seed=seed)
    tables = [pq.read_table(tmp_path / name / "trips.parquet") for name in "abc"]
    assert tables[0].equals(tables[1]) and not tables[0].equals(tables[2])

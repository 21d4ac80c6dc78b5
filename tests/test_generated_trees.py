"""The six synthetic tables have the partitions and the densities that they are named after."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.trips.ingest.ingest import public_shape
from spineflow.tasks.trips.settings import TripsSettings

from benchmarks.generated_trees import DENSITIES, PARTITIONS, generate_tree


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("density", DENSITIES)
def test_partition_and_density(partition: str, density: str, tmp_path: Path) -> None:
    file = generate_tree(tmp_path, partition, density, areas=60)
    trips = pd.read_parquet(tmp_path / "trips.parquet")
    areas = pd.read_csv(tmp_path / "areas.csv", dtype=str)
    n = int((areas["level"] == areas["level"].iloc[-1]).sum())
    assert len(trips) == round(n * n * DENSITIES[density])
    assert not trips.duplicated(["origin", "destination"]).any()
    assert trips["count"].min() >= 1
    children = areas[areas["parent"].notna()].groupby("parent").size()
    assert set(children) == {2} if partition == "binary" else set(children) <= set(range(2, 11))
    tree = public_shape(load_settings(TripsSettings, file, presets=tmp_path)).tree
    assert tree.depth == (16 if partition == "binary" else 8)
    assert tree.n_nodes(tree.depth) == n * n


@pytest.mark.parametrize("density", ["complete", "sparse"])
def test_flows_are_like_the_published_ones(density: str, shared: Path, tmp_path: Path) -> None:
    generate_tree(tmp_path, "random", density)
    found = pd.read_parquet(tmp_path / "trips.parquet")["count"]
    published = pd.read_parquet(shared / "data" / "trips" / f"random_{density}.parquet")["COUNT"]
    assert found.mean() == pytest.approx(published.mean(), rel=0.1)
    for part in (0.25, 0.5, 0.75, 0.9, 0.99):
        assert found.quantile(part) == pytest.approx(published.quantile(part), rel=0.15, abs=1)

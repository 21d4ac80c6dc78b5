"""Generated datasets have the sizes that they promise."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from spineflow.tasks.group_sizes.ingest.generate import census_like, taxi_like, write_dataset
from spineflow.tasks.group_sizes.ingest.hierarchy import hierarchy_of_rows
from spineflow.tasks.group_sizes.ingest.read import check_groups
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.tables.tally import RuleTally


def regions_of(dataset):
    return hierarchy_of_rows(dataset.regions, RuleTally({"regions": "regions"}))


def test_census_like_dataset_has_the_sizes_of_the_paper() -> None:
    dataset = census_like()
    assert regions_of(dataset).n_regions == (1, 52, 3144)
    assert dataset.sizes["count"].sum() == 117_630_445
    assert 1000 * 0.95 < dataset.sizes["size"].max() <= 1000
    people = (dataset.sizes["size"] * dataset.sizes["count"]).sum()
    assert 290e6 < people < 330e6
    by_size = dataset.sizes.groupby("size")["count"].sum()
    assert 0.40 < by_size[7] / by_size[6] < 0.44
    assert 0.40 < by_size[9] / by_size[8] < 0.46


def test_taxi_like_dataset_has_the_sizes_of_the_paper() -> None:
    dataset = taxi_like()
    assert regions_of(dataset).n_regions == (1, 6, 263)
    assert dataset.sizes["count"].sum() == 13_282
    trips = (dataset.sizes["size"] * dataset.sizes["count"]).sum()
    assert 23e6 < trips < 26e6
    assert dataset.sizes["size"].max() <= 13_282


def test_seeds_repeat_and_differ() -> None:
    small = {"groups": 2000, "counties": 20, "states": 4, "largest": 50}
    one, two, other = (census_like(**small, seed=seed) for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(one.sizes, two.sizes)
    assert not one.sizes.equals(other.sizes)


def test_written_datasets_are_accepted(tmp_path: Path) -> None:
    dataset = census_like(groups=2000, counties=20, states=4, largest=50)
    file = write_dataset(tmp_path, dataset)
    settings = load_settings(GroupSizesSettings, file, presets=tmp_path)
    assert check_groups(settings).accepted().counts.sum() == 2000

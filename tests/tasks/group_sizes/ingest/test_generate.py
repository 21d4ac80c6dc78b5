"""Generated datasets have the sizes that they promise."""

from __future__ import annotations

import numpy as np
import pytest
from spineflow.tasks.group_sizes.ingest.generate import (
    OUTLIERS,
    RATIO,
    SMALLEST_OUTLIER,
    census_like,
    taxi_like,
)
from spineflow.tasks.group_sizes.ingest.regions import hierarchy_of_rows
from spineflow.tasks.tables.findings import RuleTally


def regions_of(dataset):
    return hierarchy_of_rows(dataset.regions, RuleTally({"regions": "regions"}))


@pytest.fixture(scope="module")
def census():
    return census_like()


def test_census_like_dataset_has_the_sizes_of_the_paper(census) -> None:
    assert regions_of(census).n_regions == (1, 52, 3144)
    assert census.sizes["count"].sum() == 117_630_445
    assert 1000 * 0.95 < census.sizes["size"].max() <= 1000
    # The paper counts 305,276,358 individuals.
    people = (census.sizes["size"] * census.sizes["count"]).sum()
    assert people == pytest.approx(305_276_358, rel=0.01)


def test_census_like_dataset_is_the_papers_construction(census) -> None:
    by_size = census.sizes.groupby("size")["count"].sum().reindex(range(1, 1001), fill_value=0)
    # One ratio of consecutive sizes from 6 on; from 10 on outliers may add to them.
    for size in range(7, 13):
        assert by_size[size] / by_size[size - 1] == pytest.approx(RATIO, rel=0.03)
    # At that ratio fewer than one group is expected from 26 on: what is there are outliers.
    far = by_size[26:]
    assert OUTLIERS - 8 <= far.sum() <= OUTLIERS
    assert np.array_equal(far[far > 0].index >= SMALLEST_OUTLIER, [True] * (far > 0).sum())
    outliers = np.repeat(far.index, far)
    assert abs(np.mean(outliers) - 505) < 3 * 286 / np.sqrt(len(outliers))


def test_a_share_of_group_quarters_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="a share from 0 to 1"):
        census_like(groups=100, counties=2, states=1, largest=9, group_quarters=1.5)


def test_taxi_like_dataset_has_the_sizes_of_the_paper() -> None:
    dataset = taxi_like()
    assert regions_of(dataset).n_regions == (1, 6, 263)
    assert dataset.sizes["count"].sum() == 13_282
    trips = (dataset.sizes["size"] * dataset.sizes["count"]).sum()
    assert 23e6 < trips < 26e6
    assert dataset.sizes["size"].max() <= 13_282

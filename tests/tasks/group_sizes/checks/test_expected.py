"""A release with exact numbers of groups, as the input of runs that expect its errors."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.group_sizes.ingest.read import check_groups
from spineflow.tasks.group_sizes.release import settings_of_release
from spineflow.tasks.products.acceptance import publish_release


@pytest.fixture(scope="module")
def finished(run_groups, tmp_path_factory: pytest.TempPathFactory):
    """A released run with the numbers of groups of every county exact."""
    folder = tmp_path_factory.mktemp("exact")
    file = write_dataset(folder, census_like(groups=300, counties=4, states=2, largest=15))
    text = file.read_text().replace("groups = true", 'groups = true\nlevel = "county"')
    file.write_text(text + "seed = 3\n")
    run, settings = run_groups(file, folder / "run")
    publish_release(run)
    return run, settings, folder


def true_groups(folder: Path) -> dict[str, int]:
    sizes = pd.read_parquet(folder / "sizes.parquet")
    return sizes.groupby("region")["count"].sum().to_dict()


def test_a_release_keeps_the_exact_numbers(finished) -> None:
    run, _, folder = finished
    rows = pd.read_parquet(run.release / "group_sizes.parquet")
    own = rows[rows["level"] == "county"].groupby("region")["count"].sum()
    assert own.to_dict() == true_groups(folder)


def test_a_release_is_the_input_of_runs_that_expect_its_errors(
    finished, tmp_path: Path, judged_once
) -> None:
    run, settings, folder = finished
    again = settings_of_release(run, settings, tmp_path)
    assert (again.invariants.groups, again.invariants.level) == (True, "county")
    assert again.mechanism.smallest_size == settings.smallest_size
    assert again.mechanism.largest_size == settings.mechanism.largest_size
    assert not again.input.confidential
    accepted = check_groups(again).accepted()
    assert accepted.hierarchy.names == ("nation", "state", "county")
    regions = accepted.hierarchy.levels[-1].codes.tolist()
    numbers = accepted.counts.sum(axis=1).tolist()
    assert dict(zip(regions, numbers, strict=True)) == true_groups(folder)

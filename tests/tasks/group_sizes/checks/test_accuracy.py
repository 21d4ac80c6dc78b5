"""Errors are measured in confidence; reports show them for public data alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
from spineflow.tasks.group_sizes.ingest.generate import census_like, write_dataset
from spineflow.tasks.group_sizes.measurement import plan_of
from spineflow.tasks.group_sizes.product import GROUP_SIZES
from spineflow.tasks.group_sizes.release import report, write_accuracy
from spineflow.tasks.products import acceptance
from spineflow.tasks.products.comparison import read_errors
from spineflow.tasks.runs.errors import CheckFailed


@pytest.fixture(scope="module")
def released(run_groups, tmp_path_factory):
    folder = tmp_path_factory.mktemp("groups")
    dataset = census_like(groups=5000, counties=12, states=4, largest=30)
    run, settings = run_groups(write_dataset(folder, dataset), folder / "run")
    GROUP_SIZES.check_run(run, settings)
    acceptance.publish_release(run)
    return run, settings, dataset


def test_error_is_the_distance_to_the_truth(released) -> None:
    run, settings, dataset = released
    write_accuracy(run, settings)
    accuracy = read_errors(run)
    sizes = pd.read_parquet(run.release / "group_sizes.parquet")
    county = sizes[sizes["level"] == "county"].set_index(["region", "size"])["count"]
    truth = dataset.sizes.set_index(["region", "size"])["count"]
    error = county.sub(truth, fill_value=0).abs().groupby("size").sum()
    found = accuracy[accuracy["level"] == "county"].set_index("size")
    assert (found["absolute_error"] == error).all()
    assert (found["groups"] == truth.groupby("size").sum().reindex(found.index).fillna(0)).all()
    assert set(found["regions"]) == {12}


@pytest.mark.parametrize(
    ("line", "stamp"),
    [
        ("infinite = true", "noise was switched off"),
        ("seed = 4", "noise can be repeated"),
        ('[mechanism]\nname = "chain_dp"\ncalibration = "published"', "published scale"),
    ],
)
def test_runs_that_are_not_private_are_stamped(
    run_groups, tmp_path: Path, line: str, stamp: str
) -> None:
    file = write_dataset(tmp_path, census_like(groups=500, counties=6, states=2, largest=10))
    text = file.read_text()
    if line.startswith("["):
        text = text.replace("[mechanism]", line)
    else:
        text += f"{line}\n"
    file.write_text(text)
    run, settings = run_groups(file, tmp_path / "run")
    assert not settings.is_private
    GROUP_SIZES.check_run(run, settings)
    acceptance.publish_release(run)
    document = report(run, settings, plan_of(settings, run), None)
    assert document.stamp.startswith("NOT PRIVATE")
    assert stamp in document.stamp
    assert not (tmp_path / "ledger.db").exists()
    assert (run.release / "group_sizes.csv").read_text().startswith("# NOT PRIVATE\n")


def test_a_check_that_fails_withholds_the_release(run_groups, tmp_path: Path) -> None:
    file = write_dataset(tmp_path, census_like(groups=500, counties=6, states=2, largest=10))
    run, settings = run_groups(file, tmp_path / "run")
    shutil.copy(
        run.unchecked_release / "group_totals.csv", run.unchecked_release / "group_sizes.csv"
    )
    with pytest.raises(CheckFailed, match="group_sizes.csv does not have its layout's columns"):
        GROUP_SIZES.check_run(run, settings)
    assert not run.release.exists()

"""Errors against the truth, group by group; they stay in the confidential folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.detailed_groups.ingest.counts import GroupCounts
from spineflow.tasks.detailed_groups.ingest.ingest import truth_files
from spineflow.tasks.detailed_groups.measurement import ShardGroups
from spineflow.tasks.detailed_groups.postprocess import MEASURED, postprocess, stages_of, suppress
from spineflow.tasks.detailed_groups.release.accuracy import level_errors, write_accuracy
from spineflow.tasks.detailed_groups.workload.tabulations import SEX_BY_AGE
from spineflow.tasks.products.comparison import read_errors
from spineflow.tasks.runs.directory import RunDirectory


def finished(measured_groups, folder: Path, *overrides: str):
    run, settings = measured_groups(*overrides)
    shutil.copytree(run.root, folder)
    run = RunDirectory(folder)
    for region_pass in ("us", "pr"):
        for stage in stages_of(settings):
            postprocess(run, settings, region_pass, stage)
    return run, settings


def test_without_noise_only_suppression_errs(measured_groups, tmp_path: Path) -> None:
    run, settings = finished(measured_groups, tmp_path / "run", "privacy.infinite=true")
    assert all(path.exists() for path in truth_files(run))
    write_accuracy(run, settings)
    found = read_errors(run)
    assert (run.confidential / "accuracy.parquet").exists()
    assert not found[["mean_absolute_error", "mean_absolute_cell_error"]].fillna(0).any(axis=None)
    assert (found["somebody_suppressed"] == 0).all()
    assert found["groups"].sum() == measured_rows(run)
    sub_state = ~found["region_type"].str.contains("STATE|USA")
    assert (found.loc[sub_state, "nobody_shown"] == 0).all()


def measured_rows(run: RunDirectory) -> int:
    folder = run.root / "measurements" / "detailed_groups"
    return sum(pq.read_metadata(path).num_rows for path in folder.rglob("*.parquet"))


def test_errors_of_a_small_level() -> None:
    """Two regions with two iterations, written out."""
    cells = [4, 0, 0, 0, 3, 0, 0, 0]
    columns = {
        "region_type": ["TRACT"] * 4,
        "region_id": ["a", "a", "b", "b"],
        "iteration_code": ["1001", "1002"] * 2,
        "table": [0, 1, 0, 0],
        "total_only": [False] * 4,
        "value": [[9], cells, [1], [6]],
        "variance": [1.0] * 4,
    }
    arrays = [pa.array(columns[name]) for name in MEASURED.names]
    coded = [
        array.dictionary_encode() if pa.types.is_dictionary(field.type) else array.cast(field.type)
        for array, field in zip(arrays, MEASURED, strict=True)
    ]
    groups = suppress(pa.table(coded, schema=MEASURED), 2)
    truth = GroupCounts(
        region=np.array([0, 0, 0, 1]),
        iteration=np.array([0, 1, 1, 0]),
        cell=np.array([0, 0, 23, 45]),
        count=np.array([12, 5, 3, 4]),
    )
    order, none = np.array([2, 0, 3, 1]), np.zeros(2, dtype=bool)
    rows = {
        row["table"]: row
        for row in level_errors(
            groups.take(order), order, ShardGroups(0, 2, none, truth), SEX_BY_AGE
        )
    }
    total = rows["T01001"]
    assert (total["groups"], total["shown"]) == (3, 2)
    assert total["mean_error"] == pytest.approx(((9 - 12) + (6 - 0)) / 2)
    assert total["mean_absolute_error"] == total["mean_absolute_cell_error"] == 4.5
    assert (total["somebody_suppressed"], total["mean_size_suppressed"]) == (1, 4.0)
    assert total["nobody_shown"] == 1
    ages = rows["T02001"]
    assert (ages["groups"], ages["shown"], ages["mean_error"]) == (1, 1, -1.0)
    assert ages["mean_absolute_cell_error"] == 1 / 8
    assert pd.isna(rows["T02003"]["mean_error"])

"""Released tables hold every size of every region."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from spineflow.geography.hierarchy import AreaLevel
from spineflow.tasks.group_sizes.ingest.regions import RegionHierarchy
from spineflow.tasks.group_sizes.release.tables import write_tables


def hierarchy(*names: str) -> RegionHierarchy:
    root = AreaLevel("city", np.array(["all"], dtype=object), np.array([-1]))
    zones = AreaLevel("zone", np.array(names, dtype=object), np.zeros(len(names), dtype=int))
    return RegionHierarchy((root, zones))


@pytest.mark.parametrize("names", [("a", "b"), ("a, north", 'b "south"')])
def test_both_formats_hold_all_rows(tmp_path: Path, names: tuple[str, str]) -> None:
    levels = [np.array([[3, 0, 2]]), np.array([[1, 0, 2], [2, 0, 0]])]
    write_tables(tmp_path, hierarchy(*names), levels, 0)
    one, two = names
    sizes = pd.read_parquet(tmp_path / "group_sizes.parquet")
    assert sizes.values.tolist() == [
        ["city", "all", 0, 3],
        ["city", "all", 1, 0],
        ["city", "all", 2, 2],
        ["zone", one, 0, 1],
        ["zone", one, 1, 0],
        ["zone", one, 2, 2],
        ["zone", two, 0, 2],
        ["zone", two, 1, 0],
        ["zone", two, 2, 0],
    ]
    totals = pd.read_parquet(tmp_path / "group_totals.parquet")
    assert totals.values.tolist() == [["city", "all", 5], ["zone", one, 3], ["zone", two, 2]]
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "group_sizes.csv"), sizes)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "group_totals.csv"), totals)


def test_a_run_that_is_not_private_is_stamped(tmp_path: Path) -> None:
    levels = [np.array([[1]]), np.array([[1]])]
    write_tables(tmp_path, hierarchy("a"), levels, 1, is_private=False)
    for name in ("group_sizes", "group_totals"):
        assert (tmp_path / f"{name}.csv").read_text().startswith("# NOT PRIVATE\nlevel,region,")
        assert pq.read_schema(tmp_path / f"{name}.parquet").metadata[b"spineflow"] == b"NOT PRIVATE"

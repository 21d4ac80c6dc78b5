"""Small files of a run are read once while they stand unchanged."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.validation import run_files
from spineflow.validation.run_files import UnusableRunFile, read_table, small_file


def written(path: Path, numbers: list[int]) -> Path:
    pq.write_table(pa.table({"number": numbers, "text": list(map(str, numbers))}), path)
    return path


def test_a_small_file_is_kept_until_it_is_another(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", [1, 2])
    first = small_file(path, ["number"])
    assert small_file(path, ["number"]) is first
    assert small_file(path, ["text"]).table.column_names == ["text"]
    # Another file in its place, as a run puts it there.
    written(tmp_path / "b.parquet", [1, 3]).replace(path)
    assert small_file(path, ["number"]).table["number"].to_pylist() == [1, 3]
    with pytest.raises(UnusableRunFile, match="no column other"):
        small_file(path, ["other"])
    path.unlink()
    with pytest.raises(UnusableRunFile, match="is missing"):
        read_table(path, ["number"])


def test_no_more_is_kept_than_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = run_files._Kept()
    monkeypatch.setattr(run_files, "_kept", kept)
    monkeypatch.setattr(run_files, "MOST_KEPT", 3)
    paths = [written(tmp_path / f"{number}.parquet", [number]) for number in range(5)]
    read = [small_file(path, ["number"]) for path in paths]
    for path, one in list(zip(paths, read, strict=True))[2:]:
        assert small_file(path, ["number"]) is one
    assert small_file(paths[0], ["number"]) is not read[0]
    monkeypatch.setattr(run_files, "KEPT_BYTES", 2 * read[0].n_bytes)
    small_file(written(tmp_path / "last.parquet", [9]), ["number"])
    assert len(kept._files) == 2 and kept._n_bytes == 2 * read[0].n_bytes
    monkeypatch.setattr(run_files, "SMALL_FILE", 10)
    assert small_file(paths[0], ["number"]) is None
    assert read_table(paths[0], ["number"])["number"].to_pylist() == [0]


def test_row_groups_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "groups.parquet"
    pq.write_table(pa.table({"number": range(10)}), path, row_group_size=4)
    small = small_file(path, ["number"])
    found = [b.column(0).to_pylist() for b in small.row_groups([0, 2], rows_per_batch=3)]
    assert found == [[0, 1, 2], [3], [8, 9]]

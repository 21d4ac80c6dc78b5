"""Rows of tables state by state."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.validation.run_files import UnusableRunFile
from spineflow.validation.topdown import table_rows
from spineflow.validation.topdown.table_rows import TableRows, gather_batches, have_same_rows


def table_file(folder: Path, states: list[str], row_group_size: int) -> Path:
    path = folder / "table.parquet"
    table = pa.table({"STATE": states, "number": range(len(states))})
    pq.write_table(table, path, row_group_size=row_group_size)
    return path


@pytest.mark.parametrize("row_group_size", [1, 4, 1000])
def test_every_state_has_its_rows_whatever_is_skipped(tmp_path, monkeypatch, row_group_size):
    monkeypatch.setattr(table_rows, "WIDE_ROWS_PER_BATCH", 3)
    states = ["01"] * 5 + ["02"] + ["04"] * 11 + ["05"] * 2
    path = table_file(tmp_path, states, row_group_size)
    assert TableRows(path).ranges == {
        "01": range(5),
        "02": range(5, 6),
        "04": range(6, 17),
        "05": range(17, 19),
    }
    for wanted in (["01", "02", "04", "05"], ["02", "05"], ["04"], ["05", "01"], ["03", "05"]):
        with TableRows(path, ["number"]) as rows:
            for state in wanted:
                found = [n for batch in rows.of_state(state) for n in batch[0].to_pylist()]
                assert found == [n for n, one in enumerate(states) if one == state]


def test_states_that_do_not_stand_together_are_refused(tmp_path):
    with pytest.raises(UnusableRunFile, match="not consecutive"):
        TableRows(table_file(tmp_path, ["01", "02", "01"], 2))


def test_batches_are_gathered_and_compared_wherever_they_are_cut():
    table = pa.table({"number": range(20_000)})
    small = table.to_batches(max_chunksize=7)
    assert pa.Table.from_batches(gather_batches(small)) == table
    assert len(list(gather_batches(small))) < 4
    assert have_same_rows(iter(small), iter(table.to_batches(max_chunksize=11)))
    shorter = table.slice(0, 19_999).to_batches(max_chunksize=11)
    assert not have_same_rows(iter(small), iter(shorter))
    assert not have_same_rows(iter(shorter), iter(small))
    changed = pa.table({"number": [*range(19_999), 0]}).to_batches()
    assert not have_same_rows(iter(small), iter(changed))

"""Rows of tables state by state, and rows of microdata counted for the tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.validation.run_files import UnusableRunFile
from spineflow.validation.topdown import table_rows
from spineflow.validation.topdown.row_counts import Variable, count_rows
from spineflow.validation.topdown.table_rows import (
    TableRows,
    gathered,
    have_same_rows,
)

PLACE = {"ST": (0, 2), "COU": (2, 5), "BLK": (5, 16)}


def table_file(folder: Path, states: list[str], row_group_size: int) -> Path:
    path = folder / "table.parquet"
    table = pa.table({"STATE": states, "number": range(len(states))})
    pq.write_table(table, path, row_group_size=row_group_size)
    return path


@pytest.mark.parametrize("row_group_size", [1, 4, 1000])
def test_every_state_has_its_rows_whatever_is_skipped(tmp_path, monkeypatch, row_group_size):
    monkeypatch.setattr(table_rows, "ROWS_PER_BATCH", 3)
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
    with pytest.raises(UnusableRunFile, match="do not stand together"):
        TableRows(table_file(tmp_path, ["01", "02", "01"], 2))


def test_batches_are_gathered_and_compared_wherever_they_are_cut():
    table = pa.table({"number": range(20_000)})
    small = table.to_batches(max_chunksize=7)
    assert pa.Table.from_batches(gathered(small)) == table
    assert len(list(gathered(small))) < 4
    assert have_same_rows(iter(small), iter(table.to_batches(max_chunksize=11)))
    shorter = table.slice(0, 19_999).to_batches(max_chunksize=11)
    assert not have_same_rows(iter(small), iter(shorter))
    assert not have_same_rows(iter(shorter), iter(small))
    changed = pa.table({"number": [*range(19_999), 0]}).to_batches()
    assert not have_same_rows(iter(small), iter(changed))


@pytest.fixture
def microdata(tmp_path) -> tuple[Path, pd.DataFrame, list[str]]:
    rng = np.random.default_rng(4)
    blocks = [f"{s:02d}{c:03d}{b:011d}" for s in (1, 2, 4) for c in (1, 3) for b in range(0, 30, 2)]
    geocode = np.sort(rng.choice(blocks, 4000))
    frame = pd.DataFrame(
        {name: [code[start:stop] for code in geocode] for name, (start, stop) in PLACE.items()}
    )
    frame["RACE"] = rng.choice(["01", "02", "10"], len(frame))
    frame["AGE"] = rng.choice(["1", "2"], len(frame))
    path = tmp_path / "mdf.parquet"
    pq.write_table(pa.Table.from_pandas(frame), path, row_group_size=500)
    return path, frame, blocks


def variable(number: int, **codes: set[str]) -> Variable:
    return Variable(f"V{number}", "persons", {n: frozenset(c) for n, c in codes.items()})


@pytest.mark.slow
def test_rows_are_counted_by_block_and_variable(microdata):
    path, frame, blocks = microdata
    variables = {
        2: variable(2),
        3: variable(3, RACE={"01", "10"}),
        5: variable(5, RACE={"02"}, AGE={"2"}),
        6: variable(6, AGE=set()),
    }
    for states in (["01"], ["02", "04"], ["01", "02", "04"]):
        own = np.array([block for block in blocks if block[:2] in states])[::-1]
        counts = np.zeros((len(own), 8), dtype=np.int64)
        counted = count_rows(path, PLACE, variables, own)
        for start in range(0, len(own), 7):
            here = slice(start, min(start + 7, len(own)))
            counted.add_to(counts[here], here)
        geocode = frame["ST"] + frame["COU"] + frame["BLK"]
        for row, block in enumerate(own):
            rows = frame[geocode == block]
            for number, one in variables.items():
                is_told = np.ones(len(rows), dtype=bool)
                for name, codes in one.codes.items():
                    is_told &= rows[name].isin(codes)
                assert counts[row, number] == is_told.sum()
        assert not counts[:, [0, 1, 4, 7]].any()


def test_blocks_and_codes_that_are_not_known_are_refused(microdata):
    path, frame, blocks = microdata
    seen = (frame["ST"] + frame["COU"] + frame["BLK"]).iloc[0]
    others = np.array([block for block in blocks if block != seen])
    with pytest.raises(UnusableRunFile, match="does not have"):
        count_rows(path, PLACE, {0: variable(0)}, others)
    frame.loc[3, "COU"] = "1"
    pq.write_table(pa.Table.from_pandas(frame), path)
    with pytest.raises(UnusableRunFile, match="does not have"):
        count_rows(path, PLACE, {0: variable(0)}, np.array(blocks))

"""Microdata are seen to be right only where every byte and every row is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.census.cef_2020 import PERSONS
from spineflow.tasks.topdown.checks.expectations import cells_of, layout_facts
from spineflow.tasks.topdown.release.microdata import write_microdata
from spineflow.validation.run_files import UNUSABLE, UnusableRunFile
from spineflow.validation.topdown.block_microdata import Microdata, NotSeenRight
from spineflow.validation.topdown.layout import Layout, LayoutColumn
from spineflow.validation.topdown.released_rows import are_all_rows, see_share

REFUSED = (NotSeenRight, UnusableRunFile, *UNUSABLE)


def seen(run, universe: str, n: int = 1, blocks_per_part: int = 2) -> list[tuple[int, int]]:
    return [
        rows
        for i in range(n)
        for rows in see_share(
            run.path,
            run.path / "release",
            run.expected[universe],
            run.facilities,
            share=(i, n),
            is_private=run.is_private,
            blocks_per_part=blocks_per_part,
        )
    ]


def is_right(run, universe: str, n: int = 1) -> bool:
    try:
        return are_all_rows(seen(run, universe, n), run.released(universe, "parquet"))
    except REFUSED:
        return False


@pytest.mark.parametrize("universe", ["persons", "units"])
@pytest.mark.parametrize("name", ["noisy", "exact"])
def test_shares_have_every_row_once(right_runs, universe, name):
    run = right_runs[name]
    n_rows = pq.read_metadata(run.released(universe, "parquet")).num_rows
    for n, blocks_per_part in ((1, 100), (1, 1), (2, 2), (3, 1), (9, 2)):
        shares = seen(run, universe, n, blocks_per_part)
        assert shares[0][0] == 0 and shares[-1][1] == n_rows
        assert [stop for _, stop in shares[:-1]] == [start for start, _ in shares[1:]]
        assert are_all_rows(shares, run.released(universe, "parquet"))
        if len(shares) > 1:
            assert not are_all_rows(shares[1:], run.released(universe, "parquet"))
            assert not are_all_rows(shares[:-1], run.released(universe, "parquet"))
            assert not are_all_rows(shares[::-1], run.released(universe, "parquet"))
    assert not are_all_rows([], run.released(universe, "parquet"))
    assert not are_all_rows([None], run.released(universe, "parquet"))


@pytest.mark.slow
@pytest.mark.parametrize("universe", ["persons", "units"])
def test_no_byte_of_the_text_can_be_another(run, universe):
    path = run.released(universe, "csv")
    right = path.read_bytes()
    rng = np.random.default_rng(5)
    for place in rng.choice(len(right), 60, replace=False).tolist():
        other = bytes([(right[place] + 1 + int(rng.integers(255))) % 256])
        path.write_bytes(right[:place] + other + right[place + 1 :])
        assert is_right(run, universe, 2) == (other == right[place : place + 1])
    for spoiled in (right[:-1], right + b"\n", right[:-30], right[50:], b""):
        path.write_bytes(spoiled)
        assert not is_right(run, universe, 2)
    path.write_bytes(right)
    assert is_right(run, universe, 2)


@pytest.mark.slow
@pytest.mark.parametrize("universe", ["persons", "units"])
def test_no_code_of_a_row_can_be_another(run, universe):
    """Both files are changed alike, so that text and rows agree."""
    path = run.released(universe, "parquet")
    right, text = pq.read_table(path), run.released(universe, "csv").read_bytes()
    rng = np.random.default_rng(6)
    for name in right.column_names:
        if name == "EPNUM":
            continue
        for row in rng.choice(right.num_rows, 6, replace=False).tolist():
            codes = right[name].to_pylist()
            codes[row] = codes[row][:-1] + ("7" if codes[row][-1] != "7" else "8")
            place = right.column_names.index(name)
            pq.write_table(right.set_column(place, name, pa.array(codes)), path)
            lines = text.splitlines(keepends=True)
            fields = lines[row + 1].rstrip(b"\n").split(b"|")
            fields[place] = codes[row].encode()
            lines[row + 1] = b"|".join(fields) + b"\n"
            run.released(universe, "csv").write_bytes(b"".join(lines))
            assert not is_right(run, universe), (name, row)


@pytest.mark.slow
def test_lines_begin_where_their_numbers_say(tmp_path: Path):
    """Numbers of one, two, three and four digits, in one row group and in many."""
    geocode = [f"{44001010300 + n:011d}{1000 + n:05d}" for n in range(4)]
    estimates = pa.table(
        {"block_geocode": geocode, "cell": [3, 5, 8, 9], "count": [9, 90, 901, 1200]}
    )
    for rows_per_batch in (7, 10_000):
        files = write_microdata(estimates, PERSONS, tmp_path, rows_per_batch=rows_per_batch)
        told = Microdata(
            files.parquet, files.csv, layout_facts(PERSONS), cells_of(PERSONS), is_private=True
        )
        text = files.csv.read_bytes()
        begins = len(told.header)
        for row, line in enumerate(text[begins:].splitlines(keepends=True)):
            assert told.bytes_before(row) == begins
            begins += len(line)
        assert told.bytes_before(2200) == begins == len(text)


def test_codes_of_several_widths_are_left_to_the_other_check():
    column = LayoutColumn("AGE", attribute="age", codes=("9", "10"))
    files = Microdata(Path(), Path(), Layout((column,)), cells_of(PERSONS), is_private=True)
    with pytest.raises(NotSeenRight, match="several widths"):
        files.bytes_before(0)

"""The check of microdata, on schemas other than the redistricting product's."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.census.cef_2020 import UNITS, cef_schema
from spineflow.tasks.census.schema import Schema
from spineflow.tasks.topdown.checks.expectations import cells_of, layout_facts
from spineflow.tasks.topdown.release.microdata import write_microdata
from spineflow.validation.outcome import Failures
from spineflow.validation.topdown.conservation import LevelEstimates
from spineflow.validation.topdown.microdata import Microdata, check_microdata
from spineflow.validation.topdown.run_checks import MICRODATA, CheckedRun, check_rows
from spineflow.validation.topdown.run_files import RunSpine, SpineLevel

from tests.block_estimates import counts_of_table

BLOCKS = ["4400103010011000", "4400103010011001"]


def persons_of(attributes: tuple[str, ...]) -> Schema:
    """A schema of persons, with attributes of other universes, too."""
    if attributes == ("occupancy",):
        return Schema("persons", attributes, UNITS.levels_of)
    return cef_schema("persons", attributes)


@pytest.fixture
def spine() -> RunSpine:
    """A spine whose Block geounits stand in another order than its blocks."""
    level = SpineLevel(
        name="Block",
        geocode=pa.array(["04400" + block for block in reversed(BLOCKS)]),
        parent=np.array([-1, -1]),
        shares=(Fraction(1),),
        share_code=np.zeros(2, dtype=np.int32),
        bypassed=np.zeros(2, dtype=bool),
        n_blocks=np.ones(2, dtype=np.int64),
    )
    return RunSpine((level,), pa.array(BLOCKS), (np.array([1, 0]),))


def failures_of(folder, spine, schema, change=lambda frame: frame, blocks_per_part: int = 2) -> int:
    generator = np.random.default_rng(7)
    cell = generator.choice(schema.n_cells, size=(2, 20 if schema.n_cells > 20 else 1))
    cell = [np.unique(row) for row in cell]
    block = np.repeat([0, 1], [len(row) for row in cell])
    count = generator.integers(1, 4, block.size)
    table = pa.table(
        {
            "block_geocode": [BLOCKS[b] for b in block],
            "cell": np.concatenate(cell),
            "count": count,
        }
    )
    counts = counts_of_table(table, schema.n_cells)
    files = write_microdata([counts], schema, folder)
    frame = change(pq.read_table(files.parquet).to_pandas())
    pq.write_table(pa.table(frame.to_dict(orient="list")), files.parquet)
    frame.to_csv(files.csv, sep="|", index=False)

    key = block * schema.n_cells + np.concatenate(cell)

    def estimates_of(blocks: SpineLevel) -> LevelEstimates:
        first = BLOCKS.index(blocks.geocode[0].as_py()[-16:])
        here = (block >= first) & (block < first + blocks.n)
        return LevelEstimates(
            schema.n_cells, key[here] - first * schema.n_cells, count[here].copy()
        )

    failures = Failures()
    files = Microdata(
        files.parquet.with_suffix(""), layout_facts(schema), cells_of(schema), is_private=True
    )
    for _ in check_microdata(files, spine, estimates_of, failures, areas_per_part=blocks_per_part):
        pass
    return failures.count


SCHEMAS = [
    ("hhgq", "votingage", "hispanic", "cenrace"),
    ("sex", "age"),
    ("age", "hispanic", "hhgq"),
    ("votingage", "age", "cenrace"),
    ("occupancy",),
]


@pytest.mark.parametrize("attributes", SCHEMAS)
def test_right_microdata_pass(tmp_path, spine, attributes):
    assert failures_of(tmp_path, spine, persons_of(attributes)) == 0


@pytest.mark.parametrize("attributes", SCHEMAS)
def test_every_column_is_checked(tmp_path, spine, attributes):
    """A changed code in any column is seen."""
    schema = persons_of(attributes)
    failures_of(tmp_path, spine, schema)
    for name in pq.read_schema(tmp_path / "mdf_persons.parquet").names:

        def change(frame: pd.DataFrame, name=name) -> pd.DataFrame:
            other = {"1": "2", "0": "1"}.get(str(frame.loc[0, name]), "1")
            frame.loc[0, name] = int(other) if name == "EPNUM" else other
            return frame

        assert failures_of(tmp_path, spine, schema, change) > 0, name


def is_right(run, universe: str) -> bool:
    checked = CheckedRun(run.path, run.expected, run.path / "release", run.areas, run.is_private, 2)
    found = check_rows(checked, universe)
    return not found.failures[MICRODATA].count and not found.unusable.count


@pytest.mark.slow
@pytest.mark.parametrize("universe", ["persons", "units"])
def test_no_byte_of_the_text_can_be_another(run, universe):
    path = run.released(universe, "csv")
    right = path.read_bytes()
    rng = np.random.default_rng(5)
    for place in rng.choice(len(right), 60, replace=False).tolist():
        other = bytes([(right[place] + 1 + int(rng.integers(255))) % 256])
        if b"\r" in (other, right[place : place + 1]):
            continue  # It ends a line, too.
        path.write_bytes(right[:place] + other + right[place + 1 :])
        assert is_right(run, universe) == (other == right[place : place + 1]), (place, other)
    for spoiled in (right[:-2], right + b"1\n", right[:-30], right[50:], b""):
        path.write_bytes(spoiled)
        assert not is_right(run, universe)
    path.write_bytes(right)
    assert is_right(run, universe)


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

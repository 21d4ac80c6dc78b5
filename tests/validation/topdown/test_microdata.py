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
from spineflow.validation.topdown.block_microdata import Microdata
from spineflow.validation.topdown.conservation import LevelEstimates
from spineflow.validation.topdown.microdata import check_microdata
from spineflow.validation.topdown.run_files import RunSpine, SpineLevel

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
    files = write_microdata(table, schema, folder)
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
    files = Microdata.of(folder, layout_facts(schema), cells_of(schema), is_private=True)
    check_microdata(
        files,
        spine,
        estimates_of,
        failures,
        blocks_per_part=blocks_per_part,
    )
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

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from spineflow.tasks.census.cef_2020 import CENSUS, PERSONS, UNITS
from spineflow.tasks.census.census import preset_census
from spineflow.tasks.census.microdata import count_microdata
from spineflow.tasks.census.queries import Schema
from spineflow.tasks.topdown.release import microdata
from spineflow.tasks.topdown.release.microdata import BlockCounts, write_microdata

from tests.block_estimates import counts_of_table
from tests.parquet_pages import mark_not_private

DHC = preset_census("dhc_persons_2020")
BLOCKS = ["4400103010011000", "4400103010021001", "4400302010011000", "7200302010011000"]


def estimates(*rows: tuple[str, int, int], n_cells: int = PERSONS.n_cells) -> list[BlockCounts]:
    table = pa.table(
        {
            "block_geocode": [row[0] for row in rows],
            "cell": [row[1] for row in rows],
            "count": [row[2] for row in rows],
        },
        schema=pa.schema({"block_geocode": pa.string(), "cell": pa.int64(), "count": pa.int64()}),
    )
    return [counts_of_table(table, n_cells, BLOCKS)]


def invariants(**facilities: list[int]) -> pd.DataFrame:
    frame = pd.DataFrame({"block_geocode": BLOCKS, "housing_units": 9})
    for kind in range(1, 8):
        frame[f"facilities_{kind}"] = facilities.get(f"type_{kind}", [0] * len(BLOCKS))
    return frame


def person_cell(hhgq: int, votingage: int, hispanic: int, cenrace: int) -> int:
    return ((hhgq * 2 + votingage) * 2 + hispanic) * 63 + cenrace - 1


def test_rows_of_persons(tmp_path):
    files = write_microdata(
        estimates(
            (BLOCKS[2], person_cell(3, 1, 0, 63), 1),
            (BLOCKS[0], person_cell(7, 1, 1, 2), 1),
            (BLOCKS[0], person_cell(0, 0, 0, 1), 2),
        ),
        PERSONS,
        tmp_path,
    )
    assert files.read_text() == (
        "SCHEMA_TYPE_CODE|SCHEMA_BUILD_ID|TABBLKST|TABBLKCOU|TABTRACTCE|TABBLKGRPCE|TABBLK|"
        "EPNUM|RTYPE|GQTYPE_PL|VOTING_AGE|CENHISP|CENRACE\n"
        "MPD|1.1.0|44|001|030100|1|1000|0|3|0|1|1|01\n"
        "MPD|1.1.0|44|001|030100|1|1000|1|3|0|1|1|01\n"
        "MPD|1.1.0|44|001|030100|1|1000|2|5|7|2|2|02\n"
        "MPD|1.1.0|44|003|020100|1|1000|3|5|3|2|1|63\n"
    )
    assert {path.name for path in tmp_path.iterdir()} == {
        "mdf_persons.csv",
        "mdf_persons.parquet",
    }


def test_rows_of_units(tmp_path):
    files = write_microdata(
        estimates((BLOCKS[1], 1, 2), (BLOCKS[1], 0, 1), (BLOCKS[0], 1, 1), n_cells=2),
        UNITS,
        tmp_path,
        invariants(type_1=[0, 1, 0, 0], type_7=[0, 1, 0, 1]),
    )
    assert files.read_text() == (
        "SCHEMA_TYPE_CODE|SCHEMA_BUILD_ID|TABBLKST|TABBLKCOU|TABTRACTCE|TABBLKGRPCE|TABBLK|"
        "RTYPE|HH_STATUS\n"
        "MUD|1.1.0|44|001|030100|1|1000|2|1\n"
        "MUD|1.1.0|44|001|030100|2|1001|2|2\n"
        "MUD|1.1.0|44|001|030100|2|1001|2|1\n"
        "MUD|1.1.0|44|001|030100|2|1001|2|1\n"
        "MUD|1.1.0|44|001|030100|2|1001|4|0\n"
        "MUD|1.1.0|44|001|030100|2|1001|4|0\n"
        "MUD|1.1.0|72|003|020100|1|1000|4|0\n"
    )


def same_content(text: Path) -> pd.DataFrame:
    """The Parquet file's rows, after comparing them with the text's."""
    table = pq.read_table(text.with_suffix(".parquet"))
    types = {f.name: int if f.type == pa.int64() else str for f in table.schema}
    frame = table.to_pandas()
    rows = pd.read_csv(text, sep="|", dtype=types, comment="#")
    pd.testing.assert_frame_equal(frame, rows, check_dtype=False)
    return frame


@pytest.mark.slow
@settings(deadline=None, max_examples=50)
@given(
    counts=st.dictionaries(
        st.tuples(st.sampled_from(BLOCKS), st.integers(0, 2015)), st.integers(1, 9), max_size=12
    ),
    rows_per_batch=st.integers(1, 20),
    seed=st.integers(0, 2**32 - 1),
)
def test_batches_do_not_matter_nor_does_the_order(tmp_path_factory, counts, rows_per_batch, seed):
    rows = [(block, cell, count) for (block, cell), count in counts.items()]
    folder = tmp_path_factory.mktemp("release")
    whole = write_microdata(estimates(*rows), PERSONS, folder)
    shuffled = [rows[i] for i in np.random.default_rng(seed).permutation(len(rows))]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(microdata, "ROWS_PER_BATCH", rows_per_batch)
        parts = write_microdata(estimates(*shuffled), PERSONS, folder / "parts")
    assert whole.read_bytes() == parts.read_bytes()
    frame = same_content(parts)
    assert len(frame) == sum(counts.values())
    assert frame["EPNUM"].to_list() == list(range(len(frame)))
    expected = [
        (block, cell) for (block, cell), count in sorted(counts.items()) for _ in range(count)
    ]
    code = frame[["TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK"]].sum(axis=1)
    cell = [
        person_cell(int(gq), int(age) - 1, int(hispanic) - 1, int(race))
        for gq, age, hispanic, race in zip(
            frame["GQTYPE_PL"],
            frame["VOTING_AGE"],
            frame["CENHISP"],
            frame["CENRACE"],
            strict=True,
        )
    ]
    assert list(zip(code, cell, strict=True)) == expected


def persons_of(attributes: tuple[str, ...]) -> Schema:
    """A schema of persons, with attributes of other universes, too."""
    if attributes == ("occupancy",):
        return Schema("persons", attributes, UNITS.levels_of)
    return CENSUS.schema("persons", attributes)


@pytest.mark.parametrize(
    ("attributes", "columns", "first", "last"),
    [
        (
            ("sex", "hhgq", "hispanic"),
            ["RTYPE", "GQTYPE_PL", "CENHISP", "QSEX"],
            ["3", "0", "1", "1"],
            ["5", "7", "2", "2"],
        ),
        (("age", "cenrace"), ["VOTING_AGE", "CENRACE", "QAGE"], ["1", "01", "0"],
         ["2", "63", "115"]),
        (("votingage", "age"), ["VOTING_AGE", "QAGE"], ["1", "0"], ["2", "115"]),
        (("occupancy",), ["OCCUPANCY"], ["0"], ["1"]),
    ],
)  # fmt: skip
def test_other_schemas_leave_out_and_append_columns(tmp_path, attributes, columns, first, last):
    schema = persons_of(attributes)
    rows = [(BLOCKS[0], 0, 1), (BLOCKS[0], schema.n_cells - 1, 1)]
    counts = estimates(*rows, n_cells=schema.n_cells)
    frame = same_content(write_microdata(counts, schema, tmp_path))
    assert list(frame.columns[8:]) == columns
    assert frame.iloc[0, 8:].to_list() == first
    assert frame.iloc[1, 8:].to_list() == last


@pytest.mark.parametrize("universe", ["persons", "units"])
def test_only_runs_that_are_not_private_are_stamped(tmp_path, universe):
    def write(folder: Path):
        if universe == "persons":
            counts = estimates((BLOCKS[0], 0, 2))
            return write_microdata(counts, PERSONS, folder)
        counts = estimates((BLOCKS[0], 0, 2), n_cells=2)
        return write_microdata(counts, UNITS, folder, invariants())

    private = write(tmp_path / "private")
    mark_not_private(tmp_path / "stamped")
    stamped = write(tmp_path / "stamped")
    assert not pq.read_schema(private.with_suffix(".parquet")).metadata
    of_stamped = pq.read_schema(stamped.with_suffix(".parquet")).metadata
    assert of_stamped == {b"spineflow": b"NOT PRIVATE"}
    assert stamped.read_text() == "# NOT PRIVATE\n" + private.read_text()
    pd.testing.assert_frame_equal(same_content(private), same_content(stamped))


def test_failed_writer_leaves_the_earlier_files(tmp_path, monkeypatch):
    files = write_microdata(estimates((BLOCKS[0], 0, 1)), PERSONS, tmp_path)
    before = files.read_bytes(), files.with_suffix(".parquet").read_bytes()

    def fail(*_):
        raise RuntimeError

    monkeypatch.setattr(microdata, "_batches", fail)
    with pytest.raises(RuntimeError):
        write_microdata(estimates((BLOCKS[0], 0, 2)), PERSONS, tmp_path)
    assert before == (files.read_bytes(), files.with_suffix(".parquet").read_bytes())
    assert len(list(tmp_path.iterdir())) == 2


def dhc_persons_in_microdata(folder: Path) -> tuple[Path, sparse.csr_array]:
    """Two thousand persons of all levels in the layout of the DHC, and their counts by block."""
    schema, rng = DHC.universes["persons"].schema, np.random.default_rng(7)
    where = rng.integers(0, len(BLOCKS), 2000), rng.integers(0, schema.n_cells, 2000)
    drawn = sparse.coo_array((np.ones(2000, dtype=np.int64), where), (len(BLOCKS), schema.n_cells))
    counts = sparse.csr_array(drawn)
    parts = [BlockCounts(pa.array(BLOCKS), counts)]
    return write_microdata(parts, schema, folder, census=DHC), counts


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_levels_that_several_columns_tell_together_are_counted_back(kind, tmp_path) -> None:
    """Of relationship and type of group quarters, no column alone tells the level."""
    files, counts = dhc_persons_in_microdata(tmp_path)
    found, schema = count_microdata(files.with_suffix(f".{kind}"), np.array(BLOCKS), "persons", DHC)
    assert schema == DHC.universes["persons"].schema
    assert (found != counts).nnz == 0


def test_columns_that_do_not_tell_levels_apart_are_refused(tmp_path) -> None:
    files, _ = dhc_persons_in_microdata(tmp_path)
    table = pq.read_table(files.with_suffix(".parquet")).drop_columns("LIVE_ALONE")
    pq.write_table(table, tmp_path / "fewer.parquet")
    with pytest.raises(ValueError, match="levels of relgq in RTYPE, GQTYPE, RELSHIP"):
        count_microdata(tmp_path / "fewer.parquet", np.array(BLOCKS), "persons", DHC)


def test_codes_that_do_not_go_together_are_refused(tmp_path) -> None:
    """A spouse in a nursing home."""
    files, _ = dhc_persons_in_microdata(tmp_path)
    table = pq.read_table(files.with_suffix(".parquet"))
    place = table.schema.get_field_index("RELSHIP")
    mixed = pa.array(["21"] * len(table)).cast(table.schema.types[place])
    pq.write_table(table.set_column(place, "RELSHIP", mixed), tmp_path / "mixed.parquet")
    with pytest.raises(ValueError, match="RTYPE with GQTYPE with RELSHIP with LIVE_ALONE"):
        count_microdata(tmp_path / "mixed.parquet", np.array(BLOCKS), "persons", DHC)

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from spineflow.tasks.runs.errors import InputRefused
from spineflow.tasks.topdown.release.tabulations.published import (
    PUBLISHED_PERSONS,
    PublishedBlocks,
    published_blocks,
    read_published,
    write_input_tables,
)

from tests.census_inputs import check_inputs
from tests.tabulated import write_legacy

SAMPLE = "pl94171_2018_prototype"


@pytest.fixture(scope="module")
def folder(exact, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("published")
    write_legacy(exact.tabulation, directory)
    return directory / "pl94171"


def copied(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


@pytest.mark.slow
def test_blocks_of_a_release_are_the_counts_it_was_made_from(exact, folder) -> None:
    blocks = published_blocks(read_published(folder))
    persons, units = (own.toarray() for own in exact.tabulation.counted.values())
    cube = persons.reshape(len(persons), 8, -1)
    assert (blocks.persons.toarray() == cube.sum(axis=1)).all()
    assert (blocks.hhgq == cube.sum(axis=2)).all()
    assert (blocks.occupancy == units).all()
    columns = ["block_geocode", "AIANNHCE", "COUSUBFP", "PLACEFP"]
    pd.testing.assert_frame_equal(
        blocks.geography[columns], exact.geography[columns], check_dtype=False
    )


def test_sample_release(shared: Path) -> None:
    release = read_published(shared / "data" / SAMPLE)
    assert len(release.header) == 606
    assert release.counts.loc[0, ["P0010001", "H0010001", "P0050001"]].tolist() == [
        614053,
        271073,
        15766,
    ]
    blocks = published_blocks(release)
    assert len(blocks.geography) == 569
    assert {"VTD", "SDUNI", "CBSA"} <= set(blocks.geography)
    tracts = release.counts[release.header["SUMLEV"] == "140"]
    assert blocks.persons.sum() == tracts["P0010001"].sum()
    assert blocks.occupancy[:, 1].sum() == tracts["H0010002"].sum()
    adults = PUBLISHED_PERSONS.levels("votingage") == 1
    assert blocks.persons[:, adults].sum() == tracts["P0030001"].sum()


@pytest.mark.slow
def test_input_tables_tabulate_to_the_published_counts(shared: Path, tmp_path: Path) -> None:
    blocks = published_blocks(read_published(shared / "data" / SAMPLE))
    tables = write_input_tables(blocks, tmp_path)
    result = check_inputs(
        persons=tables.persons, units=tables.units, geography=tables.geography
    ).accepted()
    cube = result.histograms["persons"].toarray().reshape(len(blocks.hhgq), 8, -1)
    assert (cube.sum(axis=1) == blocks.persons.toarray()).all()
    assert (cube.sum(axis=2) == blocks.hhgq).all()
    assert (result.histograms["units"].toarray() == blocks.occupancy).all()
    assert tables.n_units_occupied == tables.n_minors_moved == 0
    columns = list(blocks.geography)
    assert (result.geography[columns] == blocks.geography).all(axis=None)
    again = write_input_tables(blocks, tmp_path / "again")
    for name in ("persons", "units", "geography"):
        assert getattr(again, name).read_bytes() == getattr(tables, name).read_bytes()


def test_what_records_cannot_say_is_put_right_and_counted(tmp_path: Path) -> None:
    """Households without an occupied unit, and minors in a nursing facility."""
    persons = np.zeros((3, PUBLISHED_PERSONS.n_cells), dtype=np.int64)
    persons[0, 0] = persons[1, 0] = persons[2, 0] = 2
    hhgq = np.zeros((3, 8), dtype=np.int64)
    hhgq[[0, 1], 0], hhgq[2, 3] = 2, 2
    blocks = PublishedBlocks(
        pd.DataFrame({"block_geocode": [f"440010001001100{i}" for i in range(3)]}).assign(
            AIANNHCE="9999", COUSUBFP="00001", PLACEFP="99999"
        ),
        sparse.csr_array(persons),
        hhgq,
        np.array([[1, 0], [0, 0], [0, 0]]),
    )
    tables = write_input_tables(blocks, tmp_path)
    assert (tables.n_units_occupied, tables.n_minors_moved) == (2, 2)
    result = check_inputs(
        persons=tables.persons, units=tables.units, geography=tables.geography
    ).accepted()
    assert result.histograms["units"].toarray().tolist() == [[0, 1], [0, 1], [0, 0]]
    assert result.public["facilities_4"].tolist() == [0, 0, 1]


@pytest.mark.parametrize("part", ["geo", "00001", "00002", "00003"])
def test_missing_and_further_files_are_refused(folder, tmp_path: Path, part: str) -> None:
    place = copied(folder, tmp_path)
    file = next(path for path in place.iterdir() if part in path.name)
    shutil.copy(file, place / f"zz{file.name[2:]}")
    with pytest.raises(InputRefused, match=f"2 files named like ..{part}"):
        read_published(place)
    for path in list(place.iterdir()):
        if part in path.name:
            path.unlink()
    with pytest.raises(InputRefused, match="no file named"):
        read_published(place)
    with pytest.raises(InputRefused, match="is no folder"):
        read_published(place / "missing")


def test_contradicting_tables_and_missing_blocks_are_refused(folder, tmp_path: Path) -> None:
    release = read_published(folder)
    counts = release.counts.copy()
    block = release.header.index[release.header["SUMLEV"] == "750"][3]
    counts.loc[block, "P0040073"] += 1
    geocode = release.header.loc[block, "GEOCODE"]
    with pytest.raises(InputRefused, match=f"block {geocode[:11]}.{geocode[11:]} contradict"):
        published_blocks(type(release)(release.header, counts))
    no_blocks = release.header["SUMLEV"] != "750"
    with pytest.raises(InputRefused, match="has no blocks"):
        published_blocks(type(release)(release.header[no_blocks], release.counts[no_blocks]))

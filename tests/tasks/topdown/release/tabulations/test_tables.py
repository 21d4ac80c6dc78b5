from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from spineflow.tasks.census.cef_2020 import CENSUS, PERSONS, UNITS
from spineflow.tasks.census.microdata import count_microdata
from spineflow.tasks.topdown.release.tabulations.levels import (
    SUMMARY_LEVELS,
    entities_of,
    variable_matrix,
    variables_of,
)
from spineflow.tasks.topdown.release.tabulations.tables import table_files, write_tables

STEMS = [level.stem for level in SUMMARY_LEVELS.values()]


@pytest.fixture(scope="module")
def written(exact, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("tables")
    assert write_tables([exact.tabulation.tables()], directory) == table_files(directory, STEMS)
    return directory / "tables"


@pytest.fixture(scope="module")
def counted(exact, sql_tables) -> dict[str, pd.DataFrame]:
    return sql_tables(exact.inputs)


@pytest.mark.parametrize("stem", STEMS)
def test_tables_are_those_that_sql_counts_from_the_records(written, counted, stem: str) -> None:
    found = pq.read_table(written / f"{stem}.parquet").to_pandas().set_index("GEOCODE")
    expected = counted[stem]
    assert found.index.tolist() == expected.index.tolist()
    assert len(found) > 1 or stem in ("040_state", "280_aian_area")
    variables = [*variables_of(PERSONS), *variables_of(UNITS)]
    assert list(expected) == variables
    wrong = found[variables].to_numpy() != expected.to_numpy()
    assert not wrong.any(), np.array(variables)[wrong.any(axis=0)]


@pytest.mark.parametrize("stem", STEMS)
def test_text_and_parquet_hold_the_same(written, stem: str) -> None:
    table = pq.read_table(written / f"{stem}.parquet").to_pandas()
    codes = [name for name in table if not name.startswith(("P0", "H0"))]
    text = pd.read_csv(written / f"{stem}.csv", dtype=dict.fromkeys(codes, str))
    assert list(text) == list(table)
    assert (text.to_numpy() == table.to_numpy()).all()
    level = SUMMARY_LEVELS[stem[:3]]
    assert codes == ["SUMLEV", "GEOID", "GEOCODE", *level.parts]
    assert (table["GEOCODE"] == table[list(level.parts)].agg("".join, axis=1)).all()
    assert (table["GEOID"] == f"{level.code}0000US" + table["GEOCODE"]).all()


def test_ages_tell_who_is_of_voting_age() -> None:
    schema = CENSUS.schema("persons", ("age", "cenrace"))
    names = variables_of(schema)
    matrix = variable_matrix(schema)
    ages = schema.levels("age")
    assert ((matrix[:, names.index("P0030001")] == 1) == (ages >= 18)).all()


def test_combinations_of_races_go_by_size_then_by_race() -> None:
    labels = PERSONS.labels("cenrace")
    races = labels[:6]
    sizes = range(1, 7)
    combined = [" + ".join(chosen) for n in sizes for chosen in combinations(races, n)]
    assert list(labels) == combined
    counted = PERSONS.coarsening("number_of_races").groups
    assert [group + 1 for group in counted] == [label.count("+") + 1 for label in labels]


def test_persons_outside_the_geography_are_refused(exact) -> None:
    fewer = exact.geography["block_geocode"].to_numpy()[::2]
    with pytest.raises(ValueError, match="outside the geography"):
        count_microdata(exact.directory / "mdf_persons.parquet", fewer, "persons")


def test_blocks_whose_number_does_not_tell_the_block_group() -> None:
    geography = pd.DataFrame({"block_geocode": ["4400100010012001", "4400100010022001"]}).assign(
        COUSUBFP="00001", PLACEFP="99999", AIANNHCE="9999"
    )
    blocks = entities_of(geography, SUMMARY_LEVELS["750"])
    assert blocks.geocode.to_pylist() == ["4400100010012001", "4400100010022001"]
    assert len(entities_of(geography, SUMMARY_LEVELS["160"])) == 0

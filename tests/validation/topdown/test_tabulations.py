"""Tables that are wrong in any way fail their check."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from scipy import sparse
from spineflow.tasks.census.cef_2020 import PERSONS, UNITS, cef_schema
from spineflow.tasks.census.cef_tables import check_inputs
from spineflow.tasks.topdown.checks.tabulated import tabulated
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.release.microdata import write_microdata
from spineflow.tasks.topdown.release.tabulations.tables import write_tables
from spineflow.validation.outcome import Outcome
from spineflow.validation.topdown.table_rows import Tabulated
from spineflow.validation.topdown.tabulations import (
    check_files,
    check_states,
    no_failures,
    table_outcomes,
)

from tests.block_estimates import block_counts
from tests.tabulated import tabulate, write_legacy


@pytest.fixture(scope="module")
def right(tmp_path_factory) -> Tabulated:
    inputs, directory = tmp_path_factory.mktemp("inputs"), tmp_path_factory.mktemp("release")
    files = generate_county(inputs, persons=1000, seed=8, n_counties=2)
    result = check_inputs(
        persons=files.persons, units=files.units, geography=files.geography
    ).accepted()
    geocode = result.geography["block_geocode"]
    persons, units = (block_counts(geocode, result.histograms[n]) for n in ("persons", "units"))
    write_microdata([persons], PERSONS, directory)
    write_microdata([units], UNITS, directory, result.invariants)
    tabulation = tabulate(directory, result.geography, ("persons", "units"))
    write_tables([tabulation], directory)
    write_legacy(tabulation, directory)
    schemas = (PERSONS, UNITS)
    states = tuple(dict.fromkeys(result.geography["block_geocode"].str[:2]))
    return tabulated(
        directory, result.geography, schemas, is_private=True, states=states, has_group=False
    )


@pytest.fixture
def release(right: Tabulated, tmp_path: Path) -> Tabulated:
    """A copy that a test may spoil."""
    directory = Path(shutil.copytree(right.directory, tmp_path / "release"))
    return replace(right, directory=directory)


def check_tabulations(release: Tabulated, *, has_legacy: bool = True) -> list[Outcome]:
    """All that the pieces of the checks find of the tables together."""
    of_files, of_states = (no_failures(has_legacy=has_legacy) for _ in range(2))
    check_files(release, of_files)
    check_states(release, of_states)
    return table_outcomes(of_files, [of_states])


def failed(release: Tabulated) -> dict[str, str]:
    return {o.name: o.detail for o in check_tabulations(release) if not o.passed}


def rewrite(release: Tabulated, stem: str, edit) -> None:
    """Edit a table in both its formats."""
    path = release.directory / "tables" / f"{stem}.parquet"
    frame = pq.read_table(path).to_pandas()
    table = pa.Table.from_pandas(edit(frame), preserve_index=False).replace_schema_metadata(None)
    table = table.cast(
        pa.schema(
            [
                (f.name, pa.int64() if pa.types.is_integer(f.type) else pa.string())
                for f in table.schema
            ]
        )
    )
    pq.write_table(table, path)
    pyarrow.csv.write_csv(table, path.with_suffix(".csv"))


def plus_one(variable: str, row: int):
    def edit(frame: pd.DataFrame) -> pd.DataFrame:
        frame.loc[row, variable] += 1
        return frame

    return edit


def test_right_tables_pass(right: Tabulated) -> None:
    outcomes = check_tabulations(right)
    assert [outcome.passed for outcome in outcomes] == [True, True]
    assert [outcome.name for outcome in outcomes] == [
        "tables_count_the_microdata",
        "pl94171_repeats_the_tables",
    ]


@pytest.mark.parametrize(
    "stem, variable",
    [
        pytest.param("750_block", "P0010001", marks=pytest.mark.slow),
        pytest.param("150_block_group", "P0020002", marks=pytest.mark.slow),
        pytest.param("140_tract", "P0030071", marks=pytest.mark.slow),
        pytest.param("060_county_subdivision", "P0050010", marks=pytest.mark.slow),
        ("040_state", "H0010003"),
    ],
)
def test_a_wrong_count_is_found(release: Tabulated, stem: str, variable: str) -> None:
    rewrite(release, stem, plus_one(variable, 0))
    found = failed(release)
    assert variable in found["tables_count_the_microdata"]
    assert set(found) == {"tables_count_the_microdata", "pl94171_repeats_the_tables"}


def test_missing_and_further_entities_are_found(release: Tabulated) -> None:
    rewrite(release, "160_place", lambda frame: frame.iloc[1:])
    assert "entities of the geography" in failed(release)["tables_count_the_microdata"]


def test_missing_blocks_are_found(release: Tabulated) -> None:
    rewrite(release, "750_block", lambda frame: frame.iloc[:-1])
    assert "blocks of the geography" in failed(release)["tables_count_the_microdata"]


def test_missing_variables_and_files_are_found(release: Tabulated) -> None:
    rewrite(release, "140_tract", lambda frame: frame.drop(columns="P0010071"))
    assert "140_tract.parquet does not have the variables" in str(failed(release))
    rewrite(release, "140_tract", lambda frame: frame.drop(columns="GEOID"))
    assert "columns of geography" in str(failed(release))
    (release.directory / "tables" / "140_tract.csv").unlink()
    assert "140_tract of the release is missing" in str(failed(release))


def test_text_that_differs_is_found(release: Tabulated) -> None:
    path = release.directory / "tables" / "050_county.csv"
    lines = path.read_text().split("\n")
    lines[1] = lines[1][:-1] + str((int(lines[1][-1]) + 1) % 10)
    path.write_text("\n".join(lines))
    assert "050_county.csv and 050_county.parquet differ" in str(failed(release))


def test_stamps_are_due_exactly_where_a_run_is_not_private(release: Tabulated) -> None:
    is_not = replace(release, is_private=False)
    found = failed(is_not)
    assert "with the stamp" in found["tables_count_the_microdata"]
    assert "right name" in found["pl94171_repeats_the_tables"]


def spoil(release: Tabulated, part: str, edit) -> None:
    path = next(p for p in (release.directory / "pl94171").iterdir() if part in p.name)
    path.write_text("\n".join(edit(path.read_text().split("\n"))))


def replaced(line: int, field: int, text: str):
    def edit(lines: list[str]) -> list[str]:
        fields = lines[line].split("|")
        fields[field] = text
        return [*lines[:line], "|".join(fields), *lines[line + 1 :]]

    return edit


@pytest.mark.parametrize(
    "part, edit, message",
    [
        pytest.param(
            *("00001", replaced(3, 9, "123456"), "P0010005 in nm000012020.pl"),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *("00002", replaced(0, 149, "1"), "H0010001 in nm000022020.pl"),
            marks=pytest.mark.slow,
        ),
        ("00003", replaced(5, 5, "77"), "P0050001 in nm000032020.pl"),
        ("00003", replaced(5, 4, "77"), "records of the header"),
        ("geo", replaced(4, 90, "0"), "P0010001 in nmgeo2020.pl"),
        ("geo", replaced(4, 7, "9"), "number its records"),
        ("geo", replaced(4, 8, "0500000US35999"), "entities of the tables"),
        ("00002", lambda lines: lines[:-2], "records of the header"),
        pytest.param(
            *("00002", lambda lines: [line + "|0" for line in lines if line], "cannot be read"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_wrong_legacy_files_are_found(release: Tabulated, part, edit, message) -> None:
    spoil(release, part, edit)
    found = failed(release)
    assert set(found) == {"pl94171_repeats_the_tables"}
    assert message in found["pl94171_repeats_the_tables"]


def test_missing_legacy_file_is_found(release: Tabulated) -> None:
    next((release.directory / "pl94171").glob("*00003*")).unlink()
    assert "one file 00003" in failed(release)["pl94171_repeats_the_tables"]


@pytest.mark.slow
def test_tables_of_a_smaller_schema(right: Tabulated, tmp_path: Path) -> None:
    schema = cef_schema("persons", ("votingage", "cenrace"))
    rng = np.random.default_rng(1)
    histogram = sparse.csr_array(rng.integers(3, size=(len(right.geography), schema.n_cells)))
    counts = block_counts(right.geography["block_geocode"], histogram)
    write_microdata([counts], schema, tmp_path)
    tabulation = tabulate(tmp_path, right.geography, ("persons",))
    write_tables([tabulation], tmp_path, is_private=False)
    facts = tabulated(
        tmp_path,
        right.geography,
        [schema],
        is_private=False,
        states=right.states,
        has_group=right.has_group,
    )
    outcomes = check_tabulations(facts, has_legacy=False)
    assert [outcome.name for outcome in outcomes] == ["tables_count_the_microdata"]
    assert outcomes[0].passed, outcomes[0].detail

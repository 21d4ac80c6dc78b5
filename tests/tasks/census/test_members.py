from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError
from spineflow.tasks.census.census import PRESETS
from spineflow.tasks.census.counting import RawColumns
from spineflow.tasks.census.declarations import CensusDeclaration
from spineflow.tasks.census.households import UNIT_COLUMNS
from spineflow.tasks.census.members import completed_units
from spineflow.tasks.runs.files import read_declared
from spineflow.tasks.tables.columns import CodedColumn
from spineflow.tasks.tables.sources import input_files
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.ingest.generate_households import synthesize_households


@pytest.fixture(scope="module")
def county(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("county")
    generate_county(folder / "raw", persons=800, seed=5)
    synthesize_households(folder / "raw", folder, seed=6)
    return folder


def of(folder: Path, units: pd.DataFrame | None = None, persons: pd.DataFrame | None = None):
    """The findings of tables, of which some are changed, and the file that is completed."""
    paths = {}
    for name, table in {"units": units, "persons": persons}.items():
        paths[name] = folder / f"{name}.parquet"
        if table is not None:
            paths[name] = folder / f"changed_{name}.parquet"
            table.to_parquet(paths[name])
    target = folder / "completed.parquet"
    target.unlink(missing_ok=True)
    files = {name: input_files(name, str(path)) for name, path in paths.items()}
    found = completed_units(files["units"], files["persons"], "MAFID", target)
    return found.findings, target


def test_columns_that_are_there_agree_and_nothing_is_written(county) -> None:
    findings, target = of(county)
    assert findings == () and not target.exists()


@pytest.mark.parametrize("left", [(), ("FINAL_POP",), ("FINAL_POP", "HHT", "HHRACE")])
def test_columns_that_are_missing_are_made(county, left) -> None:
    due = pd.read_parquet(county / "units.parquet")
    lacking = [name for name in UNIT_COLUMNS if name not in left and name != "FINAL_POP"]
    findings, target = of(county, due.drop(columns=lacking))
    assert findings == ()
    found = pd.read_parquet(target)
    assert set(found.columns) == set(due.columns)
    for name in due.columns:
        assert (found[name].astype(str) == due[name].astype(str)).all()


def test_text_files_in_any_order_of_rows_are_completed_alike(county) -> None:
    due = pd.read_parquet(county / "units.parquet").sample(frac=1, random_state=1)
    rows = due.drop(columns=["HHT", "PAC"])
    rows.to_csv(county / "units.txt", sep="|", index=False)
    target = county / "of_text.parquet"
    files = input_files("units", str(county / "units.txt"))
    persons = input_files("persons", str(county / "persons.parquet"))
    assert completed_units(files, persons, "MAFID", target).findings == ()
    found = pd.read_parquet(target)
    assert found["HHT"].tolist() == due["HHT"].tolist()
    assert found["PAC"].tolist() == due["PAC"].tolist()


def test_columns_that_differ_from_the_members_are_refused_with_counts(county) -> None:
    units = pd.read_parquet(county / "units.parquet")
    homes = np.flatnonzero(units["FINAL_POP"].gt(0) & units["RTYPE"].eq("2"))
    units.loc[homes[:3], "HHT"] = 8
    units.loc[homes[5:7], "P18"] += 1
    findings, target = of(county, units)
    assert {(finding.column, finding.count) for finding in findings} == {("HHT", 3), ("P18", 2)}
    assert all("changed_units" in finding.file for finding in findings)
    assert not target.exists()


def test_members_who_make_no_household_are_refused_with_counts(county) -> None:
    persons = pd.read_parquet(county / "persons.parquet")
    heads = persons.index[persons["RELSHIP"] == "20"]
    persons.loc[heads[:4], "RELSHIP"] = "34"
    findings, target = of(county, persons=persons)
    assert [finding.count for finding in findings][:1] == [4] and not target.exists()
    assert "one householder" in findings[0].rule
    persons = pd.read_parquet(county / "persons.parquet")
    persons.loc[persons.index[:2], "MAFID"] = 999_999_999
    findings, _ = of(county, persons=persons)
    found = [(finding.rule, finding.count) for finding in findings]
    assert ("MAFID of every person must be in units.parquet", 2) in found


def test_identifiers_of_units_must_differ(county) -> None:
    units = pd.read_parquet(county / "units.parquet")
    units.loc[units.index[1], "MAFID"] = units["MAFID"].iloc[0]
    findings, _ = of(county, units)
    assert "MAFID of its own" in findings[0].rule and findings[0].count == 2


def test_records_are_counted_by_area_and_raw_value() -> None:
    """Rows without an area or a count are nobody."""
    own = RawColumns(["sex", "age"], 3)
    columns = {
        "sex": CodedColumn(np.array([0, 1, 0, 1]), ("f", "m")),
        "age": CodedColumn(np.array([0, 0, 1, 1]), ("7", None)),
    }
    own.add(columns, np.array([2, 0, -1, 0]), np.array([1, 2, 5, 0]))
    own.add(
        {
            "sex": CodedColumn(np.array([0]), ("m",)),
            "age": CodedColumn(np.array([0]), ("9",)),
        },
        np.array([2]),
        np.array([4]),
    )
    found, ages = own.columns()
    sex, places = found.counts.toarray(), {value: at for at, value in enumerate(found.values)}
    assert sex[2, places["f"]] == 1 and sex[0, places["m"]] == 2 and sex[2, places["m"]] == 4
    assert sex.sum() == 7 and ages.counts.sum() == 7
    assert len(ages.values) == 3


OFTEN = {"person": "ID", "records_per_person": 2}
HELD = {"universe": "units", "query": "total"}


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("files",), {"persons": {}}, "files, which the layout 'cef' does not read"),
        (
            ("contributions",),
            {"persons": OFTEN},
            "contributions, which",
        ),
        (("universes", "persons", "held_to"), [HELD], "held_to, which the layout 'cef'"),
        (("layout",), "declared", "geography.rules = 'blocks', which need the layout 'cef'"),
    ],
)
def test_tables_of_the_census_edited_file_declare_what_their_reader_reads(
    place: tuple[str, ...], value: Any, words: str
) -> None:
    census = read_declared(PRESETS / "cef_2020.toml")
    CensusDeclaration.model_validate(census)
    node = census
    for key in place[:-1]:
        node = node[key]
    node[place[-1]] = value
    with pytest.raises(ValidationError, match=words):
        CensusDeclaration.model_validate(census)

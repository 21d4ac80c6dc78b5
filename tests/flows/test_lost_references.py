"""References that lead nowhere: refused by a rule in every input, and never dropped in silence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from spineflow.tasks.detailed_groups.ingest.generate import (
    generate_specification,
    give_detailed_codes,
)
from spineflow.tasks.detailed_groups.workload.parameters import read_specification
from spineflow.tasks.products.product import product
from spineflow.tasks.tables.findings import InputCheck

from tests.flows.in_process import judged_once
from tests.recorded.runs import (
    COUNTY,
    PRIVACY,
    SPECIFICATION,
    detailed_groups,
    housed_county,
    trips,
)

KEY = "100000"
LOST = ("1e+05", "nowhere")
"""References that no row has."""

SAME = ("100000.0", " 100000", "0100000")
"""Other spellings of `KEY`: the same where identifiers are numbers."""

DECLARED = """
[input]
areas = "areas.csv"
buildings = "buildings.csv"
dwellings = "dwellings.csv"
persons = "persons.csv"
confidential = false
[privacy]
dataset = "lost"
[census.geography]
table = "areas"
geolevels = ["country", "region", "section"]
[census.attributes]
sex = { column = "sex", levels = { male = ["1"], female = ["2"] } }
size = { column = "member.number", bins = [0, 1, 2], largest = 9 }
rooms = { column = "rooms", bins = [0], largest = 9 }
[census.universes.dwellings]
table = "dwellings"
attributes = ["rooms", "size"]
area = ["region", "section"]
occupants.member = { table = "persons", column = "home", key = "id" }
[census.universes.persons]
table = "persons"
attributes = ["sex"]
through = [
    { column = "dwelling", table = "dwellings", key = "id", records_per_row = 9 },
    { column = "building", table = "buildings", key = "id", records_per_row = 9 },
]
area = "section"
[census.universes.workers]
table = "persons"
attributes = ["sex"]
area = "work"
[budget.dwellings]
rho = "1"
delta = "1e-10"
queries.other.detailed = "1"
[budget.persons]
rho = "1"
delta = "1e-10"
queries.other.detailed = "1"
[budget.workers]
rho = "1"
delta = "1e-10"
queries.other.detailed = "1"
"""


def declared(folder: Path) -> str:
    """Persons, their dwellings and the buildings of these, each of which refers to the next."""
    place = {"region": "7", "section": KEY}
    tables = {
        "areas": [place, place | {"section": "200000"}],
        "buildings": [{"id": KEY, "section": KEY}],
        "dwellings": [place | {"id": KEY, "building": KEY, "rooms": "2"}],
        "persons": [{"dwelling": KEY, "home": KEY, "work": KEY, "sex": s} for s in ("1", "2")],
    }
    for name, rows in tables.items():
        pd.DataFrame(rows).to_csv(folder / f"{name}.csv", index=False)
    return DECLARED


def county(folder: Path) -> str:
    """The smallest county of the 2020 layout."""
    return housed_county(folder, preset="pl94_2020_us")


def members(folder: Path) -> str:
    """The same county, whose persons tell columns of their units; no release is read here."""
    text = housed_county(folder, preset="dhc_units_2020_us")
    return text.replace("[input]\n", '[input]\nredistricting = "none"\n')


def groups_of_persons(folder: Path) -> str:
    """The same county, of persons with detailed codes."""
    housed_county(folder)
    generate_specification(folder / "params", states=("44",), **SPECIFICATION)
    codes = list(read_specification(str(folder / "params")).names)
    give_detailed_codes(folder / "persons.parquet", codes)
    return COUNTY.replace("[input]\n", '[input]\nparameters = "params"\n')


def supplemental(folder: Path) -> str:
    """The same county, of persons in their households."""
    return housed_county(folder, preset="supplemental_dhc_2020_us")


def units(folder: Path) -> str:
    """The same county, of units by their persons."""
    housed_county(folder)
    return f'{COUNTY}epsilon = "1"\n[mechanism]\nlargest_size = 30\n'


def groups(folder: Path, records: str, columns: str) -> str:
    """Groups in two regions, whose numbers are public."""
    regions = f"level,region,parent\ncity,7,\nzone,{KEY},7\nzone,200000,7\n"
    (folder / "regions.csv").write_text(regions)
    (folder / "records.csv").write_text(columns)
    return (
        f'[input]\n{records} = "records.csv"\nregions = "regions.csv"\n{PRIVACY}epsilon = "1"\n'
        '[invariants]\ngroups = true\nlevel = "zone"\n[mechanism]\nlargest_size = 5\n'
    )


def sizes(folder: Path) -> str:
    """Their sizes as a table."""
    return groups(folder, "sizes", f"region,size,count\n{KEY},1,1\n200000,2,1\n")


def records(folder: Path) -> str:
    """Their persons."""
    return groups(folder, "records", f"person,unit,region\n1,1,{KEY}\n2,2,200000\n3,2,200000\n")


@dataclass(frozen=True)
class Reference:
    """A column of a table that refers to rows of another; `product` is that of the settings."""

    write: Callable[[Path], str]
    table: str
    column: str
    product: str = "topdown"
    is_text: bool = False

    def check(self, folder: Path, value: str | None) -> InputCheck:
        """The check of the input with a value in the first row; None for it as it is."""
        settings = folder / "settings.toml"
        settings.write_text(self.write(folder), encoding="utf-8")
        if value is not None:
            self.change(next(folder.rglob(self.table)), value)
        asked = product(self.product)
        assert asked.rules is not None and asked.rules.check is not None
        return asked.rules.check(asked.load(settings, ["input.confidential=false"]))

    def change(self, file: Path, value: str) -> None:
        """Write a value into the first row that has one."""
        is_parquet, separator = file.suffix == ".parquet", "|" if file.suffix == ".txt" else ","
        if is_parquet:
            frame = pd.read_parquet(file)
        else:
            frame = pd.read_csv(file, sep=separator, dtype=str, keep_default_na=False)
        own = frame[self.column].astype(str)
        row = own.index[own.str.strip() != ""][0]
        own[row] = value
        frame[self.column] = own
        if is_parquet:
            frame.to_parquet(file, index=False)
        else:
            frame.to_csv(file, sep=separator, index=False)


REFERENCES = {
    "through": Reference(declared, "persons.csv", "dwelling"),
    "a step further": Reference(declared, "dwellings.csv", "building"),
    "area of a step": Reference(declared, "buildings.csv", "section", is_text=True),
    "area of records": Reference(declared, "persons.csv", "work", is_text=True),
    "area in several columns": Reference(declared, "dwellings.csv", "section", is_text=True),
    "level above the area": Reference(declared, "dwellings.csv", "region", is_text=True),
    "occupants": Reference(declared, "persons.csv", "home"),
    "persons of 2020": Reference(county, "persons.parquet", "MAFID"),
    "units of 2020": Reference(county, "units.parquet", "OIDTB"),
    "persons of households": Reference(
        supplemental, "persons.parquet", "MAFID", "supplemental-dhc"
    ),
    "units of households": Reference(supplemental, "units.parquet", "OIDTB", "supplemental-dhc"),
    "persons of groups": Reference(units, "persons.parquet", "MAFID", "group-sizes"),
    "blocks of groups": Reference(units, "units.parquet", "OIDTB", "group-sizes"),
    "regions of sizes": Reference(sizes, "records.csv", "region", "group-sizes"),
    "regions of records": Reference(records, "records.csv", "region", "group-sizes"),
    "regions above": Reference(records, "regions.csv", "parent", "group-sizes"),
    "origins": Reference(trips, "trips.parquet", "origin", "trips"),
    "destinations": Reference(trips, "trips.parquet", "destination", "trips"),
    "areas above": Reference(trips, "areas.csv", "parent", "trips"),
    "members": Reference(members, "persons.parquet", "MAFID"),
    "persons of detailed groups": Reference(
        groups_of_persons, "persons.parquet", "MAFID", "detailed-groups"
    ),
    "blocks of detailed groups": Reference(
        detailed_groups, "person-records.txt", "TABBLK", "detailed-groups", is_text=True
    ),
}


@pytest.fixture(scope="module", autouse=True)
def judged() -> Iterator[None]:
    with judged_once():
        yield


@pytest.mark.parametrize("value", LOST)
@pytest.mark.parametrize("name", REFERENCES)
def test_a_reference_that_leads_nowhere_is_refused(name: str, value: str, tmp_path: Path) -> None:
    reference = REFERENCES[name]
    check = reference.check(tmp_path, value)
    assert check.result is None
    counts = [one.count for one in check.findings if reference.column in one.column + one.rule]
    assert 1 in counts, check.findings


@pytest.mark.parametrize("value", SAME)
@pytest.mark.parametrize("name", [n for n, own in REFERENCES.items() if own.write is declared])
def test_a_number_is_found_however_it_is_spelt(name: str, value: str, tmp_path: Path) -> None:
    """Codes of areas are texts: another spelling of them is refused, where it is not the same."""
    reference = REFERENCES[name]
    check = reference.check(tmp_path, value)
    if check.result is None:
        assert reference.is_text and 1 in [one.count for one in check.findings]
    else:
        expected = reference.check(tmp_path, None).result.histograms
        assert {name: own.sum() for name, own in check.result.histograms.items()} == {
            name: own.sum() for name, own in expected.items()
        }

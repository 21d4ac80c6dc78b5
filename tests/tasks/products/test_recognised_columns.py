"""Every raw column that a product reads recognises its people where another run reads it alone."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from spineflow.tasks.census.histograms import block_levels
from spineflow.tasks.census.households import UNIT_COLUMNS
from spineflow.tasks.detailed_groups.ingest.generate import (
    generate_specification,
    give_detailed_codes,
)
from spineflow.tasks.detailed_groups.ingest.ingest import input_digests as digests_of_groups
from spineflow.tasks.detailed_groups.ingest.inputs import check_groups_input
from spineflow.tasks.detailed_groups.workload.parameters import read_parameters, read_specification
from spineflow.tasks.group_sizes.ingest.read import check_groups
from spineflow.tasks.group_sizes.settings import GroupSizesSettings
from spineflow.tasks.ledger.recognition import InputDigest, RecordColumn, people_digests
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.supplemental_dhc.ingest import check_households
from spineflow.tasks.supplemental_dhc.settings import SupplementalDhcSettings
from spineflow.tasks.tables import readers
from spineflow.tasks.tables.columns import temporary_files_in
from spineflow.tasks.tables.readers import Selection, read_partitions
from spineflow.tasks.tables.sources import InputFile, Share
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.ingest.generate_households import synthesize_households
from spineflow.tasks.topdown.ingest.ingest import check_input_of, reading_of
from spineflow.tasks.topdown.settings import TopdownSettings

from tests.recognised import recognises
from tests.tasks.topdown.offices import budget

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("judged_once")]

KEY = b"k" * 32
Digests = Mapping[str, InputDigest]
LEVELS = ("nation", "tract", "block")

MEMBERS = ("RELSHIP", "QAGE", "QSEX", "CENHISP", "CENRACE")
CODES = tuple(f"QRACE{n}" for n in range(1, 9))
ADDRESSES = ("RTYPE", "QGQTYP", "VACS")
PERSONS = {"persons": ("QGQTYP", "QAGE", "CENRACE"), "units": ADDRESSES}
HOUSEHOLDS = {"households": ("TEN", *UNIT_COLUMNS)}
DETAILED = {"persons": ("QAGE", "QSEX", "CENRACE", *CODES, "QSPAN"), "units": ADDRESSES}


@pytest.fixture(scope="module")
def folder(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """Census tables with detailed codes; `bare.parquet` are units without what members tell."""

    def make(folder: Path) -> None:
        generate_county(folder / "raw", persons=4000, seed=1, state="44")
        synthesize_households(folder / "raw", folder, seed=1)
        generate_specification(
            folder / "params", regional=2, detailed=3, ethnicities=1, households=True
        )
        codes = list(read_specification(str(folder / "params")).names)
        give_detailed_codes(folder / "persons.parquet", codes)
        _leave_out_members(folder)

    return made_once("recognised-columns", make)


def _leave_out_members(folder: Path) -> None:
    units = pd.read_parquet(folder / "units.parquet")
    units.drop(columns=list(UNIT_COLUMNS)).to_parquet(folder / "bare.parquet")


def _tables(folder: Path) -> dict[str, str]:
    files = {"persons": "persons.parquet", "units": "bare.parquet", "geography": "grfc.txt"}
    return {name: str(folder / file) for name, file in files.items()}


def _topdown(preset: str, *universes: str, **files: str) -> Callable[[Path], Digests]:
    def digests(folder: Path) -> Digests:
        tree = {
            "preset": preset,
            "input": _tables(folder) | {name: str(folder / path) for name, path in files.items()},
            "privacy": {"dataset": "d"},
            "run": {"universes": list(universes)},
        }
        settings = load_settings(TopdownSettings, tree, presets=PRESETS)
        with temporary_files_in(folder / "scratch"):
            check = check_input_of(settings)
        return check.accepted().digests(KEY)

    return digests


def _supplemental(folder: Path) -> Digests:
    tree = {
        "preset": "supplemental_dhc_2020_us",
        "input": _tables(folder),
        "privacy": {"dataset": "d"},
    }
    settings = load_settings(SupplementalDhcSettings, tree, presets=PRESETS)
    return check_households(settings).accepted().census.digests(KEY)


def _detailed(folder: Path, *, of_households: bool = False) -> Digests:
    parameters = str(folder / "params")
    check = check_groups_input(
        _tables(folder),
        read_specification(parameters),
        read_parameters(parameters, {}, tabulations=["t3" if of_households else "p"]),
    )
    return digests_of_groups(check.accepted(), KEY)


def _group_sizes(folder: Path) -> Digests:
    tree = {
        "input": _tables(folder),
        "privacy": {"dataset": "d", "epsilon": "1"},
        "mechanism": {"largest_size": 100, "top_coded": True},
    }
    settings = load_settings(GroupSizesSettings, tree, presets=PRESETS)
    return check_groups(settings).accepted().digests(KEY)


READ: Mapping[str, tuple[Callable[[Path], Digests], Mapping[str, tuple[str, ...]]]] = {
    "redistricting persons": (
        _topdown("pl94_2020_us", "persons"),
        {"persons": (*PERSONS["persons"], "CENHISP"), "units": ADDRESSES},
    ),
    "redistricting units": (_topdown("pl94_2020_us", "units"), PERSONS),
    "supplemental": (
        _supplemental,
        {**PERSONS, **HOUSEHOLDS, "persons": (*PERSONS["persons"], *MEMBERS)},
    ),
    "detailed groups": (_detailed, DETAILED),
    "detailed households": (
        partial(_detailed, of_households=True),
        {**DETAILED, **HOUSEHOLDS, "persons": (*DETAILED["persons"], *MEMBERS)},
    ),
    "group sizes": (_group_sizes, PERSONS),
    "dhc persons": (
        _topdown("dhc_persons_2020_us", "persons", units="units.parquet", redistricting="earlier"),
        {"persons": ("QGQTYP", *MEMBERS), "units": ("RTYPE", "QGQTYP", "FINAL_POP")},
    ),
    "dhc units": (
        _topdown("dhc_units_2020_us", "units", "households", redistricting="earlier"),
        {"persons": MEMBERS, "units": ADDRESSES, **HOUSEHOLDS},
    ),
}


def _declared_text(folder: Path, table: str, column: str) -> str:
    file = "persons" if table == "persons" else "units"
    codes = pd.read_parquet(folder / f"{file}.parquet", columns=[column])[column].unique()
    texts = sorted({str(code).strip() for code in codes})
    levels = ", ".join(f'"l{n}" = ["{code}"]' for n, code in enumerate(texts))
    way = (
        'area = "OIDTB"\nthrough = { column = "MAFID", table = "homes", key = "MAFID" }'
        if table == "persons"
        else 'area = "OIDTB"'
    )
    people = f'people = "{folder}/persons.parquet"' if table == "persons" else ""
    rows = 'where = { RTYPE = ["2"], VACS = ["0"] }' if table == "households" else ""
    return f"""
[input]
blocks = "{folder}/grfc.txt"
homes = "{folder}/units.parquet"
{people}
[privacy]
dataset = "other"
[census.geography]
table = "blocks"
geolevels = {list(LEVELS)}
columns = {{ tract = "TABTRACTCE", block = "OIDTABBLK" }}
[census.attributes.own]
column = "{column}"
levels = {{ {levels} }}
[census.universes.others]
table = "{"people" if table == "persons" else "homes"}"
{way}
attributes = ["own"]
{rows}
[geography]
spine = "conventional"
[run]
universes = ["others"]
""" + budget("others", LEVELS)


@cache
def _declared(folder: Path, table: str, column: str) -> Digests:
    file = folder / f"{table} {column}.toml"
    file.write_text(_declared_text(folder, table, column))
    settings = load_settings(TopdownSettings, file, presets=PRESETS)
    return check_input_of(settings).accepted().digests(KEY)


@cache
def _known(product: str, folder: Path) -> Digests:
    return READ[product][0](folder)


CELLS = [
    (product, table, column)
    for product, (_, read) in READ.items()
    for table, columns in read.items()
    for column in dict.fromkeys(columns)
]


IDENTIFIERS = {"MAFID", "OIDTB", "OIDTABBLK"}
"""Columns that tell units and blocks, which are no facts of anybody."""


@pytest.mark.parametrize("product", READ)
def test_every_column_that_is_read_is_recognised(
    product: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the selections of all readers of persons and units: those of `READ`, and no others."""
    seen: set[tuple[str, str]] = set()

    def read(files: Sequence[InputFile], wanted: Selection, share: Share | None = None) -> object:
        table = Path(files[0].path).stem
        seen.update((table, name) for name in wanted.required)
        return read_partitions(files, wanted, share)

    for name, module in list(sys.modules.items()):
        is_reader = getattr(module, "read_partitions", None) is read_partitions
        if is_reader and name.startswith("spineflow.") and module is not readers:
            monkeypatch.setattr(module, "read_partitions", read)
    READ[product][0](folder)
    asked = READ[product][1]
    own = {("persons", name) for name in asked["persons"]}
    own |= {("units", name) for table in ("units", "households") for name in asked.get(table, ())}
    read_columns = {
        ("persons" if table == "persons" else "units", name)
        for table, name in seen
        if table != "grfc" and name not in IDENTIFIERS
    }
    assert read_columns
    # A table of units that is completed is copied with all that it has.
    assert read_columns <= own | {("units", "BCUSTATEFP")}, sorted(read_columns - own)


@pytest.mark.parametrize(("product", "table", "column"), CELLS)
def test_a_column_alone_is_recognised(product: str, table: str, column: str, folder: Path) -> None:
    known, asked = _known(product, folder), _declared(folder, table, column)
    assert any(recognises(one, other) for one in known.values() for other in asked.values())


def test_people_of_another_county_are_recognised_by_no_column(folder: Path, tmp_path: Path) -> None:
    """The same areas with other people drawn alike, in whose tables everything else agrees."""
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    _drawn_again(other, seed=2)
    for product in READ:
        known, asked = _known(product, folder), READ[product][0](other)
        assert not any(recognises(one, two) for one in known.values() for two in asked.values())


def _drawn_again(other: Path, seed: int) -> None:
    """Persons and units of the same layout and areas from another seed."""
    with tempfile.TemporaryDirectory(dir=other) as raw:
        generate_county(raw, persons=4000, seed=seed, state="44")
        synthesize_households(raw, other, seed=seed)
    codes = list(read_specification(str(other / "params")).names)
    give_detailed_codes(other / "persons.parquet", codes)
    _leave_out_members(other)


def test_what_older_versions_recorded_is_recorded(folder: Path) -> None:
    """Version 0.2 knew persons by age and race, units by vacancy and size."""
    blocks = pd.read_csv(folder / "grfc.txt", sep="|", dtype=str)
    blocks["geocode"] = blocks["TABBLKST"] + blocks["TABBLKCOU"] + blocks["TABTRACTCE"]
    blocks["geocode"] += blocks["TABBLKGRPCE"] + blocks["TABBLK"]
    blocks = blocks.sort_values("geocode", ignore_index=True)
    position = pd.Series(blocks.index, index=blocks["OIDTABBLK"])
    units = pd.read_parquet(folder / "units.parquet")
    units["block"] = position[units["OIDTB"].astype(str)].to_numpy()
    persons = pd.read_parquet(folder / "persons.parquet").merge(units[["MAFID", "block"]])
    size = persons["MAFID"].value_counts().reindex(units["MAFID"], fill_value=0).to_numpy()
    homes = units[units["RTYPE"].astype(str) == "2"]
    columns = [
        _by_block(persons["block"], persons["QAGE"], len(blocks)),
        _by_block(persons["block"], persons["CENRACE"], len(blocks)),
        _by_block(homes["block"], homes["VACS"], len(blocks)),
        _by_block(units["block"], pd.Series(size, index=units.index), len(blocks)),
    ]
    levels = block_levels(blocks["geocode"].to_numpy().astype(np.int64))
    recorded = InputDigest("").recognised_by(people_digests(columns, levels, KEY), KEY)
    found = _known("redistricting units", folder)["persons"]
    assert recorded.parts and recorded.weak
    assert {*recorded.parts} <= {*found.parts} and {*recorded.weak} <= {*found.weak}


def _by_block(block: pd.Series, values: pd.Series, n_blocks: int) -> RecordColumn:
    codes, found = pd.factorize(values.astype(int), sort=True)
    ones = np.ones(len(codes), dtype=np.int64)
    counts = sparse.coo_array((ones, (block.to_numpy(), codes)), shape=(n_blocks, len(found)))
    return RecordColumn(sparse.csr_array(counts), [str(value) for value in found])


REFERRED = """
[input]
blocks = "{folder}/grfc.txt"
homes = "{folder}/units.parquet"
people = "{people}"
[privacy]
dataset = "d"
[census.geography]
table = "blocks"
geolevels = ["nation", "tract", "block"]
columns = {{ tract = "TABTRACTCE", block = "OIDTABBLK" }}
[census.attributes.tenure]
column = "homes.TEN"
levels = {{ none = ["", "0"], some = [{{ from = 1, to = 4 }}] }}
[census.attributes.head]
column = "heads.QSEX"
levels = {{ none = [""], male = ["1"], female = ["2"] }}
[census.universes.residents]
table = "people"
area = "OIDTB"
through = {{ column = "MAFID", table = "homes", key = "MAFID", records_per_row = 5000 }}
attributes = ["tenure"]
[census.universes.dwellings]
table = "homes"
area = "OIDTB"
attributes = ["head"]
[census.universes.dwellings.occupants.heads]
table = "people"
column = "MAFID"
key = "MAFID"
where = {{ RELSHIP = ["20"] }}
[geography]
spine = "conventional"
[run]
universes = ["{universe}"]
"""


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize(
    ("universe", "table", "column"),
    [
        ("residents", "units", "TEN"),
        ("dwellings", "persons", "QSEX"),
        ("dwellings", "persons", "RELSHIP"),
    ],
)
def test_columns_of_referred_and_referring_tables_are_recognised(
    universe: str, table: str, column: str, in_parts: bool, folder: Path, tmp_path: Path
) -> None:
    """Tables on the way by their own rows, and occupants by all of theirs."""
    people = folder / "persons.parquet"
    if in_parts:
        rows, people = pd.read_parquet(people), tmp_path / "people"
        people.mkdir()
        for number in range(3):
            rows[number::3].to_parquet(people / f"{number}.parquet")
    file = tmp_path / "settings.toml"
    text = REFERRED.format(folder=folder, people=people, universe=universe)
    file.write_text(text + budget(universe, LEVELS))
    reading = reading_of(load_settings(TopdownSettings, file, presets=PRESETS))
    known, asked = reading.check().accepted().digests(KEY), _declared(folder, table, column)
    assert any(recognises(one, other) for one in known.values() for other in asked.values())

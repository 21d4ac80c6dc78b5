"""A fictional county in the CEF layout, for the demo, tests and benchmarks.

Everything is drawn from a seeded generator: its persons are fictional. By default the county is in
a state whose minor civil divisions are not strong (35), so that places separate the off-spine
entities of its blocks outside the AIAN area as well as inside; in a state such as 44 it is the
county subdivisions outside. AIAN area, places and county subdivisions are stretches of the block
sequence whose ends fall inside tracts and block groups.

A generated country abroad: areas, dwellings and persons in tables of its own.

The population is fictional. Codes are texts of several alphabets and widths, section codes are
unique in the whole country, and a school district is a column of the areas that no geolevel nests
in.

A generated European census on a grid: persons with coordinates, in municipalities and cells.

Cells of 1 km have the codes of the European grid (ETRS89-LAEA); municipalities (LAU) and NUTS
regions nest, and a cell on a border is in several municipalities. The counts are the topics of the
census of 2021 on the grid, by Regulation (EU) 2018/1799. The population is fictional.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from ...census.cef_2020 import type_of
from ...runs.files import read_declared
from ...tables.layouts import AIAN_COLUMN, BLOCK_KEY, GEOCODE_FIELDS, RACE_COLUMN, delimited_text

FEWEST_PERSONS = 500
"""Fewest persons of a generated county, so that it has room for every group-quarters type."""
_MOST_COUNTIES = 500
_PERSONS_PER_BLOCK = 33
_PERSONS_PER_TRACT = 4_000

_VACANT_SHARE = 0.11
_UNINHABITED_SHARE = 0.27

_RACE_COMBINATIONS = [chosen for size in range(1, 7) for chosen in combinations(range(6), size)]
"""Races of each combination, numbered as in `race_shares`."""
_NOT_HISPANIC_CODE = 1000

_TABLES = read_declared(Path(__file__).parent / "presets" / "county.toml")


@dataclass(frozen=True)
class GeneratedFiles:
    """Paths of the three generated tables."""

    persons: Path
    units: Path
    geography: Path


def generate_county(
    directory: Path | str,
    *,
    persons: int = 30_000,
    seed: int = 20,
    n_counties: int = 1,
    state: str = "35",
) -> GeneratedFiles:
    """Write a fictional county, or `n_counties` of `persons` each, and return the files' paths.

    The tables are `persons.parquet`, `units.parquet` and the pipe-delimited `grfc.txt`. The
    directory is made if it does not exist. The same arguments give the same tables. Raises
    ValueError for fewer than `FEWEST_PERSONS` persons a county, or for more counties than there are
    codes.
    """
    if persons < FEWEST_PERSONS:
        raise ValueError(f"a generated county has at least {FEWEST_PERSONS} persons")
    if not 1 <= n_counties <= _MOST_COUNTIES:
        raise ValueError(f"the number of counties must be from 1 to {_MOST_COUNTIES}")
    rng = np.random.default_rng(seed)
    counties = [_block_columns(rng, state, 2 * i + 1, persons) for i in range(n_counties)]
    geography = _stacked(counties)
    n_blocks = len(geography[GEOCODE_FIELDS[-1]])
    geography = {BLOCK_KEY: _texts(30_000_000_000 + np.arange(n_blocks), 11), **geography}
    first_block = np.cumsum([0, *(len(county[GEOCODE_FIELDS[-1]]) for county in counties)])
    stock = _stacked(
        [
            _unit_columns(rng, len(county[GEOCODE_FIELDS[-1]]), persons, first)
            for county, first in zip(counties, first_block, strict=False)
        ]
    )
    order = np.argsort(stock["block"], kind="stable")
    stock = {name: values[order] for name, values in stock.items()}
    in_aian_area = geography[AIAN_COLUMN] == _TABLES["aian_stretch"][2]

    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    files = GeneratedFiles(
        directory / "persons.parquet", directory / "units.parquet", directory / "grfc.txt"
    )
    people = _person_columns(rng, stock, in_aian_area[stock["block"]], state)
    units = _unit_table(rng, stock, geography, state)
    for path, columns in ((files.persons, people), (files.units, units)):
        pq.write_table(pa.table(columns), path, compression="zstd")
    files.geography.write_bytes(delimited_text(geography))
    return files


def _stacked(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _texts(numbers: np.ndarray, width: int) -> np.ndarray:
    """Numbers as texts of `width` digits, leading zeros kept."""
    powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
    digits = (np.asarray(numbers, dtype=np.int64)[:, None] // powers % 10 + ord("0")).astype("u4")
    return digits.view(f"U{width}").reshape(-1)


def _block_columns(
    rng: np.random.Generator, state: str, county: int, persons: int
) -> dict[str, np.ndarray]:
    """The blocks of a county in geocode order, as columns of the geography table."""
    n_tracts = max(2, round(persons / _PERSONS_PER_TRACT))
    tract_of_group = np.repeat(np.arange(n_tracts), rng.integers(2, 5, n_tracts))
    n_groups = len(tract_of_group)
    n_blocks = max(4 * n_groups, round(persons / _PERSONS_PER_BLOCK))
    sizes = 2 + rng.multinomial(n_blocks - 2 * n_groups, rng.dirichlet(np.full(n_groups, 6.0)))
    group = np.repeat(np.arange(n_groups), sizes)
    tract = tract_of_group[group]
    group_in_tract = 1 + group - np.searchsorted(tract_of_group, tract)
    block_in_group = np.arange(n_blocks) - np.searchsorted(group, group)

    along = (np.arange(n_blocks) + 0.5) / n_blocks
    place = np.full(n_blocks, "99999")
    for low, high, code in _TABLES["place_stretches"]:
        place[(along >= low) & (along < high)] = code
    low, high, aian_code = _TABLES["aian_stretch"]
    subdivision = np.searchsorted(_TABLES["subdivision_starts"], along, side="right")
    district = np.searchsorted(_TABLES["school_district_starts"], along, side="right")
    geocode = (
        np.full(n_blocks, state),
        _texts(np.full(n_blocks, county), 3),
        _texts((tract + 1) * 100, 6),
        _texts(group_in_tract, 1),
        _texts(group_in_tract * 1000 + block_in_group, 4),
    )
    return {
        **dict(zip(GEOCODE_FIELDS, geocode, strict=True)),
        AIAN_COLUMN: np.where((along >= low) & (along < high), aian_code, "9999"),
        "COUSUBFP": _texts(90_000 + 455 * subdivision, 5),
        "PLACEFP": place,
        "SDUNI": _texts(30 * district, 5),
    }


def _unit_columns(
    rng: np.random.Generator, n_blocks: int, persons: int, first_block: int
) -> dict[str, np.ndarray]:
    """The units of a county: block, group-quarters code (blank: housing unit), persons, vacancy."""
    is_inhabited = rng.random(n_blocks) >= _UNINHABITED_SHARE
    is_inhabited[: max(1, n_blocks // 10)] = True
    weight = np.where(is_inhabited, rng.lognormal(0.0, 1.1, n_blocks), 0.0)
    inhabited = np.flatnonzero(is_inhabited)

    types, shares, numbers = map(np.array, zip(*_TABLES["facilities"], strict=True))
    code, mean = np.repeat(types, numbers), np.repeat(shares * persons / numbers, numbers)
    residents = np.maximum(1, (mean * rng.uniform(0.6, 1.3, len(mean))).astype(np.int64))

    in_households = persons - residents.sum()
    of_size = _TABLES["household_size_shares"]
    sizes = 1 + rng.choice(len(of_size), size=in_households, p=of_size)
    sizes = sizes[: np.searchsorted(np.cumsum(sizes), in_households) + 1]
    sizes[-1] -= sizes.sum() - in_households
    n_households = len(sizes)
    n_vacant = round(_VACANT_SHARE * n_households)
    block = rng.choice(n_blocks, size=n_households + n_vacant, p=weight / weight.sum())
    return {
        "block": first_block + np.concatenate([block, rng.choice(inhabited, len(code))]),
        "code": np.concatenate([np.full(n_households + n_vacant, "   "), code]),
        "persons": np.concatenate([sizes, np.zeros(n_vacant, dtype=np.int64), residents]),
        "vacancy": np.concatenate(
            [
                np.zeros(n_households, dtype=np.int64),
                rng.integers(1, 8, n_vacant),
                np.zeros(len(code), dtype=np.int64),
            ]
        ),
    }


_FIRST_MAFID = 100_000_001


def _unit_table(
    rng: np.random.Generator,
    stock: dict[str, np.ndarray],
    geography: dict[str, np.ndarray],
    state: str,
) -> dict[str, np.ndarray]:
    n_units = len(stock["block"])
    is_housing_unit = stock["code"] == "   "
    is_occupied = is_housing_unit & (stock["vacancy"] == 0)
    return {
        "RTYPE": np.where(is_housing_unit, "2", "4"),
        "MAFID": _FIRST_MAFID + np.arange(n_units),
        "BCUSTATEFP": np.full(n_units, state),
        "FINAL_POP": stock["persons"],
        "TEN": np.where(is_occupied, _texts(rng.integers(1, 5, n_units), 1), "0"),
        "VACS": stock["vacancy"],
        "QGQTYP": stock["code"],
        "OIDTB": geography[BLOCK_KEY][stock["block"]],
    }


def _person_columns(
    rng: np.random.Generator, stock: dict[str, np.ndarray], in_aian_area: np.ndarray, state: str
) -> dict[str, np.ndarray]:
    """The persons table, its rows in random order; `in_aian_area` is a mask of the units."""
    n_units = len(stock["block"])
    unit = np.repeat(np.arange(n_units), stock["persons"])
    number = np.arange(len(unit)) - np.searchsorted(unit, unit)
    shuffled = rng.permutation(len(unit))
    type_of_unit = np.array([type_of(code.strip() or None) for code in stock["code"]])
    relationship, age, sex = _household_roles(rng, unit, number, type_of_unit)
    races = _race_combinations(rng, unit, number, in_aian_area)
    is_hispanic = _shared_in_household(
        rng, unit, number, rng.random(len(unit)) < np.where(races == 5, 0.75, 0.13), 0.95
    )
    origins = _draw_skewed(rng, np.array(_TABLES["origin_codes"]), len(unit))
    origin = np.where(is_hispanic, origins, _NOT_HISPANIC_CODE)
    columns = {
        "RTYPE": np.where(type_of_unit[unit] == 0, "3", "5"),
        "MAFID": _FIRST_MAFID + unit,
        "CUF_PNC": number + 1,
        "BCUSTATEFP": np.full(len(unit), state),
        "QSEX": _texts(sex, 1),
        "QAGE": age,
        "QSPAN": _texts(origin, 4),
        "CENHISP": _texts(1 + is_hispanic, 1),
        **_race_codes(rng, races),
        RACE_COLUMN: _texts(races + 1, 2),
        "RELSHIP": _texts(relationship, 2),
        "QGQTYP": stock["code"][unit],
    }
    return {name: values[shuffled] for name, values in columns.items()}


def _household_roles(
    rng: np.random.Generator, unit: np.ndarray, number: np.ndarray, type_of_unit: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """RELSHIP, age and QSEX of every person; `number` counts the persons of a unit from 0."""
    n_units, n = len(type_of_unit), len(unit)
    kind_of_person = type_of_unit[unit]
    householder_age = np.clip(rng.normal(50, 17, n_units), 18, 97).astype(np.int64)[unit]
    householder_sex = rng.integers(1, 3, n_units)[unit]
    has_partner = (rng.random(n_units) < 0.62)[unit] & (number == 1)
    is_married = (rng.random(n_units) < 0.85)[unit]
    is_child = rng.random(n) < 0.86
    other = rng.choice([26, 27, 28, 29, 30, 33, 34, 36], size=n)

    relationship = np.where(is_child, 25, other)
    relationship[has_partner] = np.where(is_married, 21, 22)[has_partner]
    relationship[number == 0] = 20
    relationship[(kind_of_person >= 1) & (kind_of_person <= 4)] = 37
    relationship[kind_of_person >= 5] = 38

    youngest_parent = np.maximum(householder_age - 16, 0)
    child_age = np.where(
        rng.random(n) < 0.75,
        np.minimum(rng.integers(0, 19, n), youngest_parent),
        np.clip(householder_age - rng.integers(17, 40, n), 0, 60),
    )
    age = np.where(is_child, child_age, rng.integers(0, 90, n))
    partner_age = np.clip(householder_age + rng.normal(-1, 4, n), 18, 99).astype(np.int64)
    age[has_partner] = partner_age[has_partner]
    age[number == 0] = householder_age[number == 0]
    for kind, (low, high) in enumerate(_TABLES["ages_by_type"], 1):
        members = kind_of_person == kind
        age[members] = rng.integers(low, high, members.sum())

    sex = rng.integers(1, 3, n)
    sex[number == 0] = householder_sex[number == 0]
    sex[has_partner] = 3 - householder_sex[has_partner]
    mostly_male = (kind_of_person == 1) | (kind_of_person == 6)
    sex[mostly_male] = np.where(rng.random(mostly_male.sum()) < 0.9, 1, 2)
    return relationship, age, sex


def _race_combinations(
    rng: np.random.Generator, unit: np.ndarray, number: np.ndarray, in_aian_area: np.ndarray
) -> np.ndarray:
    """Number of every person's combination: every combination can occur, most are rare."""
    is_inside = in_aian_area[unit]
    drawn = np.empty(len(unit), dtype=np.int64)
    for members, name in ((~is_inside, "race_shares"), (is_inside, "race_shares_in_aian_area")):
        shares = np.array(_TABLES[name])
        weight = np.array(
            [
                shares[list(chosen)].prod() ** (1 / len(chosen)) * 0.08 ** (len(chosen) - 1)
                for chosen in _RACE_COMBINATIONS
            ]
        )
        drawn[members] = rng.choice(len(weight), size=members.sum(), p=weight / weight.sum())
    return _shared_in_household(rng, unit, number, drawn, 0.92)


def _shared_in_household(
    rng: np.random.Generator, unit: np.ndarray, number: np.ndarray, drawn: np.ndarray, chance: float
) -> np.ndarray:
    """Each person's own draw, or with a chance the draw of the first person of the unit."""
    first = np.arange(len(unit)) - number
    return np.where(rng.random(len(unit)) < chance, drawn[first], drawn)


def _draw_skewed(rng: np.random.Generator, codes: np.ndarray, size: int) -> np.ndarray:
    """Draws from `codes`, each less frequent than the one before."""
    weight = 0.5 ** np.arange(len(codes))
    return rng.choice(codes, size=size, p=weight / weight.sum())


def _race_codes(rng: np.random.Generator, races: np.ndarray) -> dict[str, np.ndarray]:
    """QRACE1 to QRACE8: a detailed code for each race of the combination, for some one more."""
    n = len(races)
    codes = np.zeros((n, 8), dtype=np.int64)
    n_codes = np.zeros(n, dtype=np.int64)
    codes_of_race = np.array(_TABLES["race_codes"])
    n_races, n_each = codes_of_race.shape
    has_race = np.zeros((len(_RACE_COMBINATIONS), n_races), dtype=bool)
    for position, chosen in enumerate(_RACE_COMBINATIONS):
        has_race[position, list(chosen)] = True
    has_second_code = rng.random(n) < 0.25
    for race in range(n_races):
        members = np.flatnonzero(has_race[races, race])
        first = _draw_skewed(rng, np.arange(n_each), len(members))
        codes[members, n_codes[members]] = codes_of_race[race, first]
        n_codes[members] += 1
        # One race more cannot overflow: six races and a second code for one of them are seven.
        again = has_second_code[members]
        twice = members[again]
        codes[twice, n_codes[twice]] = codes_of_race[race, (first[again] + 1) % n_each]
        n_codes[twice] += 1
        has_second_code[twice] = False
    columns = {}
    for position in range(8):
        values = codes[:, position]
        columns[f"QRACE{position + 1}"] = np.where(values == 0, "    ", _texts(values, 4))
    return columns


REGIONS = ("Nord", "Süd", "Île-Ouest", "Est/2")
MUNICIPALITIES, SECTIONS, DWELLINGS = 8, 12, 25
"""Municipalities of a region, sections of a municipality, mean dwellings of a section."""


def generate_country(folder: Path, *, seed: int = 2020) -> None:
    """Write `areas.csv`, `dwellings.parquet` and `persons.parquet` into a folder."""
    rng = np.random.default_rng(seed)
    region = np.repeat(np.arange(len(REGIONS)), MUNICIPALITIES * SECTIONS)
    municipality = np.tile(np.repeat(np.arange(MUNICIPALITIES), SECTIONS), len(REGIONS))
    n_sections = len(region)
    section = [f"S.{number:X}" for number in range(4000, 4000 + n_sections)]
    school = (np.arange(n_sections) + rng.integers(0, 9, n_sections)) // 20
    areas = {
        "region": [REGIONS[i] for i in region],
        "municipality": [f"m{i}" for i in municipality],
        "section": section,
        "school": ["none" if i % 7 == 0 else f"district {i}" for i in school],
        "town": [f"{REGIONS[i]}, town {1 + j}" for i, j in zip(region, municipality, strict=True)],
        "latitude": [f"{52 + 0.5 * i:.4f}" for i in region],
        "longitude": [f"{-3 + 0.4 * j:.4f}" for j in municipality],
    }
    pacsv.write_csv(pa.table(areas), folder / "areas.csv")

    of_section = np.repeat(np.arange(n_sections), rng.poisson(DWELLINGS, n_sections))
    n = len(of_section)
    identifier = [f"D{i:06d}" for i in range(n)]
    dwellings = {
        "id": identifier,
        "section": [section[i] for i in of_section],
        "tenure": rng.choice(["1", "2", "3", "9", ""], n, p=[0.35, 0.2, 0.38, 0.05, 0.02]),
        "rooms": 1 + rng.poisson(2.4, n),
    }
    pq.write_table(pa.table(dwellings), folder / "dwellings.parquet")

    people = np.minimum(rng.poisson(2.3, n), 12)
    home = np.repeat(np.arange(n), people)
    age = np.minimum((rng.beta(1.3, 1.9, len(home)) * 105).astype(np.int64), 110)
    may_marry = age >= 16
    spouse = may_marry & (rng.random(len(home)) < 0.5)
    former = may_marry & ~spouse & (rng.random(len(home)) < 0.25)
    persons = {
        "dwelling": [identifier[i] for i in home],
        "sex": rng.choice(["F", "M"], len(home)),
        "age": age,
        "citizenship": rng.choice(
            ["N", "A", "B", "C", "X", "0"], len(home), p=[0.82, 0.05, 0.04, 0.03, 0.05, 0.01]
        ),
        "spouse": np.where(spouse, "Y", ""),
        "former": np.where(former, "1", "0"),
    }
    pq.write_table(pa.table(persons), folder / "persons.parquet")


CELL = 1000
SQUARE = 250
"""Sides of a cell, and of the squares that municipalities are made of, in metres."""

WIDTH, HEIGHT = 40, 24
"""Extent of the country, in cells."""

WEST, SOUTH = 4_300_000, 2_700_000
"""The country's south-west corner."""

TOWNS, NUTS_REGIONS = 48, 6
"""Municipalities of the country, and its regions of NUTS 3; two of these make one of NUTS 2."""

PERSONS = 40_000

EU = ("AT", "BE", "CZ", "DE", "ES", "FR", "IT", "PL", "PT", "RO", "SE")
"""Countries of birth within the Union; the country's own is XX."""


def generate_grid(folder: Path, *, persons: int = PERSONS, seed: int = 2021) -> None:
    """Write `areas.csv`, the parts of municipalities in cells, and `persons.parquet`."""
    rng = np.random.default_rng(seed)
    per_cell = CELL // SQUARE
    x, y = np.meshgrid(np.arange(WIDTH * per_cell), np.arange(HEIGHT * per_cell), indexing="ij")
    squares = np.column_stack([x.ravel(), y.ravel()])
    towns = rng.uniform(0, [WIDTH * per_cell, HEIGHT * per_cell], (TOWNS, 2))
    # From west to east, so that regions are of neighbours.
    towns = towns[np.argsort(towns[:, 0])]
    distances = np.linalg.norm(squares[:, None] - towns, axis=2)
    lau = distances.argmin(axis=1)
    cell_x, cell_y = (squares // per_cell).T
    cell = np.array(
        [
            f"CRS3035RES{CELL}mN{SOUTH + CELL * north}E{WEST + CELL * east}"
            for east, north in zip(cell_x, cell_y, strict=True)
        ]
    )
    # Intersections of municipalities and cells are public, whether inhabited or not.
    parts = sorted(set(zip(lau.tolist(), cell.tolist(), strict=True)))
    region = np.arange(TOWNS) * NUTS_REGIONS // TOWNS
    areas = {
        "nuts2": [f"XX{1 + region[own] // 2:02}" for own, _ in parts],
        "nuts3": [f"XX{1 + region[own] // 2:02}{1 + region[own] % 2}" for own, _ in parts],
        "lau": [f"{10_000 + own}" for own, _ in parts],
        "cell": [code for _, code in parts],
    }
    pacsv.write_csv(pa.table(areas), folder / "areas.csv")

    # People live about the towns, a few anywhere.
    weight = rng.pareto(1.5, TOWNS)[lau] * np.exp(-distances.min(axis=1) / 4) + 0.002
    home = rng.choice(len(squares), persons, p=weight / weight.sum())
    metres = squares[home] * SQUARE + rng.integers(0, SQUARE, (persons, 2))
    age = np.minimum((rng.beta(1.4, 1.7, persons) * 100).astype(np.int64), 104)
    is_of_age = (age >= 15) & (age < 70)
    born = rng.choice(["XX", "EU", "other"], persons, p=[0.84, 0.09, 0.07])
    columns = {
        "easting": WEST + metres[:, 0],
        "northing": SOUTH + metres[:, 1],
        "lau": [f"{10_000 + own}" for own in lau[home]],
        "sex": rng.choice(["F", "M"], persons, p=[0.51, 0.49]),
        "age": age,
        "work": np.where(is_of_age & (rng.random(persons) < 0.7), "employed", "other"),
        "born_in": np.where(born == "EU", rng.choice(EU, persons), born),
        "year_before": rng.choice(["here", "elsewhere", "abroad"], persons, p=[0.9, 0.08, 0.02]),
    }
    pq.write_table(pa.table(columns), folder / "persons.parquet")

"""Reading a published P.L. 94-171 release, and its block counts.

P1 to P4 give exactly how many persons of each race combination, Hispanic origin and voting age a
block has, P5 how many live in each type of group quarters, and H1 how many housing units are
occupied; they do not give the joint counts of the first and the second.

Published block counts as input tables: fictional records that tabulate to them.

The records reproduce, for every block, the race combinations, Hispanic origin and voting age of
P1 to P4, the group quarters of P5 and the housing units of H1. Facts beyond the tables are made
up: who lives in group quarters is drawn with a fixed seed, among adults first (in juvenile
facilities, among minors first); each type of quarters that a block has is one facility; everyone is
10 or 30 years old and of sex 1.

Two contradictions that tables allow and records do not are corrected and counted: a household
without an occupied housing unit gets one, and minors in nursing facilities move to other
institutional facilities.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from scipy import sparse

from .....validation.rules import GROUP_QUARTERS_CODES, NURSING_FACILITY
from ....census.cef_2020 import CENSUS
from ....census.compiled_schemas import table_variables
from ....runs.errors import InputRefused
from ....runs.files import replacing
from ....tables.layouts import GEOGRAPHY_LAYOUT
from .legacy import GEOGRAPHIC_HEADER, HEADER_FIELDS, SEGMENT_FIELDS, SEGMENTS, segment_variables
from .levels import COLUMNS, OUTSIDE, OWN_FIELDS, POINT, SUMMARY_LEVELS

PUBLISHED_PERSONS = CENSUS.schema("persons", ("votingage", "hispanic", "cenrace"))
"""Attributes of every person in P1 to P4."""

BLOCK = "750"
_WHOLE_AREA = "00"
_GEOGRAPHY_COLUMNS = ("AIANHH", "COUSUB", "PLACE")
_BLOCK_FIELDS = (
    *(f"{part}{ending}" for part in ("COUNTY", "COUSUB", "PLACE") for ending in ("CC", "NS")),
    *HEADER_FIELDS[HEADER_FIELDS.index("CBSA") : HEADER_FIELDS.index("BASENAME")],
    *POINT,
)
"""Fields of blocks that the geography keeps where every block has them."""
_NAMED_BY_CODE = ("STATE", "TRACT", "BLKGRP")
_FILE_NAME = re.compile(r"^[a-z0-9]{2}(geo|0000[123]).*\.u?pl$", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class PublishedRelease:
    """The records of one state, in the order of the geographic header."""

    header: pd.DataFrame
    """Text, one column a field of the header."""
    counts: pd.DataFrame
    """int64, one column a variable, P0010001 to P0050010 and H0010001 to H0010003."""


@dataclass(frozen=True, eq=False)
class PublishedBlocks:
    """Counts of the blocks, rows in the order of `geography`."""

    geography: pd.DataFrame
    """Geography frame: block_geocode, AIANNHCE, COUSUBFP, PLACEFP, further fields of the header."""
    persons: sparse.csr_array
    """int64 `(n_blocks, PUBLISHED_PERSONS.n_cells)`."""
    hhgq: np.ndarray
    """int64 `(n_blocks, 8)`: persons in households, then in each type of group quarters."""
    occupancy: np.ndarray
    """int64 `(n_blocks, 2)`: vacant and occupied housing units."""


def read_published(folder: Path) -> PublishedRelease:
    """Read the four files of a state in a folder, whatever the endings of their names.

    Raises InputRefused for missing or further files, for records of another number of fields, and
    for segments that do not have the records of the header.
    """
    files = _files(folder)
    header = _read(files[GEOGRAPHIC_HEADER], HEADER_FIELDS, ())
    if header["LOGRECNO"].duplicated().any():
        raise InputRefused(
            f"{files[GEOGRAPHIC_HEADER].name} numbers two records alike; take the published file."
        )
    counts = []
    for segment in SEGMENTS:
        variables = segment_variables(segment)
        records = _read(files[segment], (*SEGMENT_FIELDS, *variables), variables)
        records = records.set_index("LOGRECNO")
        if set(records.index) != set(header["LOGRECNO"]) or len(records) != len(header):
            raise InputRefused(
                f"{files[segment].name} does not have the records of "
                f"{files[GEOGRAPHIC_HEADER].name}; take all files from one release."
            )
        counts.append(records.loc[header["LOGRECNO"], list(variables)].reset_index(drop=True))
    return PublishedRelease(header, pd.concat(counts, axis=1))


def published_blocks(release: PublishedRelease) -> PublishedBlocks:
    """The counts of every block, by 16-digit geocode.

    Raises InputRefused where a release has no blocks, or its tables contradict each other.
    """
    is_block = (release.header["SUMLEV"] == BLOCK) & (release.header["GEOCOMP"] == _WHOLE_AREA)
    if not is_block.any():
        raise InputRefused("The release has no blocks (SUMLEV 750); take one that has.")
    header = release.header[is_block]
    geocode = header[["STATE", "COUNTY", "TRACT", "BLKGRP", "BLOCK"]].agg("".join, axis=1)
    order = geocode.argsort().to_numpy()
    header, geocode = header.iloc[order], geocode.iloc[order]
    counts = release.counts[is_block].iloc[order]
    geography = pd.DataFrame({"block_geocode": geocode.to_numpy()})
    for field in _GEOGRAPHY_COLUMNS:
        geography[COLUMNS[field]] = header[field].replace("", OUTSIDE[field]).to_numpy()
    for field in _BLOCK_FIELDS:
        if header[field].ne("").all():
            geography[field] = header[field].to_numpy()
    geography = geography.assign(**_fields_of_entities(release.header, header))

    persons = _persons(counts)
    # P5 has subtotals of institutional and noninstitutional quarters.
    in_quarters = counts[[f"P005{n:04d}" for n in (3, 4, 5, 6, 8, 9, 10)]].to_numpy()
    household = counts["P0010001"].to_numpy() - in_quarters.sum(axis=1)
    hhgq = np.column_stack([household, in_quarters])
    occupancy = counts[["H0010003", "H0010002"]].to_numpy()
    contradicts = (
        (persons < 0).any(axis=1)
        | (hhgq < 0).any(axis=1)
        | (persons.sum(axis=1) != counts["P0010001"].to_numpy())
        | (occupancy.sum(axis=1) != counts["H0010001"].to_numpy())
    )
    if contradicts.any():
        raise InputRefused(
            f"The tables of block {geocode.iloc[int(np.argmax(contradicts))]} contradict each "
            "other; take the published files."
        )
    return PublishedBlocks(geography, sparse.csr_array(persons), hhgq, occupancy)


def _fields_of_entities(records: pd.DataFrame, blocks: pd.DataFrame) -> dict[str, np.ndarray]:
    """Names and points of the entities that each block is in, as `names` reads them.

    `records` is the whole header, `blocks` its records of blocks. An entity's designation without a
    name of its own, such as a tract's number, is left out.
    """
    found = {}
    for code, level in SUMMARY_LEVELS.items():
        own = records[(records["SUMLEV"] == code) & (records["GEOCOMP"] == _WHOLE_AREA)]
        if own.empty or code == BLOCK:
            continue
        parts, kind = list(level.parts), level.parts[-1]
        fields = POINT if kind in _NAMED_BY_CODE else OWN_FIELDS
        of_parts = own.drop_duplicates(parts).set_index(parts)[list(fields)]
        of_blocks = blocks[parts].join(of_parts, on=parts)[list(fields)].fillna("")
        for field in fields:
            if of_blocks[field].ne("").any():
                found[f"{kind}_{field}"] = of_blocks[field].to_numpy()
    return found


def _persons(counts: pd.DataFrame) -> np.ndarray:
    """(n_blocks, n_cells) from the tables of all persons and of persons of voting age."""
    race = np.array(_race_numbers())

    def of(table: int, first: int) -> np.ndarray:
        return counts[[f"P{table:03d}{number + first:04d}" for number in race]].to_numpy()

    everyone, not_hispanic, adults, adults_not_hispanic = of(1, 0), of(2, 2), of(3, 0), of(4, 2)
    hispanic, adults_hispanic = everyone - not_hispanic, adults - adults_not_hispanic
    return np.hstack(
        [
            not_hispanic - adults_not_hispanic,
            hispanic - adults_hispanic,
            adults_not_hispanic,
            adults_hispanic,
        ]
    )


def _race_numbers() -> list[int]:
    """Number in P1 of the variable that counts each level of `cenrace`."""
    (table,) = (entry for entry in CENSUS.declared.tables if entry.name == "P1")
    levels = PUBLISHED_PERSONS.levels("cenrace")
    variables = table_variables(table, PUBLISHED_PERSONS)
    counted = [np.unique(levels[mask]) for _, mask in variables]
    # Where several variables count one level alone, which has a subtotal then, use the last.
    own = {int(c[0]): number for number, c in enumerate(counted, 1) if len(c) == 1}
    return [own[level] for level in range(len(own))]


def _files(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise InputRefused(f"{folder} is no folder; name the one with the state's .pl files.")
    found: dict[str, list[Path]] = {part: [] for part in (GEOGRAPHIC_HEADER, *SEGMENTS)}
    for path in sorted(folder.iterdir()):
        match = _FILE_NAME.match(path.name)
        if match:
            found[match.group(1).lower()].append(path)
    for part, paths in found.items():
        if len(paths) != 1:
            what = "no file" if not paths else f"{len(paths)} files"
            raise InputRefused(
                f"{folder} has {what} named like ..{part}2020.pl; it needs the four files of one "
                "state."
            )
    return {part: paths[0] for part, paths in found.items()}


ENCODINGS = ("utf-8", "latin-1")
"""Encodings of the files of some vintages: the first in which a whole file is valid."""


def _read(path: Path, names: tuple[str, ...], integers: tuple[str, ...]) -> pd.DataFrame:
    """The records of a file; blanks around texts are stripped, as older files pad them."""
    types = dict.fromkeys(names, pa.string()) | dict.fromkeys(("LOGRECNO", *integers), pa.int64())
    parse = pyarrow.csv.ParseOptions(delimiter="|", quote_char=False)
    convert = pyarrow.csv.ConvertOptions(
        column_types=types, null_values=[], strings_can_be_null=False
    )
    for encoding in ENCODINGS:
        options = pyarrow.csv.ReadOptions(column_names=names, encoding=encoding)
        try:
            table = pyarrow.csv.read_csv(path, options, parse, convert)
        except pa.ArrowInvalid:
            continue
        break
    else:
        raise InputRefused(
            f"{path.name} does not have records of {len(names)} fields with whole numbers where "
            "they are due; take the published file."
        )
    frame = table.to_pandas()
    for name in set(names) - {"LOGRECNO", *integers}:
        frame[name] = frame[name].str.strip()
    return frame


JUVENILE_FACILITY, OTHER_INSTITUTIONAL = 2, 4
_IN_ORDER_OF_AGE = (JUVENILE_FACILITY, 0, 7, 6, OTHER_INSTITUTIONAL, 1, 5, NURSING_FACILITY)
"""Levels of `hhgq`, from the one that takes a block's minors to the one that takes its adults."""

MINOR_AGE, ADULT_AGE = 10, 30
PERSONS_PER_BATCH = 1 << 20

_CODE = np.array(["", *(codes[0] for codes in GROUP_QUARTERS_CODES.values())], dtype=object)
_RACE = np.array([f"{level + 1:02d}" for level in range(63)], dtype=object)
_DIGIT = np.array(list("0123456789"), dtype=object)


@dataclass(frozen=True)
class InputTables:
    """The tables written, and their deviations from the published counts."""

    persons: Path
    units: Path
    geography: Path
    n_units_occupied: int
    """Housing units made occupied, or added, for households that had none."""
    n_minors_moved: int
    """Minors moved out of nursing facilities."""


def write_input_tables(blocks: PublishedBlocks, directory: Path, *, seed: int = 0) -> InputTables:
    """Write `persons.parquet`, `units.parquet` and `grfc.txt` in the Census Edited File layout.

    The same counts and seed give the same tables. Memory is limited to a batch of about a million
    persons.
    """
    directory.mkdir(parents=True, exist_ok=True)
    persons_path, units_path = directory / "persons.parquet", directory / "units.parquet"
    geography_path = directory / "grfc.txt"
    random = np.random.default_rng(seed)
    occupancy = blocks.occupancy.copy()
    is_homeless = (blocks.hhgq[:, 0] > 0) & (occupancy[:, 1] == 0)
    occupancy[is_homeless, 1] = 1
    occupancy[is_homeless & (occupancy[:, 0] > 0), 0] -= 1
    n_units_occupied = int(is_homeless.sum())
    identifier = np.array([f"{row:011d}" for row in range(len(blocks.geography))], dtype=object)
    n_minors_moved = n_units = 0
    with (
        replacing(persons_path) as persons_part,
        replacing(units_path) as units_part,
        pq.ParquetWriter(persons_part, _PERSONS, compression="zstd") as persons_writer,
        pq.ParquetWriter(units_part, _UNITS, compression="zstd") as units_writer,
    ):
        for part in _batches(blocks):
            homes, names = occupancy[part], identifier[part]
            persons, units, moved = _records(blocks, part, homes, names, n_units, random)
            persons_writer.write_table(persons)
            units_writer.write_table(units)
            n_minors_moved += moved
            n_units += len(units)
    _write_geography(blocks.geography, identifier, geography_path)
    return InputTables(persons_path, units_path, geography_path, n_units_occupied, n_minors_moved)


_PERSONS = pa.schema(
    [(name, pa.int64()) for name in ("MAFID", "QAGE")]
    + [(name, pa.string()) for name in ("QSEX", "CENHISP", "CENRACE", "QGQTYP")]
)
_UNITS = pa.schema(
    [("RTYPE", pa.string()), ("MAFID", pa.int64()), ("OIDTB", pa.string())]
    + [("QGQTYP", pa.string()), ("VACS", pa.int64())]
)


def _batches(blocks: PublishedBlocks) -> list[slice]:
    """Consecutive blocks of about `PERSONS_PER_BATCH` persons each."""
    population = np.cumsum(blocks.hhgq.sum(axis=1))
    wanted = np.arange(PERSONS_PER_BATCH, population[-1], PERSONS_PER_BATCH)
    cuts = np.unique([0, *np.searchsorted(population, wanted), len(population)])
    return [slice(int(a), int(b)) for a, b in zip(cuts[:-1], cuts[1:], strict=True)]


def _records(
    blocks: PublishedBlocks,
    part: slice,
    occupancy: np.ndarray,
    identifier: np.ndarray,
    n_units_before: int,
    random: np.random.Generator,
) -> tuple[pa.Table, pa.Table, int]:
    """The persons and the units of a batch of blocks, and how many minors left nursing facilities.

    Units are occupied and vacant housing units, then a facility for each type of quarters.
    """
    entries = blocks.persons[part].tocoo()
    block = np.repeat(entries.row, entries.data).astype(np.int64)
    cell = np.repeat(entries.col, entries.data)
    is_adult = np.unravel_index(cell, PUBLISHED_PERSONS.shape)[0]
    order = np.lexsort((random.random(len(block)), is_adult, block))
    block, cell, is_adult = block[order], cell[order], is_adult[order].astype(bool)
    _, hispanic, cenrace = np.unravel_index(cell, PUBLISHED_PERSONS.shape)
    n_blocks, n_types = len(occupancy), len(_IN_ORDER_OF_AGE)
    counts = blocks.hhgq[part][:, _IN_ORDER_OF_AGE].ravel()
    hhgq = np.repeat(np.tile(_IN_ORDER_OF_AGE, n_blocks), counts)
    is_moved = (hhgq == NURSING_FACILITY) & ~is_adult
    hhgq[is_moved] = OTHER_INSTITUTIONAL

    place = block * n_types + hhgq
    n_units = (np.bincount(place, minlength=n_blocks * n_types) > 0).astype(np.int64)
    n_units[::n_types] = occupancy.sum(axis=1)
    start = np.cumsum(n_units) - n_units
    place_of_unit = np.repeat(np.arange(len(n_units)), n_units)
    block_of_unit, hhgq_of_unit = np.divmod(place_of_unit, n_types)
    rank = np.arange(len(place_of_unit)) - start[place_of_unit]
    is_vacant = (hhgq_of_unit == 0) & (rank >= occupancy[block_of_unit, 1])

    # Households are dealt out over a block's occupied units in turn.
    unit, in_household = start[place], np.flatnonzero(hhgq == 0)
    own = block[in_household]
    rank = np.arange(len(own)) - np.searchsorted(own, np.arange(n_blocks))[own]
    unit[in_household] += rank % np.maximum(occupancy[own, 1], 1)
    persons = {
        "MAFID": unit + n_units_before + 1,
        "QAGE": np.where(is_adult, ADULT_AGE, MINOR_AGE),
        "QSEX": pa.repeat(pa.scalar("1"), len(unit)),
        "CENHISP": _DIGIT[hispanic + 1],
        "CENRACE": _RACE[cenrace],
        "QGQTYP": _CODE[hhgq],
    }
    units = {
        "RTYPE": np.where(hhgq_of_unit == 0, "2", "4").astype(object),
        "MAFID": np.arange(len(place_of_unit)) + n_units_before + 1,
        "OIDTB": identifier[block_of_unit],
        "QGQTYP": _CODE[hhgq_of_unit],
        "VACS": is_vacant.astype(np.int64),
    }
    return pa.table(persons, _PERSONS), pa.table(units, _UNITS), int(is_moved.sum())


def _write_geography(geography: pd.DataFrame, identifier: np.ndarray, path: Path) -> None:
    geocode = geography["block_geocode"].str
    parts = {"OIDTABBLK": identifier}
    position = 0
    for field in GEOGRAPHY_LAYOUT.fields[1:6]:
        first, position = position, position + (field.width or 0)
        parts[field.name] = geocode[first:position].to_numpy()
    table = pd.DataFrame(parts).join(geography.drop(columns="block_geocode"))
    with replacing(path) as part:
        table.to_csv(part, sep="|", index=False, lineterminator="\n")

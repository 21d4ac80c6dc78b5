"""Reading a published P.L. 94-171 release, and the block counts that it tells.

P1 to P4 tell exactly how many persons of each race combination, Hispanic origin and voting age a
block has, P5 how many live in each type of group quarters, and H1 how many housing units are
occupied; they do not tell how the first and the second go together.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
from scipy import sparse

from ....census.cef_2020 import CENSUS, cef_schema
from ....census.table_variables import table_cells
from ....runs.errors import InputRefused
from .header import HEADER_FIELDS
from .legacy import GEOGRAPHIC_HEADER, SEGMENT_FIELDS, SEGMENTS, segment_variables
from .levels import COLUMNS, OUTSIDE, SUMMARY_LEVELS
from .names import OWN_FIELDS, POINT

PUBLISHED_PERSONS = cef_schema("persons", ("votingage", "hispanic", "cenrace"))
"""What P1 to P4 tell of every person."""

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
    """Read the four files of a state in a folder, whatever their names end with.

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
    hhgq, occupancy = _hhgq(counts), counts[["H0010003", "H0010002"]].to_numpy()
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

    `records` are those of the whole header, `blocks` those of the blocks. What an entity goes by
    without a name of its own, such as a tract's number, is left out.
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
    """(n_blocks, n_cells) from the tables of all persons and of those of voting age."""
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
    (table,) = (entry for entry in CENSUS.tables if entry.name == "P1")
    levels = PUBLISHED_PERSONS.levels("cenrace")
    counted = [np.unique(levels[mask]) for mask in table_cells(table, PUBLISHED_PERSONS)]
    # Of several variables that count one level alone, which has a subtotal then, the last.
    own = {int(c[0]): number for number, c in enumerate(counted, 1) if len(c) == 1}
    return [own[level] for level in range(len(own))]


def _hhgq(counts: pd.DataFrame) -> np.ndarray:
    """(n_blocks, 8): P5 skips its subtotals of institutional and noninstitutional quarters."""
    types = [3, 4, 5, 6, 8, 9, 10]
    in_quarters = counts[[f"P005{number:04d}" for number in types]].to_numpy()
    household = counts["P0010001"].to_numpy() - in_quarters.sum(axis=1)
    return np.column_stack([household, in_quarters])


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
                f"{folder} has {what} named like ..{part}2020.pl; give it the four files of one "
                "state."
            )
    return {part: paths[0] for part, paths in found.items()}


def _encoding(path: Path) -> str:
    """UTF-8 if all bytes of a file are it, else Latin-1; some vintages are in either."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as stream:
        try:
            while block := stream.read(1 << 24):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "latin-1"
    return "utf-8"


def _read(path: Path, names: tuple[str, ...], integers: tuple[str, ...]) -> pd.DataFrame:
    """The records of a file; blanks around texts are stripped, as older files pad them."""
    types = dict.fromkeys(names, pa.string()) | dict.fromkeys(("LOGRECNO", *integers), pa.int64())
    try:
        table = pyarrow.csv.read_csv(
            path,
            read_options=pyarrow.csv.ReadOptions(column_names=names, encoding=_encoding(path)),
            parse_options=pyarrow.csv.ParseOptions(delimiter="|", quote_char=False),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=types, null_values=[], strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid:
        raise InputRefused(
            f"{path.name} does not have records of {len(names)} fields with whole numbers where "
            "they are due; take the published file."
        ) from None
    frame = table.to_pandas()
    for name in set(names) - {"LOGRECNO", *integers}:
        frame[name] = frame[name].str.strip()
    return frame

"""The redistricting tables of a release: recounted from its microdata, and repeated in P.L. 94-171.

Which row of microdata a variable counts is decided here from the numbering of the public tables,
not with the code that made them. The microdata are read county by county; memory is that of the
largest county, of the block groups, and of one state's P.L. 94-171 files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from validation.outcome import Failures, Outcome
from validation.run_checks import unusable_files_fail
from validation.run_files import UnusableRunFile

RELEASE = "release"
"""What the outcomes of these checks name in place of a universe."""

CHECKS: Mapping[str, str] = {
    "tables_count_the_microdata": "every variable of every entity, at eight summary levels",
    "pl94171_repeats_the_tables": "the four files of each state, record by record",
}
"""Each check's name, and what it found when it passed."""

_N_VARIABLES = {"P001": 71, "P002": 73, "P003": 71, "P004": 73, "P005": 10, "H001": 3}
_NEEDS = {
    "P001": ("CENRACE",),
    "P002": ("CENRACE", "CENHISP"),
    "P003": ("CENRACE", "VOTING_AGE"),
    "P004": ("CENRACE", "CENHISP", "VOTING_AGE"),
    "P005": ("GQTYPE_PL",),
    "H001": ("HH_STATUS",),
}
_GEOCODE = {
    "040_state": ("STATE",),
    "050_county": ("STATE", "COUNTY"),
    "060_county_subdivision": ("STATE", "COUNTY", "COUSUB"),
    "140_tract": ("STATE", "COUNTY", "TRACT"),
    "150_block_group": ("STATE", "COUNTY", "TRACT", "BLKGRP"),
    "160_place": ("STATE", "PLACE"),
    "280_aian_area": ("STATE", "AIANHH"),
    "750_block": ("STATE", "COUNTY", "TRACT", "BLOCK"),
}
"""File of each summary level and the parts of its geocode, in the order of the records."""
_OUTSIDE = {"PLACE": "99999", "AIANHH": "9999", "COUSUB": "99999"}
_SEGMENTS = {"00001": ("P001", "P002"), "00002": ("P003", "P004", "H001"), "00003": ("P005",)}
_N_HEADER_FIELDS = 97
_HEADER_POSITIONS = {"SUMLEV": 2, "LOGRECNO": 7, "GEOID": 8, "POP100": 90, "HU100": 91}
_N_SEGMENT_FIELDS = 5


@dataclass(frozen=True)
class Tabulated:
    """What to check of a release.

    geography : the geography frame: block_geocode, COUSUBFP, PLACEFP, AIANNHCE.
    universes : those whose microdata there are.
    has_legacy : whether there must be P.L. 94-171 files.
    is_private : whether the files must be without the stamp of a run that is not.
    """

    directory: Path
    geography: pd.DataFrame
    universes: tuple[str, ...]
    has_legacy: bool
    is_private: bool


def check_tabulations(release: Tabulated) -> tuple[Outcome, ...]:
    """Check the tables of a release, and its P.L. 94-171 files if it must have them."""
    failures = {name: Failures() for name in CHECKS}
    count, repeat = failures.values()
    with unusable_files_fail(count):
        _check_counts(release, count)
    if release.has_legacy:
        with unusable_files_fail(repeat):
            _check_legacy(release, repeat)
    else:
        del failures["pl94171_repeats_the_tables"]
    return tuple(found.outcome(name, RELEASE, CHECKS[name]) for name, found in failures.items())


def _check_counts(release: Tabulated, failures: Failures) -> None:
    tables = {stem: _read_table(release, stem) for stem in list(_GEOCODE)[:-1]}
    blocks = _read_table(release, "750_block")
    variables = [
        f"{table}{number:04d}"
        for universe in release.universes
        for table in _tables_of(release.directory, universe)
        for number in range(1, _N_VARIABLES[table] + 1)
    ]
    for stem, table in {**tables, "750_block": blocks}.items():
        if [name for name in table.column_names if name[:4] in _N_VARIABLES] != variables:
            raise UnusableRunFile(f"{stem}.parquet does not have the variables of the microdata")
    parts = _parts(release.geography)
    codes = {stem: _codes(parts, stem) for stem in _GEOCODE}
    entities = {stem: np.unique(codes[stem][codes[stem] != ""]) for stem in tables}
    for stem, table in tables.items():
        if table["GEOCODE"].to_pylist() != entities[stem].tolist():
            failures.add(f"{stem}.parquet does not have the entities of the geography")
            return
    shape = {stem: (len(geocodes), len(variables)) for stem, geocodes in entities.items()}
    sums = {stem: np.zeros(shape[stem], dtype=np.int64) for stem in tables}
    if blocks["GEOCODE"].to_pylist() != codes["750_block"].tolist():
        failures.add("750_block.parquet does not have the blocks of the geography")
        return
    for rows in _counties(parts):
        counted = _counted(release, rows, parts, variables)
        shown = _values(blocks.slice(rows.start, rows.stop - rows.start), variables)
        wrong = np.argwhere(counted != shown)
        if len(wrong):
            block, column = wrong[0]
            geocode = codes["750_block"][rows.start + block]
            failures.add(
                f"{variables[column]} of block {geocode} is not the count of its rows", len(wrong)
            )
        for stem, total in sums.items():
            code = codes[stem][rows]
            inside = code != ""
            np.add.at(total, np.searchsorted(entities[stem], code[inside]), counted[inside])
    for stem, total in sums.items():
        wrong = np.argwhere(total != _values(tables[stem], variables))
        if len(wrong):
            geocode = tables[stem]["GEOCODE"][int(wrong[0][0])]
            failures.add(
                f"{variables[wrong[0][1]]} of {geocode} in {stem}.parquet is not the sum over its "
                "blocks",
                len(wrong),
            )


def _read_table(release: Tabulated, stem: str) -> pa.Table:
    """A table, after its text has been compared with it."""
    folder = release.directory / "tables"
    parquet, text = folder / f"{stem}.parquet", folder / f"{stem}.csv"
    if not (parquet.is_file() and text.is_file()):
        raise UnusableRunFile(f"a table {stem} of the release is missing")
    table = pq.read_table(parquet)
    if not {"STATE", "GEOID", "GEOCODE"} <= set(table.column_names):
        raise UnusableRunFile(f"{parquet.name} does not have its columns of geography")
    stamp = (table.schema.metadata or {}).get(b"spineflow", b"") == b"NOT PRIVATE"
    with text.open("rb") as file:
        has_line = file.readline().rstrip(b"\n") == b"# NOT PRIVATE"
    if {stamp, has_line} != {not release.is_private}:
        raise UnusableRunFile(f"{stem} is not stamped as its run")
    table = table.replace_schema_metadata(None)
    repeated = pyarrow.csv.read_csv(
        text,
        read_options=pyarrow.csv.ReadOptions(skip_rows=int(has_line)),
        convert_options=pyarrow.csv.ConvertOptions(column_types=table.schema),
    )
    if not repeated.equals(table):
        raise UnusableRunFile(f"{stem}.csv and {stem}.parquet differ")
    return table


def _tables_of(directory: Path, universe: str) -> list[str]:
    """Tables that the columns of a universe's microdata tell."""
    columns = set(pq.read_schema(directory / f"mdf_{universe}.parquet").names)
    return [
        table
        for table, needed in _NEEDS.items()
        if columns.issuperset(needed) and (table[0] == "H") == (universe == "units")
    ]


def _parts(geography: pd.DataFrame) -> dict[str, np.ndarray]:
    geocode = geography["block_geocode"].to_numpy(dtype=object).astype("U16")
    digits = geocode.view("U1").reshape(-1, 16)

    def part(start: int, stop: int) -> np.ndarray:
        return np.ascontiguousarray(digits[:, start:stop]).view(f"U{stop - start}").ravel()

    columns = {"COUSUB": "COUSUBFP", "PLACE": "PLACEFP", "AIANHH": "AIANNHCE"}
    return {
        "STATE": part(0, 2),
        "COUNTY": part(2, 5),
        "TRACT": part(5, 11),
        "BLKGRP": part(11, 12),
        "BLOCK": part(12, 16),
        "BLOCK16": geocode,
        **{name: geography[column].to_numpy().astype("U5") for name, column in columns.items()},
    }


def _codes(parts: Mapping[str, np.ndarray], stem: str) -> np.ndarray:
    """Geocode of each block's entity; the empty text for none."""
    names = _GEOCODE[stem]
    if stem == "750_block" and (parts["BLOCK"].astype("U1") != parts["BLKGRP"]).any():
        names = ("STATE", "COUNTY", "TRACT", "BLKGRP", "BLOCK")
    code = parts[names[0]]
    for name in names[1:]:
        code = np.strings.add(code, parts[name])
    if names[-1] in _OUTSIDE:
        code = np.where(parts[names[-1]] == _OUTSIDE[names[-1]], "", code)
    return code


def _counties(parts: Mapping[str, np.ndarray]) -> Iterator[slice]:
    """Blocks of each county, which stand together."""
    county = np.strings.add(parts["STATE"], parts["COUNTY"])
    cuts = [0, *(np.flatnonzero(county[1:] != county[:-1]) + 1), len(county)]
    for start, stop in zip(cuts[:-1], cuts[1:], strict=True):
        yield slice(int(start), int(stop))


def _values(table: pa.Table, variables: Sequence[str]) -> np.ndarray:
    return np.column_stack([table[name].to_numpy() for name in variables])


def _counted(
    release: Tabulated, rows: slice, parts: Mapping[str, np.ndarray], variables: Sequence[str]
) -> np.ndarray:
    """(n_blocks, n_variables) of a county, counted from its microdata."""
    position = {name: column for column, name in enumerate(variables)}
    blocks = parts["BLOCK16"][rows]
    counts = np.zeros((len(blocks), len(variables)), dtype=np.int64)
    county = [
        ("TABBLKST", "=", str(parts["STATE"][rows.start])),
        ("TABBLKCOU", "=", str(parts["COUNTY"][rows.start])),
    ]
    geocode_columns = ["TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK"]
    for universe in release.universes:
        path = release.directory / f"mdf_{universe}.parquet"
        tables = _tables_of(release.directory, universe)
        codes = sorted({column for table in tables for column in _NEEDS[table]})
        table = pq.read_table(path, columns=[*geocode_columns, *codes], filters=county)
        groups = table.group_by([*geocode_columns, *codes]).aggregate([([], "count_all")])
        geocode = pc.binary_join_element_wise(*(groups[name] for name in geocode_columns), "")
        geocode = geocode.to_numpy(zero_copy_only=False).astype("U16")
        block = np.searchsorted(blocks, geocode)
        if (blocks[np.minimum(block, len(blocks) - 1)] != geocode).any():
            raise UnusableRunFile(f"{path.name} has a block that the geography does not have")
        coded = pa.table([groups[name] for name in codes], names=codes).to_pandas()
        distinct, kind = np.unique(
            coded.to_numpy(dtype=object).astype("U2"), axis=0, return_inverse=True
        )
        n = groups["count_all"].to_numpy()
        for number, values in enumerate(distinct.tolist()):
            chosen = kind.ravel() == number
            record = dict(zip(codes, values, strict=True))
            for name in _variables_of(record, tables):
                np.add.at(counts[:, position[name]], block[chosen], n[chosen])
    return counts


def _variables_of(record: Mapping[str, str], tables: Sequence[str]) -> Iterator[str]:
    """The variables that count a record with these codes, by number in the public tables."""
    race = int(record["CENRACE"]) if "CENRACE" in record else 0
    for table in tables:
        if table == "H001":
            if record["HH_STATUS"] != "0":
                yield from ("H0010001", "H0010002" if record["HH_STATUS"] == "1" else "H0010003")
        elif table == "P005":
            kind = int(record["GQTYPE_PL"])
            if kind:
                numbers = (1, 2, kind + 2) if kind <= 4 else (1, 7, kind + 3)
                yield from (f"P005{number:04d}" for number in numbers)
        elif table in ("P001", "P002") or record["VOTING_AGE"] == "2":
            if table in ("P001", "P003"):
                numbers = (1, *_RACE_NUMBERS[race])
            elif record["CENHISP"] == "2":
                numbers = (1, 2)
            else:
                numbers = (1, 3, *(number + 2 for number in _RACE_NUMBERS[race]))
            yield from (f"{table}{number:04d}" for number in numbers)


def _race_numbers() -> dict[int, tuple[int, ...]]:
    """Variables of P1 beside the first that count a CENRACE: subtotals, and its own."""
    first_code = {1: 1, 2: 7, 3: 22, 4: 42, 5: 57, 6: 63}
    first_number = {1: 3, 2: 11, 3: 27, 4: 48, 5: 64, 6: 71}
    numbers = {}
    for code in range(1, 64):
        size = max(size for size, first in first_code.items() if code >= first)
        own = first_number[size] + code - first_code[size]
        numbers[code] = (2, own) if size == 1 else (9, first_number[size] - 1, own)
    return numbers


_RACE_NUMBERS = _race_numbers()


def _check_legacy(release: Tabulated, failures: Failures) -> None:
    states = sorted(set(release.geography["block_geocode"].str[:2]))
    folder = release.directory / "pl94171"
    folders = [folder] if len(states) == 1 else sorted(p for p in folder.iterdir() if p.is_dir())
    if len(folders) != len(states):
        raise UnusableRunFile("pl94171 does not have a folder for each state")
    seen = set()
    for place in folders:
        files = _legacy_files(place, release.is_private)
        header = _read_legacy(files["geo"], _N_HEADER_FIELDS)
        geoid = header[_HEADER_POSITIONS["GEOID"]]
        state = geoid[0].as_py()[-2:]
        seen.add(state)
        tables = [_of_state(_read_table(release, stem), state) for stem in _GEOCODE]
        needed = {name for segment in _SEGMENTS for name in _segment_variables(segment)}
        if not all(needed <= set(table.column_names) for table in tables):
            raise UnusableRunFile("the tables do not have every variable of the segments")
        if geoid.to_pylist() != [code for table in tables for code in table["GEOID"].to_pylist()]:
            failures.add(f"{files['geo'].name} does not have the entities of the tables in order")
            continue
        totals = {"POP100": "P0010001", "HU100": "H0010001"}
        for field, name in totals.items():
            _compare(header[_HEADER_POSITIONS[field]], tables, name, files["geo"], failures)
        numbers = [str(number + 1) for number in range(header.num_rows)]
        if header[_HEADER_POSITIONS["LOGRECNO"]].to_pylist() != numbers:
            failures.add(f"{files['geo'].name} does not number its records from 1")
        for segment in _SEGMENTS:
            names = _segment_variables(segment)
            records = _read_legacy(files[segment], _N_SEGMENT_FIELDS + len(names))
            if records[_N_SEGMENT_FIELDS - 1].to_pylist() != numbers:
                failures.add(f"{files[segment].name} does not have the records of the header")
                continue
            for column, name in enumerate(names, _N_SEGMENT_FIELDS):
                _compare(records[column], tables, name, files[segment], failures)
    if seen != set(states):
        failures.add("pl94171 does not have the states of the geography")


def _segment_variables(segment: str) -> list[str]:
    return [
        f"{table}{number:04d}"
        for table in _SEGMENTS[segment]
        for number in range(1, _N_VARIABLES[table] + 1)
    ]


def _legacy_files(folder: Path, is_private: bool) -> dict[str, Path]:
    """The four files of a state by part; their names tell whether the run was private."""
    files = {}
    for part in ("geo", *_SEGMENTS):
        found = [path for path in folder.glob("*.pl") if path.name[2:].startswith(part)]
        if len(found) != 1 or ("NOT_PRIVATE" in found[0].name) == is_private:
            raise UnusableRunFile(f"{folder.name} does not have one file {part} of the right name")
        files[part] = found[0]
    return files


def _read_legacy(path: Path, n_fields: int) -> pa.Table:
    names = [str(position) for position in range(n_fields)]
    return pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(column_names=names),
        parse_options=pyarrow.csv.ParseOptions(delimiter="|", quote_char=False),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
        ),
    )


def _of_state(table: pa.Table, state: str) -> pa.Table:
    return table.filter(pc.equal(table["STATE"], state))


def _compare(
    column: pa.ChunkedArray,
    tables: Sequence[pa.Table],
    name: str,
    path: Path,
    failures: Failures,
) -> None:
    """The texts of a column are the numbers of a variable, level by level."""
    numbers = pa.chunked_array([chunk for table in tables for chunk in table[name].chunks])
    if not column.equals(pc.cast(numbers, pa.string())):
        failures.add(f"{name} in {path.name} is not that of the tables")

"""The redistricting tables of a release: recounted from its microdata, and repeated in P.L. 94-171.

Which rows of microdata a variable counts comes as plain facts, the codes that columns must have;
rows are counted by them here, not with the code that made the tables. Microdata and the table of
blocks are read county by county; memory is that of the largest county, of the block groups, and of
one state's P.L. 94-171 files.
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
from spineflow.validation.outcome import Failures, Outcome
from spineflow.validation.run_files import UnusableRunFile
from spineflow.validation.topdown.run_checks import unusable_files_fail

RELEASE = "release"
"""What the outcomes of these checks name in place of a universe."""

CHECKS: Mapping[str, str] = {
    "tables_count_the_microdata": "every variable of every entity, at eight summary levels",
    "pl94171_repeats_the_tables": "the four files of each state, record by record",
}
"""Each check's name, and what it found when it passed."""

_N_VARIABLES = {"P001": 71, "P002": 73, "P003": 71, "P004": 73, "P005": 10, "H001": 3}
_SEGMENTS = {"00001": ("P001", "P002"), "00002": ("P003", "P004", "H001"), "00003": ("P005",)}
_N_HEADER_FIELDS = 97
_HEADER_POSITIONS = {"SUMLEV": 2, "LOGRECNO": 7, "GEOID": 8, "POP100": 90, "HU100": 91}
_N_SEGMENT_FIELDS = 5
_ROWS_PER_BATCH = 1 << 13

COUNTY_DIGITS = 5
"""Characters of a block's geocode that name its county, whose blocks are checked together."""


@dataclass(frozen=True)
class Variable:
    """A variable of a table: it counts a universe's rows with one of the codes in every column."""

    name: str
    universe: str
    codes: Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Place:
    """Where codes of areas stand.

    levels : by stem of a level's file, the parts of its geocodes, in the order of the records.
    digits : characters of the block's geocode in a part, end exclusive. columns : columns of the
    geography frame with the other parts. outside : the code of areas in no entity, by part.
    microdata : columns of microdata with characters of the block's geocode, in their order.
    """

    levels: Mapping[str, tuple[str, ...]]
    digits: Mapping[str, tuple[int, int]]
    columns: Mapping[str, str]
    outside: Mapping[str, str]
    microdata: Mapping[str, tuple[int, int]]

    @property
    def finest(self) -> str:
        """The level whose entities are blocks."""
        return list(self.levels)[-1]


@dataclass(frozen=True)
class Tabulated:
    """What to check of a release.

    geography : the geography frame: block_geocode, and the columns of `place`.
    universes : those whose microdata there are.
    has_legacy : whether there must be P.L. 94-171 files.
    is_private : whether the files must be without the stamp of a run that is not.
    variables : those of all tables, in their order.
    """

    directory: Path
    geography: pd.DataFrame
    universes: tuple[str, ...]
    has_legacy: bool
    is_private: bool
    variables: tuple[Variable, ...]
    place: Place


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
    place = release.place
    for stem in place.levels:
        _compare_text(release, stem)
    variables = [variable.name for variable in release.variables]
    for stem in place.levels:
        schema = pq.read_schema(_table_file(release, stem))
        if [name for name in schema.names if pa.types.is_integer(schema.field(name).type)] != (
            variables
        ):
            raise UnusableRunFile(f"{stem}.parquet does not have the variables of the microdata")
    tables = {stem: pq.read_table(_table_file(release, stem)) for stem in list(place.levels)[:-1]}
    block_file = _table_file(release, place.finest)
    parts = _parts(release.geography, place)
    codes = {stem: _codes(parts, stem, place) for stem in place.levels}
    entities = {stem: np.unique(codes[stem][codes[stem] != ""]) for stem in tables}
    for stem, table in tables.items():
        if table["GEOCODE"].to_pylist() != entities[stem].tolist():
            failures.add(f"{stem}.parquet does not have the entities of the geography")
            return
    shape = {stem: (len(geocodes), len(variables)) for stem, geocodes in entities.items()}
    sums = {stem: np.zeros(shape[stem], dtype=np.int64) for stem in tables}
    shown_blocks = pq.read_table(block_file, columns=["GEOCODE"])["GEOCODE"]
    if shown_blocks.to_pylist() != codes[place.finest].tolist():
        failures.add(f"{place.finest}.parquet does not have the blocks of the geography")
        return
    counties = list(_counties(parts))
    sizes = [rows.stop - rows.start for rows in counties]
    for rows, shown in zip(counties, _rows(block_file, variables, sizes), strict=True):
        counted = _counted(release, parts["BLOCK16"][rows])
        wrong = np.argwhere(counted != shown)
        if len(wrong):
            block, column = wrong[0]
            geocode = codes[place.finest][rows.start + block]
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


def _table_file(release: Tabulated, stem: str) -> Path:
    return release.directory / "tables" / f"{stem}.parquet"


def _compare_text(release: Tabulated, stem: str) -> None:
    """Compare a table's text with its Parquet file; raises UnusableRunFile if they differ."""
    parquet = _table_file(release, stem)
    text = parquet.with_suffix(".csv")
    if not (parquet.is_file() and text.is_file()):
        raise UnusableRunFile(f"a table {stem} of the release is missing")
    with pq.ParquetFile(parquet) as file:
        schema = file.schema_arrow
        if not {"STATE", "GEOID", "GEOCODE"} <= set(schema.names):
            raise UnusableRunFile(f"{parquet.name} does not have its columns of geography")
        stamp = (schema.metadata or {}).get(b"spineflow", b"") == b"NOT PRIVATE"
        with text.open("rb") as lines:
            has_line = lines.readline().rstrip(b"\n") == b"# NOT PRIVATE"
        if {stamp, has_line} != {not release.is_private}:
            raise UnusableRunFile(f"{stem} is not stamped as its run")
        repeated = pyarrow.csv.open_csv(
            text,
            read_options=pyarrow.csv.ReadOptions(skip_rows=int(has_line), block_size=1 << 24),
            convert_options=pyarrow.csv.ConvertOptions(column_types=schema.remove_metadata()),
        )
        with repeated:
            if not _have_same_rows(file.iter_batches(batch_size=_ROWS_PER_BATCH), repeated):
                raise UnusableRunFile(f"{stem}.csv and {stem}.parquet differ")


def _have_same_rows(left: Iterator[pa.RecordBatch], right: Iterator[pa.RecordBatch]) -> bool:
    """Whether batches hold the same rows, wherever each side cuts them."""
    waiting = None
    for batch in left:
        while batch.num_rows:
            if waiting is None or not waiting.num_rows:
                waiting = next(right, None)
                if waiting is None:
                    return False
            n = min(batch.num_rows, waiting.num_rows)
            if not batch.slice(0, n).equals(waiting.slice(0, n)):
                return False
            batch, waiting = batch.slice(n), waiting.slice(n)
    return not (waiting is not None and waiting.num_rows) and not any(b.num_rows for b in right)


def _rows(path: Path, variables: Sequence[str], sizes: Sequence[int]) -> Iterator[np.ndarray]:
    """The values `(size, n_variables)` of so many rows of a table, one stretch after the other."""
    with pq.ParquetFile(path) as file:
        batches = file.iter_batches(batch_size=_ROWS_PER_BATCH, columns=list(variables))
        waiting = pa.Table.from_batches([], file.schema_arrow).select(list(variables))
        for size in sizes:
            while waiting.num_rows < size:
                parts = [waiting, pa.Table.from_batches([next(batches)])]
                waiting = pa.concat_tables([part.replace_schema_metadata(None) for part in parts])
            yield _values(waiting.slice(0, size), variables)
            waiting = waiting.slice(size)


def _parts(geography: pd.DataFrame, place: Place) -> dict[str, np.ndarray]:
    geocode = geography["block_geocode"].to_numpy(dtype=object).astype("U16")
    digits = geocode.view("U1").reshape(-1, 16)

    def part(start: int, stop: int) -> np.ndarray:
        return np.ascontiguousarray(digits[:, start:stop]).view(f"U{stop - start}").ravel()

    further = {name: geography[column].to_numpy() for name, column in place.columns.items()}
    return {
        "BLOCK16": geocode,
        **{name: part(*ends) for name, ends in place.digits.items()},
        **{name: values.astype("U5") for name, values in further.items()},
    }


def _codes(parts: Mapping[str, np.ndarray], stem: str, place: Place) -> np.ndarray:
    """Geocode of each block's entity; the empty text for none."""
    names = place.levels[stem]
    if stem == place.finest and (parts["BLOCK"].astype("U1") != parts["BLKGRP"]).any():
        names = (*names[:-1], "BLKGRP", names[-1])
    code = parts[names[0]]
    for name in names[1:]:
        code = np.strings.add(code, parts[name])
    if names[-1] in place.outside:
        code = np.where(parts[names[-1]] == place.outside[names[-1]], "", code)
    return code


def _counties(parts: Mapping[str, np.ndarray]) -> Iterator[slice]:
    """Blocks of each county, which stand together."""
    county = parts["BLOCK16"].astype(f"U{COUNTY_DIGITS}")
    cuts = [0, *(np.flatnonzero(county[1:] != county[:-1]) + 1), len(county)]
    for start, stop in zip(cuts[:-1], cuts[1:], strict=True):
        yield slice(int(start), int(stop))


def _values(table: pa.Table, variables: Sequence[str]) -> np.ndarray:
    return np.column_stack([table[name].to_numpy() for name in variables])


def _counted(release: Tabulated, blocks: np.ndarray) -> np.ndarray:
    """(n_blocks, n_variables) of a county, counted from its microdata."""
    counts = np.zeros((len(blocks), len(release.variables)), dtype=np.int64)
    place = release.place.microdata
    county = [
        (name, "=", str(blocks[0])[start:stop])
        for name, (start, stop) in place.items()
        if stop <= COUNTY_DIGITS
    ]
    for universe in release.universes:
        path = release.directory / f"mdf_{universe}.parquet"
        own = [(n, v) for n, v in enumerate(release.variables) if v.universe == universe]
        codes = sorted({column for _, variable in own for column in variable.codes})
        table = pq.read_table(path, columns=[*place, *codes], filters=county)
        groups = table.group_by([*place, *codes]).aggregate([([], "count_all")])
        geocode = pc.binary_join_element_wise(*(groups[name] for name in place), "")
        geocode = geocode.to_numpy(zero_copy_only=False).astype("U16")
        block = np.searchsorted(blocks, geocode)
        if (blocks[np.minimum(block, len(blocks) - 1)] != geocode).any():
            raise UnusableRunFile(f"{path.name} has a block that the geography does not have")
        coded = {name: groups[name].combine_chunks().dictionary_encode() for name in codes}
        values = {name: column.dictionary.to_pylist() for name, column in coded.items()}
        rows = {name: column.indices.to_numpy() for name, column in coded.items()}
        n = groups["count_all"].to_numpy()
        for position, variable in own:
            is_counted = np.ones(len(n), dtype=bool)
            for name, allowed in variable.codes.items():
                is_counted &= np.array([v in allowed for v in values[name]], dtype=bool)[rows[name]]
            np.add.at(counts[:, position], block[is_counted], n[is_counted])
    return counts


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
        needed = {name for segment in _SEGMENTS for name in _segment_variables(segment)}
        columns = [
            set(pq.read_schema(_table_file(release, stem)).names) for stem in release.place.levels
        ]
        if not all(map(needed.issubset, columns)):
            raise UnusableRunFile("the tables do not have every variable of the segments")
        totals = {"POP100": "P0010001", "HU100": "H0010001"}
        tables = _of_state(release, state, ["GEOID", *totals.values()])
        if geoid.to_pylist() != [code for table in tables for code in table["GEOID"].to_pylist()]:
            failures.add(f"{files['geo'].name} does not have the entities of the tables in order")
            continue
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
            tables = _of_state(release, state, names)
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


def _of_state(release: Tabulated, state: str, columns: Sequence[str]) -> list[pa.Table]:
    """A state's rows of some columns of every table, level by level."""
    return [
        pq.read_table(
            _table_file(release, stem), columns=list(columns), filters=[("STATE", "=", state)]
        )
        for stem in release.place.levels
    ]


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

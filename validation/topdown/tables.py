"""The tables of a release: recounted from the estimates of areas, with their margins.

A census that declares summary levels has a table for each, with the variables of all universes,
and repeats them in P.L. 94-171 files; these are checked state by state, and memory is that of the
largest. Any other has the tables that it declares by name, with rows for entities of some levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy import sparse

from ..outcome import Failures
from ..run_files import (
    UnusableRunFile,
    check_text,
    open_parquet,
    pairs_of_rows,
    positions,
    row_groups_with,
    rows_between,
    to_text,
    unusable_files_fail,
)
from .declaration import GEOGRAPHY, TOTAL, Cells, Declaration, incidence, paths
from .measurements import read_estimates
from .spine import SpineLevel

COUNT = "tables_count_the_microdata"
REPEAT = "pl94171_repeats_the_tables"
MARGINS = "margins_are_intervals_of_every_cell"
SUFFIX = "_margins"
STATE = "STATE"
WIDE_ROWS_PER_BATCH = 1 << 13
"""Rows of hundreds of columns that are read at once."""
IDENTITY = ("SUMLEV", "GEOID", "GEOCODE")
"""Columns by which a table of summary levels names an entity."""


def area_counts(
    declaration: Declaration, universe: str, geocode: pa.StringArray
) -> sparse.csr_array:
    """Estimates `(n, n_cells)` of areas with these geocodes; none of areas outside the spine."""
    last, cells = declaration.budget(universe).levels[-1], declaration.cells(universe)
    file = declaration.root / "spine" / universe / "blocks.parquet"
    found = pq.read_table(
        file, columns=["block_geocode", last], filters=pc.field("block_geocode").isin(geocode)
    )
    leaves, none = to_text(found[last]), np.zeros(found.num_rows, dtype=np.int64)
    level = SpineLevel(last, leaves, none, (), none, none > 0, none, is_part=True)
    own = read_estimates(declaration.root, universe, level, cells.n, Failures())
    area = positions(found["block_geocode"], geocode)
    return sparse.csr_array(incidence(area, len(geocode)).T @ own)


def variables_of(cells: Cells, table: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """The variables of a table: their words, and the mask `(n_cells,)` of the cells of each."""
    for rows in table["rows"]:
        inside = cells.where(table.get("where", {})) & cells.where(rows.get("where", {}))
        words = [
            f"{name}: {', '.join(map(_word, own if isinstance(own, list) else [own]))}"
            for name, own in rows.get("where", {}).items()
        ]
        if "each" not in rows:
            yield "; ".join(words) or "all records", inside
            continue
        grouping = cells.grouping(rows["each"])
        row = cells.rows(rows["each"])
        for number in np.unique(row[inside]).tolist():
            text = "; ".join([*words, f"{rows['each']}: {grouping.labels[number]}"])
            yield text, inside & (row == number)


def _word(level: Any) -> str:
    return f"{level['from']}-{level['to']}" if isinstance(level, Mapping) else str(level)


@dataclass(frozen=True)
class LevelTables:
    """The tables of summary levels of a run, below a folder."""

    declaration: Declaration
    release: Path

    @cached_property
    def levels(self) -> dict[str, list[str]]:
        """By stem of a level's files, the parts of its geocodes, in the order of the records."""
        return {
            f"{level['code']}_{level['name'].replace(' ', '_').lower()}": list(level["parts"])
            for level in self.declaration.census.get("summary_levels", ())
        }

    @property
    def finest(self) -> str:
        """The level whose entities are blocks."""
        return list(self.levels)[-1]

    @cached_property
    def variables(self) -> dict[str, dict[str, np.ndarray]]:
        """By universe, the variables that its attributes give, and the cells of each."""
        found: dict[str, dict[str, np.ndarray]] = {}
        is_asked = self.declaration.settings["release"]["tables"] and self.levels
        for universe in self.declaration.universes if is_asked else ():
            cells = self.declaration.cells(universe)
            for table in self.tables:
                if table["universe"] == universe and self._is_told(cells, table):
                    name = table["name"]
                    own = {
                        f"{name[0]}{int(name[1:]):03d}{number:04d}": mask
                        for number, (_, mask) in enumerate(variables_of(cells, table), 1)
                    }
                    found.setdefault(universe, {}).update(own)
        return found

    @property
    def tables(self) -> list[Mapping[str, Any]]:
        """The declared tables."""
        return list(self.declaration.census.get("tables", ()))

    def _is_told(self, cells: Cells, table: Mapping[str, Any]) -> bool:
        rows = table["rows"]
        names = {*table.get("where", ()), *(name for own in rows for name in own.get("where", ()))}
        return all(map(cells.tells, names | {own["each"] for own in rows if "each" in own}))

    @cached_property
    def names(self) -> list[str]:
        """Names of all variables, in the order of their columns."""
        return [name for own in self.variables.values() for name in own]

    def matrix(self, variables: Mapping[str, np.ndarray]) -> np.ndarray:
        """0/1 matrix `(n_cells, n_variables)` of a universe's cells and the variables of all."""
        none = np.zeros(len(next(iter(variables.values()))), dtype=bool)
        return np.array([variables.get(name, none) for name in self.names], dtype=np.int64).T

    @property
    def has_legacy(self) -> bool:
        """Whether there are P.L. 94-171 files, which need every table."""
        cells = {name: self.declaration.cells(name) for name in self.declaration.universes}
        return self.declaration.settings["release"]["pl94171"] and all(
            own["universe"] in cells and self._is_told(cells[own["universe"]], own)
            for own in self.tables
        )

    @cached_property
    def block_geocode(self) -> pa.StringArray:
        """Geocodes of all blocks of the geography."""
        file = self.declaration.root / GEOGRAPHY
        return to_text(pq.read_table(file, columns=["block_geocode"])["block_geocode"])

    @cached_property
    def _has_groups(self) -> bool:
        """Whether some block's number does not begin with the digit of its group."""
        own, group = (pc.utf8_slice_codeunits(self.block_geocode, i, i + 1) for i in (12, 11))
        return bool(pc.any(pc.not_equal(own, group), min_count=0).as_py())

    @cached_property
    def states(self) -> dict[str, int]:
        """Number of blocks of each state, by FIPS codes in their order."""
        found = pc.value_counts(pc.utf8_slice_codeunits(self.block_geocode, 0, 2))
        return dict(sorted(zip(*(own.to_pylist() for own in found.flatten()), strict=True)))

    @property
    def n_states(self) -> int:
        """Number of states, one where the geography cannot be read."""
        with unusable_files_fail():
            return len(self.states)
        return 1

    def file(self, stem: str) -> Path:
        """The Parquet file of a level."""
        return self.release / "tables" / f"{stem}.parquet"

    def share(self, number: int, n: int) -> list[str]:
        """Share i of n of the states, of successive ones with about as many blocks."""
        ends = np.cumsum([0, *self.states.values()])
        group = (ends[:-1] + ends[1:]) * n // (2 * ends[-1])
        return [state for state, own in zip(self.states, group, strict=True) if own == number]

    def codes(self, geography: pd.DataFrame, stem: str) -> np.ndarray:
        """Geocode of each block's entity, the empty text for none. That of a block has the digit of
        its group before its number, where some block's number does not begin with it.
        """
        parts = self.levels[stem]
        if stem == self.finest and self._has_groups:
            parts = [*parts[:-1], "BLKGRP", parts[-1]]
        geocode = geography["block_geocode"].astype(str)
        code, outside = np.full(len(geocode), "", dtype=object), None
        for name in parts:
            part = self.declaration.census["code_parts"][name]
            own = (
                geocode.str.slice(*part["digits"])
                if "digits" in part
                else geography[part["column"]]
            )
            code, outside = code + own.to_numpy(dtype=object), part.get("outside")
        return code if outside is None else np.where(own == outside, "", code)


def check_files(tables: LevelTables, failures: Failures) -> None:
    """Check whole files: text against Parquet, variables, and the order of states.

    Raises UnusableRunFile for other variables than the release has.
    """
    for stem in tables.levels:
        parquet = tables.file(stem)
        with open_parquet(parquet, [STATE, *IDENTITY]) as file:
            schema = file.schema_arrow
            if [own.name for own in schema if pa.types.is_integer(own.type)] != tables.names:
                raise UnusableRunFile(f"{parquet.name} has other variables than the microdata")
            column = file.read([STATE])[STATE].combine_chunks().cast(pa.string())
        check_text(
            parquet.with_suffix(""),
            failures,
            is_private=tables.declaration.is_private,
            rows_per_batch=WIDE_ROWS_PER_BATCH,
        )
        runs = pc.run_end_encode(column).values.to_pylist()
        if runs != [state for state in tables.states if state in runs]:
            failures.add(_entity_message(tables, stem))


def _entity_message(tables: LevelTables, stem: str) -> str:
    what = "blocks" if stem == tables.finest else "entities"
    return f"{stem}.parquet does not have the {what} of the geography"


def rows_of_states(
    file: pq.ParquetFile, states: Sequence[str], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Some columns of the rows of successive states in a table of hundreds of columns, in batches;
    reads only the row groups that may have them."""
    first, last, names = min(states), max(states), [STATE, *columns]
    groups = row_groups_with(file, STATE, lambda low, high: low <= last and first <= high)
    # Batches have few rows: threads would take longer to be handed the columns.
    for batch in file.iter_batches(WIDE_ROWS_PER_BATCH, groups, names, use_threads=False):
        is_own = pc.is_in(batch.column(STATE).cast(pa.string()), pa.array(states, pa.string()))
        own = batch if pc.all(is_own).as_py() else batch.filter(is_own)
        if own.num_rows:
            yield own.select(list(columns))


def check_states(tables: LevelTables, states: Sequence[str], failures: Failures) -> None:
    """The rows that some states have in every table: entities, and sums of their blocks' counts.
    Where a state has more blocks than a share, other shares have no state."""
    if not states:
        return
    digits = pc.utf8_slice_codeunits(pc.field("block_geocode"), 0, 2)
    is_here = digits.isin(pa.array(states, pa.large_string()))
    geography = pq.read_table(tables.declaration.root / GEOGRAPHY, filters=is_here).to_pandas()
    state, geocode = geography["block_geocode"].str[:2].astype(str), geography["block_geocode"]
    counted = [
        (area_counts(tables.declaration, universe, pa.array(geocode, pa.string())), variables)
        for universe, variables in tables.variables.items()
    ]
    for stem in tables.levels:
        code = tables.codes(geography, stem).astype(str)
        entities, entity = np.unique(np.where(code == "", "", state + code), return_inverse=True)
        if entities[0] == "":
            entities, entity = entities[1:], entity - 1
        into = incidence(entity, entities.size).T
        sums = [
            (sparse.csr_array(into @ counts), tables.matrix(variables))
            for counts, variables in counted
        ]
        n_seen, names = 0, [*IDENTITY, *tables.names]
        with open_parquet(tables.file(stem), names) as file:
            for batch in rows_of_states(file, states, names):
                here = slice(n_seen, n_seen + batch.num_rows)
                n_seen += batch.num_rows
                # Entities are in the order of their states; a code need not begin with its state's.
                codes, number = [name[2:] for name in entities[here].tolist()], stem[:3]
                due_ids = [number] * len(codes), [f"{number}0000US{code}" for code in codes], codes
                if tuple(batch.column(name).to_pylist() for name in IDENTITY) != due_ids:
                    n_seen = -1
                    break
                due = sum(own[here] @ matrix for own, matrix in sums)
                found = np.column_stack([batch.column(name).to_numpy() for name in tables.names])
                wrong = np.argwhere(due != found)
                if len(wrong):
                    place, column = wrong[0]
                    failures.add(
                        f"{tables.names[column]} of {codes[place]} in {stem}.parquet is not the "
                        "sum over its blocks",
                        len(wrong),
                    )
        if n_seen != entities.size:
            failures.add(_entity_message(tables, stem))


def named_tables(declaration: Declaration) -> list[Mapping[str, Any]]:
    """The tables that a run releases by their declared names."""
    is_of_levels = bool(declaration.census.get("summary_levels"))
    is_asked = declaration.settings["release"]["tables"] and not is_of_levels
    return list(declaration.census.get("tables", ())) if is_asked else []


def check_named_tables(declaration: Declaration, release: Path, failures: Failures) -> None:
    """Each named table has every answer of every entity of its levels, counted from the estimates.

    Raises UnusableRunFile for missing files or other columns.
    """
    for table in named_tables(declaration):
        with unusable_files_fail(failures):
            _check_named_table(declaration, table, release, failures)


def _check_named_table(
    declaration: Declaration, table: Mapping[str, Any], release: Path, failures: Failures
) -> None:
    rows, stem = _named_table(declaration, table), release / "tables" / table["name"]
    is_private = declaration.is_private
    check_text(stem, failures, is_private=is_private, delimiter="|", names=list(rows))
    schema = pa.schema({name: pa.int64() if name == "count" else pa.string() for name in rows})
    due = pa.Table.from_pandas(rows, schema, preserve_index=False)
    found = pq.read_table(stem.with_suffix(".parquet")).cast(schema)
    if found.num_rows != due.num_rows:
        failures.add(f"{stem.name}.parquet does not have the entities of its levels")
        return
    for name in schema.names:
        if not found[name].equals(due[name]):
            failures.add(f"{name} in {stem.name}.parquet differs from the estimates")


def _named_table(declaration: Declaration, table: Mapping[str, Any]) -> pd.DataFrame:
    """The rows of a named table, counted from the estimates."""
    areas = pq.read_table(declaration.root / GEOGRAPHY).to_pandas()
    counts = area_counts(
        declaration, table["universe"], pa.array(areas["block_geocode"], pa.string())
    )
    counted, labels = _answers_of(declaration.cells(table["universe"]), table)
    answers = counts @ counted
    of_levels = declaration.census["geography"].get("entities", {})
    described = [
        name
        for name in ("name", "latitude", "longitude")
        if any(name in of_levels.get(level, ()) for level in table["levels"])
    ]
    frames = []
    for level in table["levels"]:
        number, codes, first = _entities(declaration, areas, level)
        columns = [of_levels.get(level, {}).get(name) for name in described]
        texts = [areas[own].fillna("").iloc[first].array if own else "" for own in columns]
        entities = {"level": level, "code": codes, **dict(zip(described, texts, strict=True))}
        rows = pd.DataFrame(entities).loc[np.repeat(np.arange(len(codes)), answers.shape[1])]
        rows = rows.assign(**{name: np.tile(own, len(codes)) for name, own in labels.items()})
        sums = (incidence(number, len(codes)).T @ answers).toarray()
        frames.append(rows.assign(count=sums.ravel()))
    return pd.concat(frames, ignore_index=True)


def _answers_of(
    cells: Cells, table: Mapping[str, Any]
) -> tuple[sparse.csr_array, dict[str, list[str]]]:
    """Cells `(n_cells, n)` of every answer of a named table, and the labels of its answers."""
    if table.get("rows"):
        words, masks = zip(*variables_of(cells, table), strict=True)
        numbers = [str(number) for number in range(1, len(words) + 1)]
        counted = sparse.csr_array(np.array(masks, dtype=np.int64).T)
        return counted, {"variable": numbers, "label": list(words)}
    query, inside = table.get("query", TOTAL), cells.where(table.get("where", {}))
    rows = np.unique(cells.rows(query)[inside])
    parts, labels, rest = cells.parts(query), {}, rows
    for name, grouping in reversed(parts):
        labels[name] = [grouping.labels[i] for i in rest % len(grouping.labels)]
        rest = rest // len(grouping.labels)
    return cells.counted(query, inside)[:, rows], dict(reversed(labels.items()))


def _entities(
    declaration: Declaration, areas: pd.DataFrame, level: str
) -> tuple[np.ndarray, list[str], np.ndarray]:
    """Number of each area's entity of a level, -1 for none, their codes, and their first areas."""
    root, *below = declaration.geolevels
    below = [name for name in below if name in areas.columns]
    if level == root:
        return np.zeros(len(areas), dtype=np.int64), ["0"], np.zeros(1, dtype=np.int64)
    names = below[: below.index(level) + 1] if level in below else [level]
    own = areas[names].fillna("")
    codes = own[level].to_numpy(dtype=object)
    if level in below:
        codes = np.array(paths([pa.array(own[name], pa.string()) for name in names]).to_pylist())
    inside = np.flatnonzero(own[level] != "")
    number = np.full(len(areas), -1)
    number[inside] = own.iloc[inside].groupby(names, sort=True).ngroup()
    first = inside[np.unique(number[inside], return_index=True)[1]]
    return number, codes[first].tolist(), first


def margin_groups(declaration: Declaration, tables: LevelTables) -> list[list[str]]:
    """Stems of the tables that have margins together or not at all: those of summary levels, and
    the named tables of each universe."""
    named = named_tables(declaration)
    of_universes = [
        [table["name"] for table in named if table["universe"] == universe]
        for universe in declaration.universes
    ]
    return [list(tables.levels) if tables.names else [], *of_universes]


def check_margins(
    release: Path,
    groups: Sequence[Sequence[str]],
    failures: Failures,
    share: tuple[int, int] = (0, 1),
) -> None:
    """Check the margins of the tables of a release, an interval of counts for every cell; of the
    rows of each, the share i of n.

    Margins are in a file next to a table, as `<table>_margins`, in the same rows and order.
    Variables that are columns have two columns of their own, with `_LOWER` and `_UPPER`; in a table
    whose answers are rows, the column `count` has `lower` and `upper`.
    """
    found = {path.stem for path in (release / "tables").glob(f"*{SUFFIX}.*")}
    due = [[f"{stem}{SUFFIX}" for stem in group] for group in groups]
    for stem in {own for group in due if found & {*group} for own in group} | found:
        table, margins = (
            release / "tables" / f"{own}.parquet" for own in (stem.removesuffix(SUFFIX), stem)
        )
        if not (table.is_file() and margins.is_file() and margins.with_suffix(".csv").is_file()):
            failures.add(f"{stem} is not there as table, Parquet and text")
        else:
            _check_margins(table, margins, failures, share)


def _check_margins(table: Path, margins: Path, failures: Failures, share: tuple[int, int]) -> None:
    """Compare a table and its margins, some rows at a time: both may be larger than memory."""
    with pq.ParquetFile(table) as cells, pq.ParquetFile(margins) as ends:
        schema = cells.schema_arrow
        counted = [field.name for field in schema if pa.types.is_integer(field.type)]
        codes = [name for name in schema.names if name not in counted]
        pairs = {name: (f"{name}_LOWER", f"{name}_UPPER") for name in counted}
        if counted == ["count"]:
            pairs = {"count": ("lower", "upper")}
        fields = ends.schema_arrow  # Made anew at every call.
        if fields.names != [*codes, *(end for pair in pairs.values() for end in pair)]:
            failures.add(f"{margins.name} does not have two columns for each of {table.name}")
            return
        kinds = [fields.field(end).type for pair in pairs.values() for end in pair]
        if not all(map(pa.types.is_integer, kinds)):
            failures.add(f"{margins.name} has an interval that is not of whole numbers")
        if ends.metadata.num_rows != cells.metadata.num_rows:
            failures.add(f"{margins.name} does not have the rows of {table.name}")
            return
        first, stop = (
            cells.metadata.num_rows * place // share[1] for place in (share[0], share[0] + 1)
        )
        own = range(first, stop)
        for shown, interval in pairs_of_rows(
            rows_between(cells, own, codes, WIDE_ROWS_PER_BATCH),
            rows_between(ends, own, None, WIDE_ROWS_PER_BATCH),
        ):
            if shown is None or interval is None:
                failures.add(f"{margins.name} does not have the rows of {table.name}")
                return
            plain = pa.schema([(field.name, _plain(field.type)) for field in shown.schema])
            if not shown.cast(plain).equals(interval.select(codes).cast(plain)):
                failures.add(f"{margins.name} does not have the rows of {table.name}")
                return
            # Whole numbers as they are where none is missing.
            is_missing = any(interval[end].null_count for pair in pairs.values() for end in pair)
            lower, upper = (
                interval.select([pair[end] for pair in pairs.values()])
                .to_tensor(null_to_nan=is_missing, row_major=False)
                .to_numpy()
                for end in (0, 1)
            )
            wrong = (lower > upper) | (lower < 0) | (np.isnan(lower) != np.isnan(upper))
            for name, n_wrong in zip(pairs, wrong.sum(axis=0).tolist(), strict=True):
                if n_wrong:
                    failures.add(
                        f"{name} has an interval in {margins.name} that ends before it begins or "
                        "begins below zero",
                        n_wrong,
                    )


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_dictionary(kind) else kind

"""The tables of a run: from its estimates and public geography to its release.

A census that declares summary levels has a table for each, with the variables of all universes; any
other has the tables that it declares by name, a file for each, with its levels.

Margins of published cells: an interval for every count of the tables of a release.

`tables/<file>_margins.parquet` and `.csv` accompany a table and have its rows in its order. For the
redistricting tables every variable has two columns, such as P0010001_LOWER and P0010001_UPPER; for
a declared table, whose answers are rows, they are `lower` and `upper`.

An interval holds the truth with a probability of 90 % at least. It is the bounded kind of
`tasks.topdown.intervals.intervals`: from all noisy measurements, the declarations, and the fact
that counts are not negative. It is no interval around the published count, which may lie outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
from scipy import sparse

from ....census.areas import descriptions, entities
from ....census.cef_2020 import CENSUS
from ....census.declarations import SummaryLevelDeclaration, TableDeclaration
from ....census.invariants import read_geography
from ....runs.directory import RunDirectory
from ....runs.stamps import WrittenFiles, concatenate_rows, write_rows
from ...intervals.areas import BlockAreas
from ...intervals.intervals import CellAnswers, PublishedCells
from ...intervals.run_posterior import RunPosterior
from ...paths import geography_file
from ...settings import TopdownSettings
from ...spine.files import spine_of
from ...spine.shards import RunUniverse
from ...spine.subspines import n_pieces, states_of_subspine
from .legacy import legacy_files, write_state
from .levels import SUMMARY_LEVELS, entities_of, tables_of, variable_matrix, variables_of
from .tables import (
    LABELLED,
    TABLES,
    LevelTable,
    States,
    TableAnswers,
    entity_columns,
    state_tabulations,
    table_files,
    text_form,
    write_declared_table,
    write_tables,
)

MARGIN_LEVEL = 0.9
"""Probability with which a margin's interval holds the truth, as usual for margins of error."""
SUFFIX = "_margins"
LOWER, UPPER = "lower", "upper"


def write_table_margins(
    settings: TopdownSettings,
    found: Mapping[str, RunPosterior],
    geography: pd.DataFrame,
    directory: Path,
    level: SummaryLevelDeclaration,
) -> WrittenFiles:
    """Write the margins of the redistricting tables of a summary level below `directory`.

    `found` has the posterior of each universe, in the order of the tables.
    """
    # Uninhabitable blocks are on no spine.
    blocks, of_level = pd.Index(geography["block_geocode"]), entities_of(geography, level)
    variables, answers = list[str](), []
    for name, own in found.items():
        schema = settings.schema_of(name)
        variables += variables_of(schema)
        cells = PublishedCells(own, sparse.csr_array(variable_matrix(schema).T))
        row = blocks.get_indexer(own.spine.block_geocode)
        answers.append(cells.of_areas(_areas(of_level.block_entity[row], len(of_level))))
    columns = entity_columns(of_level)
    kinds = {name: column.type for name, column in columns.items()}
    kinds |= dict.fromkeys(_end_columns(variables), pa.int64())
    batches = _table_batches(columns, variables, answers)
    stem = directory / TABLES / f"{level.stem}{SUFFIX}"
    return write_rows(stem, pa.schema(kinds), batches, text_form(columns))


def _table_batches(
    columns: Mapping[str, pa.Array],
    variables: Sequence[str],
    answers: Sequence[Iterator[tuple[int, CellAnswers]]],
) -> Iterator[dict[str, pa.Array]]:
    """Runs of entities, from the answers of each universe to them."""
    for parts in zip(*answers, strict=True):
        (start, first), *_ = parts
        n = len(first.estimate)
        codes = {name: column.slice(start, n) for name, column in columns.items()}
        yield codes | _variable_columns(variables, [part for _, part in parts])


def _variable_columns(
    variables: Sequence[str], parts: Sequence[CellAnswers]
) -> dict[str, pa.Array]:
    """The two columns of every variable, from the answers of each universe."""
    columns = []
    for part in parts:
        interval = part.intervals(MARGIN_LEVEL)
        ends = interval.bounded_lower, interval.bounded_upper
        # A column of a table is a row here: copied once, read in a row.
        lower, upper, is_null = (np.ascontiguousarray(kind.T) for kind in (*ends, ~part.is_known))
        for place, nulls in enumerate(is_null):
            mask = nulls if nulls.any() else None  # Arrow is slow with an empty mask.
            columns += [pa.array(end[place], mask=mask) for end in (lower, upper)]
    return dict(zip(_end_columns(variables), columns, strict=True))


def _end_columns(variables: Sequence[str]) -> list[str]:
    return [f"{name}_{end.upper()}" for name in variables for end in (LOWER, UPPER)]


def write_declared_margins(
    settings: TopdownSettings,
    table: TableDeclaration,
    found: RunPosterior,
    areas: pd.DataFrame,
    directory: Path,
) -> WrittenFiles:
    """Write the margins of one declared table, from the posterior of its universe."""
    asked, declared = TableAnswers.of(settings, table), settings.compiled_census.geography
    kinds = asked.kinds | {LOWER: pa.int64(), UPPER: pa.int64()}
    cells = PublishedCells(found, asked.counted)

    def batches() -> Iterator[dict[str, pa.Array]]:
        for level in table.levels:
            number, code = entities(areas, declared.geolevels, level)
            described = descriptions(areas, declared, level)
            of_level = _areas(np.asarray(number)[found.spine.block_row], len(code))
            for start, part in cells.of_areas(of_level):
                numbers = np.arange(start, start + len(part.estimate))
                yield asked.columns(level, code, numbers, described) | _ends(part)

    stem = directory / TABLES / f"{table.name}{SUFFIX}"
    return write_rows(stem, pa.schema(kinds), batches(), LABELLED)


def _ends(part: CellAnswers) -> dict[str, pa.Array]:
    """The ends of the intervals of some areas' answers, one after the other."""
    interval, is_null = part.intervals(MARGIN_LEVEL), ~part.is_known.ravel()
    ends = {LOWER: interval.bounded_lower, UPPER: interval.bounded_upper}
    return {name: pa.array(end.ravel(), mask=is_null) for name, end in ends.items()}


def _areas(of_block: np.ndarray, n_entities: int) -> BlockAreas:
    """Entities as lists of blocks of the spine, from the entity of each block."""
    return BlockAreas.of_pairs(n_entities, np.arange(len(of_block)), of_block)


def tabulated_universes(settings: TopdownSettings) -> tuple[str, ...]:
    """Universes whose schemas determine at least one of the tables of summary levels, if tables are
    asked for."""
    is_wanted = settings.release.tables and settings.compiled_census.summary_levels
    universes = settings.run.universes if is_wanted else ()
    return tuple(name for name in universes if tables_of(settings.schema_of(name)))


def has_tables(settings: TopdownSettings) -> bool:
    """Whether the release has tables."""
    census = settings.compiled_census
    named = census.tables if settings.release.tables and not census.summary_levels else ()
    return bool(named or tabulated_universes(settings))


def has_legacy(settings: TopdownSettings) -> bool:
    """Whether there will be P.L. 94-171 files, which need every table."""
    tables = {
        table
        for universe in tabulated_universes(settings)
        for table in tables_of(settings.schema_of(universe))
    }
    return settings.release.pl94171 and tables == {table.name for table in CENSUS.tables}


def tables_of_run(run: RunDirectory, settings: TopdownSettings) -> NamedTables | LevelTables:
    """The tables of a run in the form that its census declares."""
    if settings.compiled_census.summary_levels:
        return LevelTables(run, settings)
    return NamedTables(run, settings)


class LevelTables:
    """The tables of summary levels of a run, and their margins; all universes share the files."""

    def __init__(self, run: RunDirectory, settings: TopdownSettings) -> None:
        self.run, self.settings = run, settings
        self.together = [settings.run.universes]
        """Universes in the same files."""

    @cached_property
    def states(self) -> States:
        """The states of the run's geography."""
        return States.read(self.run)

    @property
    def n_pieces(self) -> int:
        """Number of pieces in which workers write the tables, each of a subspine."""
        return n_pieces(self.run, self.settings, tabulated_universes(self.settings)[0])

    def files(self) -> list[Path]:
        """Paths of the tables in the order in which they are written."""
        states = self.states.fips
        return [*table_files(self.run.unchecked_release, _STEMS), *self._legacy_files(states)]

    def write(self) -> list[Path]:
        """Write the tables from the estimates, using the pieces that exist; returns the files."""
        of, place = self.n_pieces, self.run.unchecked_release
        if of == 1:
            self._write(place, self.states.fips)
        else:
            folders = [self.write_piece(number, of) for number in range(of)]
            for stem in _STEMS:
                concatenate_rows(place / TABLES / stem, [one / TABLES / stem for one in folders])
        return self.files()

    def write_piece(self, number: int, of: int) -> Path:
        """Write the tables of a subspine's states, unless they exist, with their P.L. 94-171 files;
        returns the folder of the tables."""
        folder = self.run.piece(TABLES, number, of)
        spine = spine_of(self.run, tabulated_universes(self.settings)[0])
        states = states_of_subspine(spine, number, self.states.fips)
        files = [*table_files(folder, _STEMS), *self._legacy_files(states)]
        if not all(path.exists() for path in files):
            self._write(folder, states)
        return folder

    def _write(self, folder: Path, states: Sequence[str]) -> None:
        """Write the tables of some states into a folder, and their P.L. 94-171 files."""
        run, settings = self.run, self.settings

        def tabulations() -> Iterator[list[LevelTable]]:
            chosen = replace(self.states, fips=tuple(states))
            parts = state_tabulations(run, settings, tabulated_universes(settings), chosen)
            for fips, tables in zip(states, parts, strict=True):
                if has_legacy(settings):
                    write_state(tables, self._legacy_files([fips]))
                yield tables

        write_tables(tabulations(), folder)

    def _legacy_files(self, states: Sequence[str]) -> list[Path]:
        """The P.L. 94-171 files of some states, if there are any."""
        if not has_legacy(self.settings):
            return []
        files = legacy_files(self.run.unchecked_release, self.states.fips)
        return [path for fips in states for path in files[fips]]

    def margin_pieces(self) -> list[str]:
        """Tables with margins, each a piece, the longest first."""
        return [*reversed(_STEMS)] if tabulated_universes(self.settings) else []

    def universes_of(self, piece: str) -> tuple[str, ...]:
        """The universes whose posteriors determine a piece of the margins."""
        return tabulated_universes(self.settings)

    def margin_files(self, piece: str) -> list[Path]:
        """Paths of a piece of the margins."""
        return table_files(self.run.unchecked_release, [piece], SUFFIX)

    def write_margins(self, piece: str, found: Mapping[str, RunPosterior]) -> None:
        """Write a piece of the margins, from the posteriors of its universes."""
        own = {name: found[name] for name in tabulated_universes(self.settings)}
        geography, folder = read_geography(geography_file(self.run)), self.run.unchecked_release
        level = next(level for level in SUMMARY_LEVELS.values() if level.stem == piece)
        write_table_margins(self.settings, own, geography, folder, level)


_STEMS = [level.stem for level in SUMMARY_LEVELS.values()]
"""Names of the files of the summary levels, without endings."""


class NamedTables:
    """The named tables of a run, and their margins; each universe has files of its own."""

    def __init__(self, run: RunDirectory, settings: TopdownSettings) -> None:
        self.run, self.settings = run, settings
        self.folder = run.unchecked_release
        self.together = [(universe,) for universe in settings.run.universes]
        """Universes in the same files."""

    def tables(self) -> Sequence[TableDeclaration]:
        """All declared tables, if tables are requested."""
        return self.settings.compiled_census.tables if self.settings.release.tables else ()

    @property
    def n_pieces(self) -> int:
        """Number of pieces in which workers write the tables."""
        return 1

    def files(self) -> list[Path]:
        """Paths in the order in which they are written."""
        return table_files(self.folder, [table.name for table in self.tables()])

    def write_piece(self, number: int, of: int) -> Path:
        """Raises NotImplementedError: there is one piece."""
        raise NotImplementedError

    def write(self) -> list[Path]:
        """Write all tables from the estimates; returns the files."""
        areas, files = read_geography(geography_file(self.run)), list[Path]()
        for table in self.tables():
            counts = RunUniverse(self.run, self.settings, table.universe).area_counts()
            written = write_declared_table(self.settings, table, counts, areas, self.folder)
            files += [written.parquet, written.csv]
        return files

    def margin_pieces(self) -> list[str]:
        """Tables with margins, each a piece."""
        return [
            table.name
            for (universe,) in self.together
            for table in self.tables()
            if table.universe == universe
        ]

    def universes_of(self, piece: str) -> tuple[str, ...]:
        """The universes whose posteriors determine a table's margins."""
        return (self._table(piece).universe,)

    def margin_files(self, piece: str) -> list[Path]:
        """Paths of the margins of a table."""
        return table_files(self.folder, [piece], SUFFIX)

    def write_margins(self, piece: str, found: Mapping[str, RunPosterior]) -> None:
        """Write the margins of a table, from the posteriors of its universes."""
        table, areas = self._table(piece), read_geography(geography_file(self.run))
        write_declared_margins(self.settings, table, found[table.universe], areas, self.folder)

    def _table(self, name: str) -> TableDeclaration:
        return next(table for table in self.tables() if table.name == name)

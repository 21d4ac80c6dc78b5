"""Write the tables of a release, and their margins: an interval for every count.

Tables are sums of a run's estimates over areas of its public geography. A census that declares
summary levels has a table for each level, with the variables of all universes. Any other census has
the tables that it declares by name, each with its levels.

The margins of a table are in `tables/<file>_margins.parquet` and `.csv`, with the rows of the table
in its order. For the redistricting tables every variable has two columns, such as P0010001_LOWER
and P0010001_UPPER; a declared table, whose answers are rows, has columns `lower` and `upper`.

An interval contains the true count with a probability of at least 90 %. It follows from all noisy
measurements, the declarations and the fact that counts are not negative, not from the published
count, which may lie outside (the bounded intervals of `tasks.topdown.intervals.intervals`).
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
"""Least probability that an interval contains the true count, usual for margins of error."""
SUFFIX = "_margins"
"""Ending of the names of files of margins."""
LOWER, UPPER = "lower", "upper"


def write_table_margins(
    settings: TopdownSettings,
    posteriors: Mapping[str, RunPosterior],
    geography: pd.DataFrame,
    directory: Path,
    level: SummaryLevelDeclaration,
) -> WrittenFiles:
    """Write the margins of the redistricting tables of a summary level below `directory`.

    `posteriors` are those of the universes, in the order of their variables in the table.
    """
    blocks, level_entities = pd.Index(geography["block_geocode"]), entities_of(geography, level)
    variables, answers = list[str](), []
    for universe, posterior in posteriors.items():
        schema = settings.schema_of(universe)
        variables += variables_of(schema)
        cells = PublishedCells(posterior, sparse.csr_array(variable_matrix(schema).T))
        # The geography also has uninhabitable blocks, which are not on the spine.
        row = blocks.get_indexer(posterior.spine.block_geocode)
        areas = _areas(level_entities.block_entity[row], len(level_entities))
        answers.append(cells.of_areas(areas))
    columns = entity_columns(level_entities)
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
    """The rows of some consecutive entities at a time, from the answers of each universe."""
    for batch in zip(*answers, strict=True):
        (start, first), *_ = batch
        n = len(first.estimate)
        codes = {name: column.slice(start, n) for name, column in columns.items()}
        yield codes | _variable_columns(variables, [part for _, part in batch])


def _variable_columns(
    variables: Sequence[str], parts: Sequence[CellAnswers]
) -> dict[str, pa.Array]:
    """The two columns of every variable, from the answers of each universe."""
    columns = []
    for part in parts:
        interval = part.intervals(MARGIN_LEVEL)
        ends = interval.bounded_lower, interval.bounded_upper
        # Transposed, a variable is a row, and contiguous.
        lower, upper, is_null = (np.ascontiguousarray(each.T) for each in (*ends, ~part.is_known))
        for variable, nulls in enumerate(is_null):
            mask = nulls if nulls.any() else None  # Arrow is slow with a mask without nulls.
            columns += [pa.array(end[variable], mask=mask) for end in (lower, upper)]
    return dict(zip(_end_columns(variables), columns, strict=True))


def _end_columns(variables: Sequence[str]) -> list[str]:
    """Names of the columns of the lower and the upper end of every variable."""
    return [f"{name}_{end.upper()}" for name in variables for end in (LOWER, UPPER)]


def write_declared_margins(
    settings: TopdownSettings,
    table: TableDeclaration,
    posterior: RunPosterior,
    areas: pd.DataFrame,
    directory: Path,
) -> WrittenFiles:
    """Write the margins of one declared table, from the posterior of its universe."""
    answers, declared = TableAnswers.of(settings, table), settings.compiled_census.geography
    kinds = answers.kinds | {LOWER: pa.int64(), UPPER: pa.int64()}
    cells = PublishedCells(posterior, answers.counted)

    def batches() -> Iterator[dict[str, pa.Array]]:
        for level in table.levels:
            number, code = entities(areas, declared.geolevels, level)
            described = descriptions(areas, declared, level)
            level_areas = _areas(np.asarray(number)[posterior.spine.block_row], len(code))
            for start, part in cells.of_areas(level_areas):
                numbers = np.arange(start, start + len(part.estimate))
                yield answers.columns(level, code, numbers, described) | _ends(part)

    stem = directory / TABLES / f"{table.name}{SUFFIX}"
    return write_rows(stem, pa.schema(kinds), batches(), LABELLED)


def _ends(part: CellAnswers) -> dict[str, pa.Array]:
    """The columns of the lower and the upper ends, from the answers of some areas."""
    interval, is_null = part.intervals(MARGIN_LEVEL), ~part.is_known.ravel()
    ends = {LOWER: interval.bounded_lower, UPPER: interval.bounded_upper}
    return {name: pa.array(end.ravel(), mask=is_null) for name, end in ends.items()}


def _areas(block_entity: np.ndarray, n_entities: int) -> BlockAreas:
    """Entities as areas of blocks, from the entity of each block of the spine."""
    return BlockAreas.of_pairs(n_entities, np.arange(len(block_entity)), block_entity)


def tabulated_universes(settings: TopdownSettings) -> tuple[str, ...]:
    """Universes with variables in the tables of summary levels; none if the release has no such
    tables."""
    is_wanted = settings.release.tables and settings.compiled_census.summary_levels
    universes = settings.run.universes if is_wanted else ()
    return tuple(name for name in universes if tables_of(settings.schema_of(name)))


def has_tables(settings: TopdownSettings) -> bool:
    """Whether the release has tables."""
    census = settings.compiled_census
    named = census.tables if settings.release.tables and not census.summary_levels else ()
    return bool(named or tabulated_universes(settings))


def has_legacy(settings: TopdownSettings) -> bool:
    """Whether the release has P.L. 94-171 files, which need all of their tables."""
    tables = {
        table
        for universe in tabulated_universes(settings)
        for table in tables_of(settings.schema_of(universe))
    }
    return settings.release.pl94171 and tables == {table.name for table in CENSUS.tables}


def tables_of_run(run: RunDirectory, settings: TopdownSettings) -> NamedTables | LevelTables:
    """The tables of a run: of summary levels or by name, as its census declares."""
    if settings.compiled_census.summary_levels:
        return LevelTables(run, settings)
    return NamedTables(run, settings)


class LevelTables:
    """A run's tables of summary levels, and their margins; each file has all universes."""

    def __init__(self, run: RunDirectory, settings: TopdownSettings) -> None:
        self.run, self.settings = run, settings
        self.universe_groups = [settings.run.universes]
        """Groups of universes that share files."""

    @cached_property
    def states(self) -> States:
        """The states of the run's geography."""
        return States.read(self.run)

    @property
    def n_pieces(self) -> int:
        """Number of pieces in which tasks write the tables, one for each subspine."""
        return n_pieces(self.run, self.settings, tabulated_universes(self.settings)[0])

    def files(self) -> list[Path]:
        """Paths of the tables in the order in which they are written."""
        states = self.states.fips
        return [*table_files(self.run.unchecked_release, _STEMS), *self._legacy_files(states)]

    def write(self) -> list[Path]:
        """Write the tables from the estimates, reusing pieces that exist; returns the files."""
        of, release = self.n_pieces, self.run.unchecked_release
        if of == 1:
            self._write(release, self.states.fips)
        else:
            folders = [self.write_piece(number, of) for number in range(of)]
            for stem in _STEMS:
                pieces = [folder / TABLES / stem for folder in folders]
                concatenate_rows(release / TABLES / stem, pieces)
        return self.files()

    def write_piece(self, number: int, of: int) -> Path:
        """Write the tables and P.L. 94-171 files of the states of a subspine, unless they exist.

        `of` is the number of pieces. Returns the folder of the piece's tables.
        """
        folder = self.run.piece(TABLES, number, of)
        spine = spine_of(self.run, tabulated_universes(self.settings)[0])
        states = states_of_subspine(spine, number, self.states.fips)
        files = [*table_files(folder, _STEMS), *self._legacy_files(states)]
        if not all(path.exists() for path in files):
            self._write(folder, states)
        return folder

    def _write(self, folder: Path, states: Sequence[str]) -> None:
        """Write the tables of some states into a folder, and their P.L. 94-171 files to the
        release."""
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
        """Names of the tables with margins, each of which is a piece; the longest first."""
        return [*reversed(_STEMS)] if tabulated_universes(self.settings) else []

    def universes_of(self, piece: str) -> tuple[str, ...]:
        """The universes from whose posteriors a piece of the margins is computed."""
        return tabulated_universes(self.settings)

    def margin_files(self, piece: str) -> list[Path]:
        """Paths of a piece of the margins."""
        return table_files(self.run.unchecked_release, [piece], SUFFIX)

    def write_margins(self, piece: str, posteriors: Mapping[str, RunPosterior]) -> None:
        """Write a piece of the margins, from the posteriors of the universes."""
        tabulated = {name: posteriors[name] for name in tabulated_universes(self.settings)}
        geography, folder = read_geography(geography_file(self.run)), self.run.unchecked_release
        level = next(level for level in SUMMARY_LEVELS.values() if level.stem == piece)
        write_table_margins(self.settings, tabulated, geography, folder, level)


_STEMS = [level.stem for level in SUMMARY_LEVELS.values()]
"""Names of the files of the tables of summary levels, without endings."""


class NamedTables:
    """A run's tables declared by name, and their margins; each file has one universe."""

    def __init__(self, run: RunDirectory, settings: TopdownSettings) -> None:
        self.run, self.settings = run, settings
        self.folder = run.unchecked_release
        self.universe_groups = [(universe,) for universe in settings.run.universes]
        """Groups of universes that share files."""

    def tables(self) -> Sequence[TableDeclaration]:
        """The declared tables; none if the settings request no tables."""
        return self.settings.compiled_census.tables if self.settings.release.tables else ()

    @property
    def n_pieces(self) -> int:
        """Number of pieces in which tasks write the tables."""
        return 1

    def files(self) -> list[Path]:
        """Paths in the order in which they are written."""
        return table_files(self.folder, [table.name for table in self.tables()])

    def write_piece(self, number: int, of: int) -> Path:
        """Raises NotImplementedError, since `write` writes the only piece."""
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
        """Names of the tables with margins, each of which is a piece."""
        return [
            table.name
            for (universe,) in self.universe_groups
            for table in self.tables()
            if table.universe == universe
        ]

    def universes_of(self, piece: str) -> tuple[str, ...]:
        """The universe from whose posterior a table's margins are computed."""
        return (self._table(piece).universe,)

    def margin_files(self, piece: str) -> list[Path]:
        """Paths of the margins of a table."""
        return table_files(self.folder, [piece], SUFFIX)

    def write_margins(self, piece: str, posteriors: Mapping[str, RunPosterior]) -> None:
        """Write the margins of a table, from the posterior of its universe."""
        table, areas = self._table(piece), read_geography(geography_file(self.run))
        posterior = posteriors[table.universe]
        write_declared_margins(self.settings, table, posterior, areas, self.folder)

    def _table(self, name: str) -> TableDeclaration:
        return next(table for table in self.tables() if table.name == name)

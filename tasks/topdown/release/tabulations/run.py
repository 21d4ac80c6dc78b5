"""Write the tables of a release, and their margins: an interval for every count.

Tables are sums of a run's estimates over areas of its public geography. A census that declares
summary levels has a table for each level, with the variables of all universes. Any other census has
the tables that it declares by name, each with its levels.

The margins of a table are in `tables/<file>_margins.parquet` and `.csv`, with the rows of the table
in its order. For the redistricting tables every variable has two columns, such as P0010001_LOWER
and P0010001_UPPER; a declared table, whose answers are rows, has columns `lower` and `upper`.

An interval contains the true count with a probability of at least 90 %. It follows from all noisy
measurements, the declarations and the fact that counts are not negative, not from the published
count, which may lie outside (the bounded intervals of `tasks.topdown.intervals.intervals`). The
report says how often: a release is whole, not negative and consistent, and therefore biased.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy import sparse

from ....census.areas import descriptions, entities
from ....census.cef_2020 import CENSUS
from ....census.declarations import SummaryLevelDeclaration, TableDeclaration
from ....census.invariants import read_geography
from ....census.queries import Schema
from ....runs.directory import RunDirectory
from ....runs.files import write_text
from ....runs.stamps import concatenate_rows, write_rows
from ...intervals.areas import BlockAreas
from ...intervals.intervals import CellAnswers, PublishedCells
from ...intervals.run_posterior import (
    RunPosterior,
    drop_posterior,
    has_posterior,
    keep_posterior,
    margins_refusal,
    posterior_of,
)
from ...paths import geography_file
from ...settings import TopdownSettings
from ...spine.files import RunUniverse, n_pieces, n_tasks, spine_of, states_of_subspine
from .legacy import legacy_files, write_state
from .levels import SUMMARY_LEVELS, entities_of, tables_of, variable_matrix, variables_of
from .tables import (
    LABELLED,
    TABLES,
    LevelTable,
    TableAnswers,
    entity_columns,
    state_tabulations,
    states_of,
    table_files,
    text_form,
    write_declared_table,
    write_tables,
)

MARGIN_LEVEL = 0.9
"""Least probability that an interval contains the true count, usual for margins of error."""
SUFFIX = "_margins"
LOWER, UPPER = "lower", "upper"


def write_table_margins(
    cells: Mapping[Schema, PublishedCells],
    geography: pd.DataFrame,
    directory: Path,
    level: SummaryLevelDeclaration,
) -> Path:
    """Write the margins of the redistricting tables of a summary level below `directory`.

    `cells` has the variables by the schema of each universe, in the order of the tables.
    """
    # Uninhabitable blocks are on no spine.
    blocks, level_entities = pd.Index(geography["block_geocode"]), entities_of(geography, level)
    variables, answers = list[str](), []
    for schema, own in cells.items():
        variables += variables_of(schema)
        row = blocks.get_indexer(own.found.spine.block_geocode)
        answers.append(own.of_areas(_areas(level_entities.block_entity[row], len(level_entities))))
    columns = entity_columns(level_entities)
    kinds = {name: column.type for name, column in columns.items()}
    kinds |= dict.fromkeys(_end_columns(variables), pa.int64())

    def batches() -> Iterator[dict[str, pa.Array]]:
        for parts in zip(*answers, strict=True):
            (start, first), *_ = parts
            codes = {
                name: column.slice(start, len(first.estimate)) for name, column in columns.items()
            }
            yield codes | _variable_columns(variables, [part for _, part in parts])

    stem = directory / TABLES / f"{level.stem}{SUFFIX}"
    return write_rows(stem, pa.schema(kinds), batches(), text_form(columns))


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
) -> Path:
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
    is_wanted = settings.release.tables and settings.compiled_census.declared.summary_levels
    universes = settings.run.universes if is_wanted else ()
    return tuple(name for name in universes if tables_of(settings.schema_of(name)))


def has_legacy(settings: TopdownSettings) -> bool:
    """Whether there will be P.L. 94-171 files, which need every table."""
    tables = {
        table
        for universe in tabulated_universes(settings)
        for table in tables_of(settings.schema_of(universe))
    }
    return settings.release.pl94171 and tables == {table.name for table in CENSUS.declared.tables}


class RunTables:
    """The tables of a run and their margins: one of every summary level, with the variables of all
    universes; of a census without summary levels, the tables that it declares by name."""

    def __init__(self, run: RunDirectory, settings: TopdownSettings) -> None:
        self.run, self.settings, self.folder = run, settings, run.unchecked_release
        self.universes = tabulated_universes(settings)
        """Universes with tables of summary levels."""
        census, self.declared = settings.compiled_census, dict[str, TableDeclaration]()
        if settings.release.tables and not census.declared.summary_levels:
            self.declared = {table.name: table for table in census.declared.tables}

    @cached_property
    def states(self) -> list[str]:
        """FIPS codes of the states of the run's geography, ascending."""
        return states_of(self.run)

    @property
    def n_pieces(self) -> int:
        """Number of pieces in which workers write the tables, each of a subspine."""
        return n_pieces(self.run, self.settings, self.universes[0]) if self.universes else 1

    def stems_by_universes(self) -> dict[tuple[str, ...], list[str]]:
        """Names of the tables by the universes that they are of, in the order of writing."""
        if self.settings.compiled_census.declared.summary_levels:
            return {self.settings.run.universes: _STEMS if self.universes else []}
        return {
            (universe,): [name for name, own in self.declared.items() if own.universe == universe]
            for universe in self.settings.run.universes
        }

    def files(self) -> list[Path]:
        """Paths of the tables in the order in which they are written; empty without tables."""
        if not self.universes:
            return table_files(self.folder, self.declared)
        return [*table_files(self.folder, _STEMS), *self._legacy_files(self.states)]

    def write(self) -> list[Path]:
        """Write the tables from the estimates, using the pieces that exist; returns the files."""
        of = self.n_pieces
        if of > 1:
            folders = [self.write_piece(number, of) / TABLES for number in range(of)]
            for stem in _STEMS:
                concatenate_rows(self.folder / TABLES / stem, [one / stem for one in folders])
        elif self.universes:
            self._write(self.folder, self.states)
        elif self.declared:
            areas = read_geography(geography_file(self.run))
            for table in self.declared.values():
                counts = RunUniverse(self.run, self.settings, table.universe).area_counts()
                write_declared_table(self.settings, table, counts, areas, self.folder)
        return self.files()

    def write_piece(self, number: int, of: int) -> Path:
        """Write the tables of a subspine's states, unless they exist, with their P.L. 94-171 files;
        returns the folder of the tables."""
        folder = self.run.piece(TABLES, number, of)
        spine = spine_of(self.run, self.universes[0])
        states = states_of_subspine(spine, number, self.states)
        files = [*table_files(folder, _STEMS), *self._legacy_files(states)]
        if not all(path.exists() for path in files):
            self._write(folder, states)
        return folder

    def _write(self, folder: Path, states: Sequence[str]) -> None:
        """Write the tables of some states into a folder, and their P.L. 94-171 files."""
        run, settings = self.run, self.settings

        def tabulations() -> Iterator[list[LevelTable]]:
            parts = state_tabulations(run, settings, self.universes, states)
            for fips, tables in zip(states, parts, strict=True):
                if has_legacy(settings):
                    write_state(tables, self._legacy_files([fips]))
                yield tables

        write_tables(tabulations(), folder)

    def _legacy_files(self, states: Sequence[str]) -> list[Path]:
        """The P.L. 94-171 files of some states, if there are any."""
        if not has_legacy(self.settings):
            return []
        files = legacy_files(self.folder, self.states)
        return [path for fips in states for path in files[fips]]

    def write_margins(self, stems: Sequence[str], found: Mapping[str, RunPosterior]) -> None:
        """Write the margins of some tables, from the posteriors of their universes."""
        areas = read_geography(geography_file(self.run))
        for table in (self.declared[stem] for stem in stems if stem in self.declared):
            of_table = found[table.universe]
            write_declared_margins(self.settings, table, of_table, areas, self.folder)
        schemas = [self.settings.schema_of(name) for name in self.universes]
        cells = {
            schema: PublishedCells(found[name], sparse.csr_array(variable_matrix(schema).T))
            for name, schema in zip(self.universes, schemas, strict=True)
        }
        for level in (own for own in SUMMARY_LEVELS.values() if own.stem in stems):
            write_table_margins(cells, areas, self.folder, level)


_STEMS = [level.stem for level in SUMMARY_LEVELS.values()]
"""Names of the files of the summary levels, without endings."""


REFUSAL = "summary/none.txt"
"""File of a universe with the reason why it has no margins, below its folder of intervals."""


def has_margins(settings: TopdownSettings) -> bool:
    """Whether margins are requested, noise was drawn, and every answer was measured."""
    return (
        settings.release.margins
        and settings.has_all_measurements
        and not any(settings.budget_of(universe).infinite for universe in settings.run.universes)
    )


def universes_without_margins(run: RunDirectory, settings: TopdownSettings) -> dict[str, str]:
    """The universes without the requested margins, with the reasons; empty before the margins are
    made."""
    files = {name: run.root / "intervals" / name / REFUSAL for name in settings.run.universes}
    return {name: file.read_text("utf-8") for name, file in files.items() if file.exists()}


def missing_margins(
    run: RunDirectory, settings: TopdownSettings, share: tuple[int, int] = (0, 1)
) -> dict[tuple[str, ...], list[str]]:
    """The tables of a share, number and of how many, that lack margins, by the universes that get
    margins together; none of universes that the run has recorded as too large."""
    tables, (number, of), found = RunTables(run, settings), share, {}
    by_universes = tables.stems_by_universes()
    # The last tables, of the smallest areas, are the longest.
    chosen = [*reversed([*chain(*by_universes.values())])][number::of]
    lacking = {
        stem
        for stem in chosen
        if not all(path.exists() for path in table_files(tables.folder, [stem], SUFFIX))
    }
    for universes, stems in by_universes.items():
        missing = [stem for stem in stems if stem in lacking]
        if missing and universes_without_margins(run, settings).keys().isdisjoint(universes):
            found[universes] = missing
    return found


def margin_pieces(run: RunDirectory, settings: TopdownSettings) -> int:
    """Number of pieces, of some tables each, in which workers write the missing margins."""
    missing = missing_margins(run, settings) if has_margins(settings) else {}
    return min(n_tasks(run), sum(map(len, missing.values())))


def keep_estimates(run: RunDirectory, settings: TopdownSettings) -> bool:
    """Store the estimates behind missing margins, from the measurements alone, for the tasks that
    write them, or the reason why there are none; returns whether any were missing."""
    missing = [
        names
        for names in missing_margins(run, settings)
        if not all(has_posterior(run, name) for name in names)
    ]
    for universes in missing:
        found = _posteriors(run, settings, universes)
        for name in [*found]:
            keep_posterior(run, name, found.pop(name))
    return bool(missing)


def write_margins(
    run: RunDirectory, settings: TopdownSettings, share: tuple[int, int] | None = None
) -> int:
    """Write the missing margins of the unchecked tables, or of a share of these (see
    `missing_margins`); returns the number of these tables.

    Reads measurements, constraints and public geography. A universe whose estimates would not fit
    in memory gets none, and the run records the reason. Universes in the same tables get margins
    together or not at all; others are taken one after the other.
    """
    tables, n_tables = RunTables(run, settings), 0
    for universes, stems in missing_margins(run, settings, share or (0, 1)).items():
        if all(has_posterior(run, name) for name in universes):
            found = {name: posterior_of(run, name) for name in universes}
        else:
            found = _posteriors(run, settings, universes)
        if found:
            tables.write_margins(stems, found)
            n_tables += len(stems)
    if share is None:
        for universe in settings.run.universes:
            drop_posterior(run, universe)
    return n_tables


def _posteriors(
    run: RunDirectory, settings: TopdownSettings, universes: Sequence[str]
) -> dict[str, RunPosterior]:
    """The posteriors of universes; empty where their estimates would be too large to be in memory
    together, and the reason is then recorded."""
    found = {name: RunPosterior.read(run, settings, name) for name in universes}
    together = sum(own.size.numbers for own in found.values())
    reasons = {name: margins_refusal(name, own.size, together) for name, own in found.items()}
    for name, why in reasons.items():
        if why is not None:
            write_text(run.root / "intervals" / name / REFUSAL, why)
    return {} if any(reasons.values()) else found

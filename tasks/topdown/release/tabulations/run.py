"""The tables of a run: from its estimates and public geography to its release.

A census that declares summary levels has a table for each, with the variables of all universes; any
other has those that it declares by name, a file for each, with the levels that it is by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from ....census.cef_2020 import CENSUS
from ....census.declarations import TableDeclaration
from ....census.invariants import read_geography
from ....runs.directory import RunDirectory
from ...intervals.run_posterior import RunPosterior
from ...measurement.public_answers import area_counts
from ...paths import geography_file
from ...settings import TopdownSettings
from ...spine.shards import shards_of
from ..declared_files import write_declared_table
from ..margin_files import SUFFIX, write_declared_margins, write_table_margins
from .legacy import legacy_files, write_state
from .levels import SUMMARY_LEVELS, SummaryLevel, tables_of
from .tables import States, Tabulation, state_tabulations, table_files, write_tables

BLOCKS_PER_PIECE = 1 << 20
"""Blocks of a spine from which tables are written in pieces, and of each piece of the P.L. 94-171
files."""

WHOLE = "tables"
"""The one piece of small tables."""
BLOCK_TABLES, AREA_TABLES = "block tables", "area tables"
LEGACY = "P.L. 94-171 files"
"""Pieces that tables are written in."""


def tabulated_universes(settings: TopdownSettings) -> tuple[str, ...]:
    """Universes whose schemas tell at least one of the tables of summary levels, if tables are
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
    """The tables of summary levels of a run, and their margins; all universes stand together."""

    def __init__(self, run: RunDirectory, settings: TopdownSettings) -> None:
        self.run, self.settings = run, settings
        self.together = [settings.run.universes]
        """Universes that stand in the same files."""

    def pieces(self) -> list[str]:
        """Into which pieces the tables are cut: one, or several of a large spine, which are written
        side by side.
        """
        n_blocks = max(
            shards_of(self.run, universe)[-1].stop
            for universe in tabulated_universes(self.settings)
        )
        if n_blocks <= BLOCKS_PER_PIECE:
            return [WHOLE]
        n = -(-n_blocks // BLOCKS_PER_PIECE)
        legacy = [f"{LEGACY} {number} of {n}" for number in range(1, n + 1)]
        return [BLOCK_TABLES, AREA_TABLES, *(legacy if has_legacy(self.settings) else [])]

    def files(self, piece: str = WHOLE) -> list[Path]:
        """Paths of the tables or of a piece of them, in the order in which they are written."""
        tables = table_files(self.run.unchecked_release, _stems(piece))
        return tables + list(chain(*self._legacy_files(piece).values()))

    def write(self, piece: str = WHOLE) -> list[Path]:
        """Write the tables, or a piece of them, from the estimates; returns the files."""
        run, settings, levels = self.run, self.settings, _levels(piece)
        legacy = self._legacy_files(piece)
        states = States.read(run).fips if levels else tuple(legacy)

        def tabulations() -> Iterator[Tabulation]:
            parts = state_tabulations(run, settings, tabulated_universes(settings), states)
            for fips, tabulation in zip(states, parts, strict=True):
                if fips in legacy:
                    write_state(tabulation, fips, legacy[fips])
                yield tabulation

        folder, is_private = run.unchecked_release, settings.is_private
        files = write_tables(tabulations(), folder, is_private=is_private, levels=levels)
        return files + list(chain(*legacy.values()))

    def _legacy_files(self, piece: str) -> dict[str, list[Path]]:
        """The P.L. 94-171 files of a piece, by state."""
        every = States.read(self.run)
        states: tuple[str, ...] = ()
        if piece == WHOLE and has_legacy(self.settings):
            states = every.fips
        elif piece.startswith(LEGACY):
            number, n = (int(word) for word in piece.removeprefix(LEGACY).split(" of "))
            states = every.group(number - 1, n)
        folder, is_private = self.run.unchecked_release, self.settings.is_private
        files = legacy_files(folder, every.fips, is_private=is_private)
        return {fips: files[fips] for fips in states}

    def margin_pieces(self) -> list[str]:
        """Beside which tables margins are written, each apart, the longest first."""
        return [BLOCK_TABLES, AREA_TABLES] if tabulated_universes(self.settings) else []

    def universes_of(self, piece: str) -> tuple[str, ...]:
        """The universes whose posteriors a piece of the margins follows from."""
        return tabulated_universes(self.settings)

    def margin_files(self, piece: str) -> list[Path]:
        """Paths of a piece of the margins."""
        return table_files(self.run.unchecked_release, _stems(piece), SUFFIX)

    def write_margins(self, piece: str, found: Mapping[str, RunPosterior]) -> None:
        """Write a piece of the margins, from the posteriors of its universes."""
        own = {name: found[name] for name in tabulated_universes(self.settings)}
        geography, folder = read_geography(geography_file(self.run)), self.run.unchecked_release
        write_table_margins(self.settings, own, geography, folder, _levels(piece))


def _levels(piece: str) -> tuple[SummaryLevel, ...]:
    """The summary levels of a piece of the tables."""
    levels = () if piece.startswith(LEGACY) else tuple(SUMMARY_LEVELS.values())
    if piece not in (BLOCK_TABLES, AREA_TABLES):
        return levels
    return tuple(level for level in levels if level.is_of_blocks == (piece == BLOCK_TABLES))


def _stems(piece: str) -> list[str]:
    """What the files of the summary levels of a piece are called, without endings."""
    return [level.stem for level in _levels(piece)]


class NamedTables:
    """The named tables of a run, and their margins; each universe has files of its own."""

    def __init__(self, run: RunDirectory, settings: TopdownSettings) -> None:
        self.run, self.settings = run, settings
        self.folder = run.unchecked_release
        self.together = [(universe,) for universe in settings.run.universes]
        """Universes that stand in the same files."""

    def tables(self) -> Sequence[TableDeclaration]:
        """All of them, if tables are asked for."""
        return self.settings.compiled_census.tables if self.settings.release.tables else ()

    def pieces(self) -> list[str]:
        """Into which pieces the tables are cut."""
        return [WHOLE]

    def files(self, piece: str = WHOLE) -> list[Path]:
        """Paths in the order in which they are written."""
        return table_files(self.folder, [table.name for table in self.tables()])

    def write(self, piece: str = WHOLE) -> list[Path]:
        """Write all tables from the estimates; returns the files."""
        areas, files = read_geography(geography_file(self.run)), list[Path]()
        for table in self.tables():
            counts = area_counts(self.run, self.settings, table.universe, len(areas))
            written = write_declared_table(self.settings, table, counts, areas, self.folder)
            files += [written.parquet, written.csv]
        return files

    def margin_pieces(self) -> list[str]:
        """Beside which tables margins are written, each apart."""
        return [
            table.name
            for (universe,) in self.together
            for table in self.tables()
            if table.universe == universe
        ]

    def universes_of(self, piece: str) -> tuple[str, ...]:
        """The universes whose posteriors the margins beside a table follow from."""
        return (self._table(piece).universe,)

    def margin_files(self, piece: str) -> list[Path]:
        """Paths of the margins beside a table."""
        return table_files(self.folder, [piece], SUFFIX)

    def write_margins(self, piece: str, found: Mapping[str, RunPosterior]) -> None:
        """Write the margins beside a table, from the posteriors of its universes."""
        table, areas = self._table(piece), read_geography(geography_file(self.run))
        write_declared_margins(self.settings, table, found[table.universe], areas, self.folder)

    def _table(self, name: str) -> TableDeclaration:
        return next(table for table in self.tables() if table.name == name)

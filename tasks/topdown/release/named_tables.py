"""The tables that a census declares by name: a file for each, with the levels that it is by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...census.declarations import TableDeclaration
from ...census.invariants import read_geography
from ...runs.directory import RunDirectory
from ..intervals.run_posterior import RunPosterior
from ..measurement.public_answers import area_counts
from ..paths import geography_file
from ..settings import TopdownSettings
from .declared_files import TABLES, write_declared_table
from .margin_files import SUFFIX, write_declared_margins
from .tabulations.tables import ENDINGS

WHOLE = "tables"
"""The one piece of small tables."""


class NamedTables:
    """The named tables of a run, and their margins; each universe has files of its own."""

    def __init__(self, run: RunDirectory, settings: TopdownSettings) -> None:
        self.run, self.settings = run, settings
        self.folder, self.census = run.unchecked_release, settings.compiled_census
        self.together = [(universe,) for universe in settings.run.universes]
        """Universes that stand in the same files."""

    def tables(self) -> Sequence[TableDeclaration]:
        """All of them, if tables are asked for."""
        return self.census.tables if self.settings.release.tables else ()

    def pieces(self) -> list[str]:
        """Into which pieces the tables are cut."""
        return [WHOLE]

    def files(self, piece: str = WHOLE) -> list[Path]:
        """Paths in the order in which they are written."""
        return _paths(self.folder, self.tables())

    def write(self, piece: str = WHOLE) -> list[Path]:
        """Write all tables from the estimates; returns the files."""
        areas, files = read_geography(geography_file(self.run)), list[Path]()
        for table in self.tables():
            schema = self.settings.schema_of(table.universe)
            written = write_declared_table(
                table,
                area_counts(self.run, table.universe, schema.n_cells, len(areas)),
                areas,
                self.census.geography,
                schema,
                self.folder,
                is_private=self.settings.is_private,
            )
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
        return _paths(self.folder, [self._table(piece)], SUFFIX)

    def write_margins(self, piece: str, found: Mapping[str, RunPosterior]) -> None:
        """Write the margins beside a table, from the posteriors of its universes."""
        table = self._table(piece)
        write_declared_margins(
            table,
            found[table.universe],
            read_geography(geography_file(self.run)),
            self.census.geography,
            self.settings.schema_of(table.universe),
            self.folder,
            is_private=self.settings.is_private,
        )

    def _table(self, name: str) -> TableDeclaration:
        return next(table for table in self.tables() if table.name == name)


def _paths(folder: Path, tables: Sequence[TableDeclaration], suffix: str = "") -> list[Path]:
    return [
        folder / TABLES / f"{table.name}{suffix}.{ending}" for table in tables for ending in ENDINGS
    ]

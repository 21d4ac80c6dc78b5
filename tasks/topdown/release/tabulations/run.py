"""The tables of a run: from its microdata and public geography to its release."""

from __future__ import annotations

from pathlib import Path

from spineflow.tasks.census.invariants import read_geography
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.paths import geography_file
from spineflow.tasks.topdown.release.declared_run import (
    declared_table_files,
    write_declared_tables,
)
from spineflow.tasks.topdown.release.tabulations.legacy import legacy_files, write_legacy
from spineflow.tasks.topdown.release.tabulations.tables import table_files, tabulate, write_tables
from spineflow.tasks.topdown.release.tabulations.variables import all_tables, tables_of
from spineflow.tasks.topdown.settings import TopdownSettings


def tabulated_universes(settings: TopdownSettings) -> tuple[str, ...]:
    """Universes whose schemas tell at least one of the tables, if tables are asked for."""
    if settings.is_declared:
        return ()
    universes = settings.run.universes if settings.release.tables else ()
    return tuple(name for name in universes if tables_of(settings.schema_of(name)))


def has_tables(settings: TopdownSettings) -> bool:
    """Whether the release has tables."""
    if settings.is_declared:
        return settings.release.tables and bool(settings.compiled_census.tables)
    return bool(tabulated_universes(settings))


def has_legacy(settings: TopdownSettings) -> bool:
    """Whether there will be P.L. 94-171 files, which need every table."""
    tables = {
        table
        for universe in tabulated_universes(settings)
        for table in tables_of(settings.schema_of(universe))
    }
    return settings.release.pl94171 and tables == set(all_tables())


def write_release_tables(run: RunDirectory, settings: TopdownSettings) -> list[Path]:
    """Write the tables that the settings ask for beside the unchecked microdata."""
    if settings.is_declared:
        return write_declared_tables(run, settings)
    tabulation = tabulate(
        run.unchecked_release, read_geography(geography_file(run)), tabulated_universes(settings)
    )
    files = write_tables(tabulation, run.unchecked_release, is_private=settings.is_private)
    if has_legacy(settings):
        files += write_legacy(tabulation, run.unchecked_release, is_private=settings.is_private)
    return files


def written_tables(run: RunDirectory, settings: TopdownSettings) -> Path | None:
    """The file that is written last, where it stands already: then all others do."""
    if settings.is_declared:
        last = declared_table_files(run.unchecked_release, settings)[-1]
        return last if last.exists() else None
    last = table_files(run.unchecked_release)[-1]
    if has_legacy(settings):
        states = sorted(set(read_geography(geography_file(run))["block_geocode"].str[:2]))
        last = legacy_files(run.unchecked_release, states, is_private=settings.is_private)[-1]
    return last if last.exists() else None

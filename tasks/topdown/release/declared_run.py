"""The files of a declared census's release: microdata by universe, and the declared tables."""

from __future__ import annotations

from pathlib import Path

from ...census.invariants import read_geography
from ...runs.directory import RunDirectory
from ..measurement.public_answers import area_counts
from ..paths import geography_file
from ..settings import TopdownSettings
from .declared_files import (
    TABLES,
    WrittenFiles,
    write_declared_microdata,
    write_declared_table,
)
from .described import description, write_described_universe
from .microdata import block_estimate_parts, write_microdata


def write_declared_universe(
    run: RunDirectory, settings: TopdownSettings, universe: str
) -> WrittenFiles:
    """Write the microdata of one universe."""
    census, schema = settings.compiled_census, settings.schema_of(universe)
    told = description(settings, census.universes[universe])
    if told is not None:
        run.unchecked_release.mkdir(exist_ok=True)
        described = write_described_universe(run, settings, census.universes[universe], *told)
        return WrittenFiles(described.parquet, described.csv, described.n_rows)
    if census.universes[universe].declared.microdata is not None:
        laid_out = write_microdata(
            block_estimate_parts(run, universe),
            schema,
            run.unchecked_release,
            census=census,
            is_private=settings.is_private,
        )
        return WrittenFiles(laid_out.parquet, laid_out.csv, laid_out.n_rows)
    areas = read_geography(geography_file(run))
    return write_declared_microdata(
        area_counts(run, universe, schema.n_cells, len(areas)),
        areas,
        census.areas.geolevels,
        schema,
        run.unchecked_release,
        count=census.universes[universe].declared.count,
        is_private=settings.is_private,
    )


def write_declared_tables(run: RunDirectory, settings: TopdownSettings) -> list[Path]:
    """Write the tables that the census declares, if tables are asked for; returns the files."""
    census, areas = settings.compiled_census, read_geography(geography_file(run))
    files = []
    for table in census.tables:
        schema = settings.schema_of(table.universe)
        written = write_declared_table(
            table,
            area_counts(run, table.universe, schema.n_cells, len(areas)),
            areas,
            census.areas,
            schema,
            run.unchecked_release,
            is_private=settings.is_private,
        )
        files += [written.parquet, written.csv]
    return files


def declared_table_files(directory: Path, settings: TopdownSettings) -> list[Path]:
    """Paths of the declared tables in the order in which they are written."""
    names = [table.name for table in settings.compiled_census.tables]
    return [
        directory / TABLES / f"{name}{ending}" for name in names for ending in (".parquet", ".csv")
    ]

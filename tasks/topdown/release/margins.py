"""The margins of a run: from its measurements, beside its tables and for its report."""

from __future__ import annotations

from pathlib import Path

from ...census.invariants import read_geography
from ...runs.directory import RunDirectory
from ..intervals.run_posterior import RunLevels, RunPosterior
from ..paths import geography_file
from ..settings import TopdownSettings
from .margin_files import (
    declared_margin_files,
    table_margin_files,
    write_declared_margins,
    write_table_margins,
)
from .margin_summary import (
    read_margin_summary,
    summarise_margins,
    write_margin_summary,
)
from .tabulations.run import has_tables, tabulated_universes

MOST_NUMBERS = 1 << 28
"""Most numbers of all estimates of the last geolevels together (2 GiB): forty times a state of a
million persons."""


def has_margins(settings: TopdownSettings) -> bool:
    """Whether margins are asked for, there is noise to speak of, and every answer was measured."""
    return (
        settings.release.margins
        and settings.has_all_measurements
        and not any(settings.budget_of(universe).infinite for universe in settings.run.universes)
    )


def margin_files(run: RunDirectory, settings: TopdownSettings) -> list[Path]:
    """The margins beside the unchecked tables, in the order in which they are written."""
    if not has_tables(settings):
        return []
    if settings.is_declared:
        return declared_margin_files(run.unchecked_release, settings.compiled_census.tables)
    return table_margin_files(run.unchecked_release)


def are_written(run: RunDirectory, settings: TopdownSettings) -> bool:
    """Whether all margins of the run stand."""
    last = margin_files(run, settings)[-1:]
    summaries = [read_margin_summary(run, universe) for universe in settings.run.universes]
    return all(path.exists() for path in last) and None not in summaries


def written_margins(run: RunDirectory, settings: TopdownSettings) -> list[Path]:
    """The margins that the run has beside its unchecked tables; none where they are not asked for,
    or their spine was too large."""
    if not has_margins(settings) or not are_written(run, settings):
        return []
    return margin_files(run, settings)


def write_margins(run: RunDirectory, settings: TopdownSettings) -> list[Path]:
    """Write the margins beside the unchecked tables, and what the report shows of them.

    Reads measurements, constraints, public geography and, for the report, estimates. A spine whose
    estimates would not fit in memory gets none.
    """
    levels = {name: RunLevels.read(run, settings, name) for name in settings.run.universes}
    if sum(part.size for part in levels.values()) > MOST_NUMBERS:
        return []
    found = {name: RunPosterior.of(part) for name, part in levels.items()}
    for universe, posterior in found.items():
        summary = summarise_margins(run, settings, universe, posterior)
        write_margin_summary(run, universe, summary)
    if not has_tables(settings):
        return []
    geography = read_geography(geography_file(run))
    if not settings.is_declared:
        tabulated = {
            name: (found[name], settings.schema_of(name)) for name in tabulated_universes(settings)
        }
        return write_table_margins(
            tabulated, geography, run.unchecked_release, is_private=settings.is_private
        )
    census, files = settings.compiled_census, []
    if census.geography is None:
        raise ValueError("a declared census has a geography")
    for table in census.tables:
        written = write_declared_margins(
            table,
            found[table.universe],
            geography,
            census.geography,
            settings.schema_of(table.universe),
            run.unchecked_release,
            is_private=settings.is_private,
        )
        files += [written.parquet, written.csv]
    return files

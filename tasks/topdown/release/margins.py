"""The margins of a run: from its measurements, beside its tables and for its report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...census.invariants import read_geography
from ...runs.directory import RunDirectory
from ..intervals.run_posterior import RunLevels, RunPosterior
from ..intervals.sizes import why_no_margins
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
    read_why_none,
    summarise_margins,
    write_margin_summary,
    write_why_none,
)
from .tabulations.run import has_tables, tabulated_universes


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
    none = universes_without_margins(run, settings)
    if settings.is_declared:
        tables = [
            table
            for universe in settings.run.universes
            for table in settings.compiled_census.tables
            if table.universe == universe and universe not in none
        ]
        return declared_margin_files(run.unchecked_release, tables)
    return [] if none else table_margin_files(run.unchecked_release)


def are_written(run: RunDirectory, settings: TopdownSettings) -> bool:
    """Whether all margins of the run stand."""
    none = universes_without_margins(run, settings)
    summarised = [read_margin_summary(run, name) for name in settings.run.universes]
    found = zip(settings.run.universes, summarised, strict=True)
    last = margin_files(run, settings)[-1:]
    return all(name in none or summary is not None for name, summary in found) and all(
        path.exists() for path in last
    )


def universes_without_margins(run: RunDirectory, settings: TopdownSettings) -> dict[str, str]:
    """The universes that get no margins though they are asked for, with a sentence on why; none
    before the margins are made."""
    found = {universe: read_why_none(run, universe) for universe in settings.run.universes}
    return {universe: why for universe, why in found.items() if why is not None}


def written_margins(run: RunDirectory, settings: TopdownSettings) -> list[Path]:
    """The margins that the run has beside its unchecked tables; none where they are not asked for,
    or their spine was too large."""
    if not has_margins(settings) or not are_written(run, settings):
        return []
    return margin_files(run, settings)


def write_margins(run: RunDirectory, settings: TopdownSettings) -> list[Path]:
    """Write the margins beside the unchecked tables, and what the report shows of them.

    Reads measurements, constraints, public geography and, for the report, estimates. A universe
    whose estimates would not fit in memory gets none, and the run keeps why. The universes of the
    census of 2020 stand in the same tables, and get margins together or not at all; those of a
    declared census are taken one after the other.
    """
    if settings.is_declared:
        return [file for name in settings.run.universes for file in _declared(run, settings, name)]
    levels = {name: RunLevels.read(run, settings, name) for name in settings.run.universes}
    if _left_out(run, levels):
        return []
    found = {name: RunPosterior.of(part) for name, part in levels.items()}
    for universe, posterior in found.items():
        summary = summarise_margins(run, settings, universe, posterior)
        write_margin_summary(run, universe, summary)
    if not has_tables(settings):
        return []
    tabulated = {
        name: (found[name], settings.schema_of(name)) for name in tabulated_universes(settings)
    }
    return write_table_margins(
        tabulated,
        read_geography(geography_file(run)),
        run.unchecked_release,
        is_private=settings.is_private,
    )


def _left_out(run: RunDirectory, levels: Mapping[str, RunLevels]) -> bool:
    """Whether universes that stand in memory together are too large, which is then written."""
    sizes = {name: part.size for name, part in levels.items()}
    together = sum(size.numbers for size in sizes.values())
    for name, size in sizes.items():
        why = why_no_margins(name, size, together)
        if why is not None:
            write_why_none(run, name, why)
    return any(read_why_none(run, name) is not None for name in levels)


def _declared(run: RunDirectory, settings: TopdownSettings, universe: str) -> list[Path]:
    """Write the margins of the tables of one universe of a declared census."""
    levels = RunLevels.read(run, settings, universe)
    if _left_out(run, {universe: levels}):
        return []
    found = RunPosterior.of(levels)
    summary = summarise_margins(run, settings, universe, found)
    write_margin_summary(run, universe, summary)
    census, files = settings.compiled_census, list[Path]()
    if census.geography is None:
        raise ValueError("a declared census has a geography")
    geography = read_geography(geography_file(run))
    for table in census.tables if has_tables(settings) else ():
        if table.universe == universe:
            written = write_declared_margins(
                table,
                found,
                geography,
                census.geography,
                settings.schema_of(universe),
                run.unchecked_release,
                is_private=settings.is_private,
            )
            files += [written.parquet, written.csv]
    return files

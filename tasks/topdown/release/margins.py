"""The margins of a run: from its measurements, beside its tables and for its report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...runs.directory import RunDirectory
from ..intervals.run_posterior import RunLevels, RunPosterior
from ..intervals.sizes import why_no_margins
from ..settings import TopdownSettings
from .margin_summary import (
    read_margin_summary,
    read_why_none,
    summarise_margins,
    write_margin_summary,
    write_why_none,
)
from .tabulations.run import tables_of_run


def has_margins(settings: TopdownSettings) -> bool:
    """Whether margins are asked for, there is noise to speak of, and every answer was measured."""
    return (
        settings.release.margins
        and settings.has_all_measurements
        and not any(settings.budget_of(universe).infinite for universe in settings.run.universes)
    )


def margin_files(run: RunDirectory, settings: TopdownSettings) -> list[Path]:
    """The margins beside the unchecked tables, in the order in which they are written."""
    none, tables = universes_without_margins(run, settings), tables_of_run(run, settings)
    return [
        file
        for universes in tables.together
        if not none.keys() & set(universes)
        for file in tables.margin_files(universes)
    ]


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
    whose estimates would not fit in memory gets none, and the run keeps why. Universes that stand
    in the same tables get margins together or not at all; others are taken one after the other.
    """
    tables, files = tables_of_run(run, settings), list[Path]()
    for universes in tables.together:
        levels = {name: RunLevels.read(run, settings, name) for name in universes}
        if _left_out(run, levels):
            continue
        found = {name: RunPosterior.of(part) for name, part in levels.items()}
        for universe, posterior in found.items():
            summary = summarise_margins(run, settings, universe, posterior)
            write_margin_summary(run, universe, summary)
        files += tables.write_margins(found)
    return files


def _left_out(run: RunDirectory, levels: Mapping[str, RunLevels]) -> bool:
    """Whether universes that stand in memory together are too large, which is then written."""
    sizes = {name: part.size for name, part in levels.items()}
    together = sum(size.numbers for size in sizes.values())
    for name, size in sizes.items():
        why = why_no_margins(name, size, together)
        if why is not None:
            write_why_none(run, name, why)
    return any(read_why_none(run, name) is not None for name in levels)

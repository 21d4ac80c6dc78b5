"""The margins of a run: from its measurements, beside its tables and for its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from ...census.declarations import TableDeclaration
from ...census.invariants import read_geography
from ...runs.directory import RunDirectory
from ..intervals.kept_posterior import (
    drop_posterior,
    has_posterior,
    keep_posterior,
    posterior_of,
)
from ..intervals.run_posterior import RunLevels, RunPosterior
from ..intervals.sizes import why_no_margins
from ..paths import geography_file, spine_folder
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
from .tabulations.levels import SUMMARY_LEVELS, SummaryLevel
from .tabulations.run import has_tables, tabulated_universes

FIGURES, FILES = "figures", "files"
"""Kinds of pieces of the margins: what the report shows, and what stands beside the tables."""
BLOCKS, AREAS = "blocks", "areas"
"""Subjects of the pieces with the margins of the redistricting tables."""
LEAST_APART = 1 << 13
"""Blocks from which margins are written in pieces: there are seconds of work in each."""


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


@dataclass(frozen=True)
class MarginPiece:
    """A piece of the margins: the figures of a universe for the report, or some files of margins.

    subject : the universe of figures; of files the declared table, or `BLOCKS` or `AREAS`.
    """

    kind: str
    subject: str


def pieces(settings: TopdownSettings) -> list[MarginPiece]:
    """All pieces of the margins of a run, the longest first."""
    figures = [MarginPiece(FIGURES, universe) for universe in settings.run.universes]
    if not has_tables(settings):
        return figures
    names = [BLOCKS, AREAS]
    if settings.is_declared:
        names = [table.name for table in settings.compiled_census.tables]
    return [*(MarginPiece(FILES, name) for name in names), *figures]


def pieces_apart(run: RunDirectory, settings: TopdownSettings) -> list[MarginPiece]:
    """The pieces that are worth a task of their own: none of a small run, nor of one whose spines
    were found to be too large for margins."""
    if not has_margins(settings) or universes_without_margins(run, settings):
        return []
    blocks = [spine_folder(run, name) / "blocks.parquet" for name in settings.run.universes]
    if max(pq.read_metadata(path).num_rows for path in blocks) < LEAST_APART:
        return []
    return pieces(settings)


def keep_posteriors(run: RunDirectory, settings: TopdownSettings) -> Path:
    """Keep the estimates that the pieces of the margins need, from the measurements alone, or why
    a universe has none; returns their folder.
    """
    for universes in _together(settings):
        levels = {name: RunLevels.read(run, settings, name) for name in universes}
        if not _left_out(run, levels):
            for name in universes:
                keep_posterior(run, name, RunPosterior.of(levels.pop(name)))
    return run.root / "intervals"


def are_kept(run: RunDirectory, settings: TopdownSettings) -> bool:
    """Whether `keep_posteriors` has kept what is needed."""
    none = universes_without_margins(run, settings)
    return all(name in none or has_posterior(run, name) for name in settings.run.universes)


def write_piece(run: RunDirectory, settings: TopdownSettings, piece: MarginPiece) -> None:
    """Write a piece of the margins, if its universes have any; raises as `write_margins`."""
    own, none = _universes_of(settings, piece), universes_without_margins(run, settings)
    if not any(none.keys() & set(group) for group in _together(settings) if set(own) <= set(group)):
        _write(run, settings, [piece], own)


def write_margins(run: RunDirectory, settings: TopdownSettings) -> list[Path]:
    """Write the margins beside the unchecked tables, and what the report shows of them, as far as
    its pieces are not written yet.

    Reads measurements, constraints, public geography and, for the report, estimates. A universe
    whose estimates would not fit in memory gets none, and the run keeps why. The universes of the
    census of 2020 stand in the same tables, and get margins together or not at all; those of a
    declared census are taken one after the other.
    """
    for universes in _together(settings):
        left = [
            piece
            for piece in pieces(settings)
            if set(_universes_of(settings, piece)) <= set(universes)
            and not is_written(run, settings, piece)
        ]
        if left:
            _write(run, settings, left, universes)
    for universe in settings.run.universes:
        drop_posterior(run, universe)
    return margin_files(run, settings)


def has_estimates(run: RunDirectory, settings: TopdownSettings) -> bool:
    """Whether what `keep_posteriors` kept still stands."""
    return any(has_posterior(run, universe) for universe in settings.run.universes)


def is_written(run: RunDirectory, settings: TopdownSettings, piece: MarginPiece) -> bool:
    """Whether a piece of the margins stands."""
    if piece.kind == FIGURES:
        return read_margin_summary(run, piece.subject) is not None
    if settings.is_declared:
        files = declared_margin_files(run.unchecked_release, [_table(settings, piece)])
    else:
        files = table_margin_files(run.unchecked_release, _levels(piece))
    return all(path.exists() for path in files)


def _together(settings: TopdownSettings) -> list[tuple[str, ...]]:
    """The universes whose margins stand in the same tables."""
    universes = settings.run.universes
    return [(name,) for name in universes] if settings.is_declared else [tuple(universes)]


def _universes_of(settings: TopdownSettings, piece: MarginPiece) -> tuple[str, ...]:
    """The universes whose estimates a piece needs."""
    if piece.kind == FIGURES:
        return (piece.subject,)
    if not settings.is_declared:
        return tabulated_universes(settings)
    return (_table(settings, piece).universe,)


def _table(settings: TopdownSettings, piece: MarginPiece) -> TableDeclaration:
    """The declared table whose margins a piece has."""
    tables = settings.compiled_census.tables
    return next(table for table in tables if table.name == piece.subject)


def _levels(piece: MarginPiece) -> list[SummaryLevel]:
    """The summary levels of a piece of the redistricting tables."""
    return [
        level for level in SUMMARY_LEVELS.values() if level.has_blocks == (piece.subject == BLOCKS)
    ]


def _write(
    run: RunDirectory,
    settings: TopdownSettings,
    pieces: Sequence[MarginPiece],
    universes: Sequence[str],
) -> None:
    """Write pieces that need the estimates of some universes."""
    levels = {name: RunLevels.read(run, settings, name) for name in universes}
    if _left_out(run, levels):
        return
    found = {name: posterior_of(run, name, part) for name, part in levels.items()}
    is_private = settings.is_private
    for piece in pieces:
        if piece.kind == FIGURES:
            name = piece.subject
            write_margin_summary(run, name, summarise_margins(run, settings, name, found[name]))
        elif settings.is_declared:
            (universe,) = universes
            census = settings.compiled_census
            if census.geography is None:
                raise ValueError("a declared census has a geography")
            write_declared_margins(
                _table(settings, piece),
                found[universe],
                read_geography(geography_file(run)),
                census.geography,
                settings.schema_of(universe),
                run.unchecked_release,
                is_private=is_private,
            )
        else:
            write_table_margins(
                {u: (found[u], settings.schema_of(u)) for u in tabulated_universes(settings)},
                read_geography(geography_file(run)),
                run.unchecked_release,
                _levels(piece),
                is_private=is_private,
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

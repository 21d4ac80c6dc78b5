"""The margins of a run: from its measurements, beside its tables and for its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from ...runs.directory import RunDirectory
from ..intervals.kept_posterior import drop_posterior, has_posterior, keep_posterior, posterior_of
from ..intervals.run_posterior import RunLevels, RunPosterior
from ..intervals.sizes import why_no_margins
from ..paths import spine_folder
from ..settings import TopdownSettings
from .margin_summary import (
    has_margin_summary,
    read_why_none,
    summarise_margins,
    write_margin_summary,
    write_why_none,
)
from .tabulations.run import tables_of_run

FIGURES, FILES = "figures", "files"
"""Kinds of pieces of the margins: what the report shows, and what stands beside the tables."""
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
    tables = tables_of_run(run, settings)
    subjects = [piece.subject for piece in _due(run, settings) if piece.kind == FILES]
    return [file for subject in subjects for file in tables.margin_files(subject)]


def are_written(run: RunDirectory, settings: TopdownSettings) -> bool:
    """Whether all margins of the run stand."""
    return all(is_written(run, settings, piece) for piece in _due(run, settings))


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

    subject : the universe of figures; of files, the tables beside which they stand.
    """

    kind: str
    subject: str


def pieces(run: RunDirectory, settings: TopdownSettings) -> list[MarginPiece]:
    """All pieces of the margins of a run, the longest first."""
    files = [MarginPiece(FILES, name) for name in tables_of_run(run, settings).margin_pieces()]
    return [*files, *(MarginPiece(FIGURES, universe) for universe in settings.run.universes)]


def pieces_apart(run: RunDirectory, settings: TopdownSettings) -> list[MarginPiece]:
    """The pieces that are worth a task of their own: none of a small run, nor of one whose spines
    were found to be too large for margins."""
    if not has_margins(settings) or universes_without_margins(run, settings):
        return []
    blocks = [spine_folder(run, name) / "blocks.parquet" for name in settings.run.universes]
    if max(pq.read_metadata(path).num_rows for path in blocks) < LEAST_APART:
        return []
    return pieces(run, settings)


def keep_posteriors(run: RunDirectory, settings: TopdownSettings) -> Path:
    """Keep the estimates that the pieces of the margins need, from the measurements alone, or why
    a universe has none; returns their folder.
    """
    for universes in tables_of_run(run, settings).together:
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
    if piece in _due(run, settings):
        _write(run, settings, [piece], _universes_of(run, settings, piece))


def restore_figures(run: RunDirectory, settings: TopdownSettings) -> bool:
    """Work out again what the report shows of the margins of a run that is released, where it is
    gone; whether anything was."""
    due = [piece for piece in _due(run, settings) if piece.kind == FIGURES]
    lost = [piece for piece in due if not is_written(run, settings, piece)]
    for piece in lost:
        write_piece(run, settings, piece)
    return bool(lost)


def write_margins(run: RunDirectory, settings: TopdownSettings) -> list[Path]:
    """Write the margins beside the unchecked tables, and what the report shows of them, as far as
    its pieces are not written yet.

    Reads measurements, constraints, public geography and, for the report, estimates. A universe
    whose estimates would not fit in memory gets none, and the run keeps why. Universes that stand
    in the same tables get margins together or not at all; others are taken one after the other.
    """
    for universes in tables_of_run(run, settings).together:
        left = [
            piece
            for piece in pieces(run, settings)
            if set(_universes_of(run, settings, piece)) <= set(universes)
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
        return has_margin_summary(run, piece.subject)
    files = tables_of_run(run, settings).margin_files(piece.subject)
    return all(path.exists() for path in files)


def _universes_of(
    run: RunDirectory, settings: TopdownSettings, piece: MarginPiece
) -> tuple[str, ...]:
    """The universes whose estimates a piece needs."""
    if piece.kind == FIGURES:
        return (piece.subject,)
    return tables_of_run(run, settings).universes_of(piece.subject)


def _due(run: RunDirectory, settings: TopdownSettings) -> list[MarginPiece]:
    """The pieces that there are in the end: none of universes that stand in the same tables where
    one of them has no margins."""
    none, together = universes_without_margins(run, settings), tables_of_run(run, settings).together
    without = {name for group in together if not none.keys().isdisjoint(group) for name in group}
    return [
        piece
        for piece in pieces(run, settings)
        if without.isdisjoint(_universes_of(run, settings, piece))
    ]


def _write(
    run: RunDirectory,
    settings: TopdownSettings,
    pieces: Sequence[MarginPiece],
    universes: Sequence[str],
) -> None:
    """Write pieces that need the estimates of some universes."""
    if all(has_posterior(run, name) for name in universes):
        found = {name: posterior_of(run, settings, name) for name in universes}
    else:
        levels = {name: RunLevels.read(run, settings, name) for name in universes}
        if _left_out(run, levels):
            return
        found = {name: RunPosterior.of(part) for name, part in levels.items()}
    tables = tables_of_run(run, settings)
    for piece in pieces:
        if piece.kind == FIGURES:
            name = piece.subject
            write_margin_summary(run, name, summarise_margins(run, settings, name, found[name]))
        else:
            tables.write_margins(piece.subject, found)


def _left_out(run: RunDirectory, levels: Mapping[str, RunLevels]) -> bool:
    """Whether universes that stand in memory together are too large, which is then written."""
    sizes = {name: part.size for name, part in levels.items()}
    together = sum(size.numbers for size in sizes.values())
    for name, size in sizes.items():
        why = why_no_margins(name, size, together)
        if why is not None:
            write_why_none(run, name, why)
    return any(read_why_none(run, name) is not None for name in levels)

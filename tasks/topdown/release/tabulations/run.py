"""The tables of a run: from its estimates and public geography to its release."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ....runs.directory import RunDirectory
from ...paths import spine_folder
from ...settings import TopdownSettings
from ...spine.shards import read_shards
from ..declared_run import (
    declared_table_files,
    write_declared_tables,
)
from .estimated import States, state_tabulations
from .legacy import legacy_files, write_state
from .levels import SUMMARY_LEVELS, SummaryLevel
from .tables import (
    ENDINGS,
    Tabulation,
    level_file,
    write_tables,
)
from .variables import all_tables, tables_of

BLOCKS_PER_PIECE = 1 << 20
"""Blocks of a spine from which tables are written in pieces, and of each piece of the P.L. 94-171
files."""

WHOLE, BLOCK_TABLES, AREA_TABLES = "tables", "block tables", "area tables"
LEGACY = "P.L. 94-171 files"
"""Pieces that tables are written in."""


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


def table_pieces(run: RunDirectory, settings: TopdownSettings) -> list[str]:
    """Into which pieces the tables of a run are cut: one, or several of a large spine.

    Pieces are written side by side.
    """
    if settings.is_declared or _n_blocks(run, settings) <= BLOCKS_PER_PIECE:
        return [WHOLE]
    n = -(-_n_blocks(run, settings) // BLOCKS_PER_PIECE)
    legacy = [f"{LEGACY} {number} of {n}" for number in range(1, n + 1)]
    return [BLOCK_TABLES, AREA_TABLES, *(legacy if has_legacy(settings) else [])]


def shares_of_pieces(pieces: Sequence[str]) -> list[float]:
    """How long each piece of the tables takes, as a share of them all; fitted to a nation's."""
    n_legacy = sum(piece.startswith(LEGACY) for piece in pieces)
    weights = [
        {BLOCK_TABLES: 3.0, AREA_TABLES: 1.0}.get(own, 3.0 / max(n_legacy, 1)) for own in pieces
    ]
    return [weight / sum(weights) for weight in weights]


def write_release_tables(
    run: RunDirectory, settings: TopdownSettings, piece: str = WHOLE
) -> list[Path]:
    """Write the tables that the settings ask for, or a piece of them, beside the unchecked
    microdata; returns the files."""
    if settings.is_declared:
        return write_declared_tables(run, settings)
    wanted = _Wanted.of(run, settings, piece)
    written: list[Path] = []

    def tabulations() -> Iterator[Tabulation]:
        states, universes = wanted.every_state, tabulated_universes(settings)
        if not wanted.levels:
            states = wanted.states
        parts = state_tabulations(run, settings, universes, states)
        for fips, tabulation in zip(states, parts, strict=True):
            if fips in wanted.states:
                files = wanted.legacy_files(fips)
                write_state(tabulation, fips, files)
                written.extend(files)
            yield tabulation

    files = write_tables(
        tabulations(), run.unchecked_release, is_private=settings.is_private, levels=wanted.levels
    )
    return files + written


def written_tables(run: RunDirectory, settings: TopdownSettings, piece: str = WHOLE) -> Path | None:
    """The last file of the tables, or of a piece of them, where it has any and all stand."""
    if settings.is_declared:
        files = declared_table_files(run.unchecked_release, settings)
    else:
        files = _Wanted.of(run, settings, piece).files
    return files[-1] if files and all(path.exists() for path in files) else None


@dataclass(frozen=True)
class _Wanted:
    """What a piece of the tables has: summary levels, and states in the P.L. 94-171 format."""

    folder: Path
    is_private: bool
    levels: tuple[SummaryLevel, ...]
    states: tuple[str, ...]
    every_state: tuple[str, ...]

    @classmethod
    def of(cls, run: RunDirectory, settings: TopdownSettings, piece: str) -> _Wanted:
        """Of one of the pieces that `table_pieces` names."""
        every = States.read(run)
        states: tuple[str, ...] = ()
        levels = tuple(SUMMARY_LEVELS.values())
        if piece == WHOLE and has_legacy(settings):
            states = every.fips
        elif piece == BLOCK_TABLES:
            levels = tuple(level for level in levels if level.has_blocks)
        elif piece == AREA_TABLES:
            levels = tuple(level for level in levels if not level.has_blocks)
        elif piece.startswith(LEGACY):
            number, n = (int(word) for word in piece.removeprefix(LEGACY).split(" of "))
            levels, states = (), every.group(number - 1, n)
        return cls(run.unchecked_release, settings.is_private, levels, states, every.fips)

    @property
    def files(self) -> list[Path]:
        """All files of the piece."""
        tables = [level_file(self.folder, level, end) for level in self.levels for end in ENDINGS]
        return tables + [file for fips in self.states for file in self.legacy_files(fips)]

    def legacy_files(self, fips: str) -> list[Path]:
        """The four files of a state."""
        files = legacy_files(self.folder, self.every_state, is_private=self.is_private)
        first = 4 * self.every_state.index(fips)
        return files[first : first + 4]


def _n_blocks(run: RunDirectory, settings: TopdownSettings) -> int:
    """Blocks of the largest spine that tables are made of."""
    return max(
        read_shards(spine_folder(run, universe))[-1].stop
        for universe in tabulated_universes(settings)
    )

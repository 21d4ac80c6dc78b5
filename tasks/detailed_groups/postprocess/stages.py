"""The postprocessing of a pass, level by level, through files of the run directory.

    measurements -> suppressed -> marginals -> coterminous -> alone

Each stage reads what the one before it wrote, one file for each population group level, so that
memory is that of the largest level. The last two stages are run if the settings ask for them.
Suppression comes first, as in the production program, which suppresses what it has measured and
then clips at zero. Nothing is read but noisy measurements, public geography and declared
invariants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from .alone import suppress_alone
from .coterminous import NO_SET, CoterminousSets, donate
from .groups import (
    COUNTED,
    MEASURED,
    SCREENED,
    read_groups,
    write_groups,
)
from .marginals import add_marginals
from .suppression import suppress

SUPPRESSED, MARGINALS, COTERMINOUS, ALONE = (
    "suppressed",
    "marginals",
    "coterminous",
    "alone",
)

Level = tuple[str, int]
"""Region type and iteration level of a population group level."""


@dataclass(frozen=True)
class PassFiles:
    """Where a pass keeps its groups.

    measured : folder of the noisy measurements, with a folder for each region type and level.
    derived : folder of what is derived from them, with a folder for each stage.
    levels : the measured levels, highest summary level first.
    """

    measured: Path
    derived: Path
    levels: tuple[Level, ...]

    def measurements(self, level: Level) -> list[Path]:
        """The files of noisy measurements of a level."""
        return sorted((self.measured / level[0] / str(level[1])).rglob("*.parquet"))

    def groups(self, stage: str, level: Level) -> Path:
        """The groups of a level after a stage."""
        return self.derived / stage / level[0] / f"{level[1]}.parquet"

    def are_there(self, stage: str) -> bool:
        """Whether a stage has finished for all levels."""
        return all(self.groups(stage, level).exists() for level in self.levels)


def suppress_levels(files: PassFiles, thresholds: Mapping[Level, int | None]) -> None:
    """Mark small totals of every level as suppressed; None is a level without suppression."""
    for level in files.levels:
        measured = read_groups(files.measurements(level), MEASURED)
        write_groups(files.groups(SUPPRESSED, level), suppress(measured, thresholds[level]))


def add_marginals_to_levels(files: PassFiles, *, allow_negative_counts: bool) -> None:
    """Clip counts at zero, unless negative ones are allowed, and add totals and sex marginals."""
    for level in files.levels:
        screened = read_groups([files.groups(SUPPRESSED, level)], SCREENED)
        counted = add_marginals(screened, allow_negative_counts=allow_negative_counts)
        write_groups(files.groups(MARGINALS, level), counted)


def donate_between_levels(files: PassFiles, sets: CoterminousSets, order: Sequence[str]) -> None:
    """Algorithm 4 of [SafeTabP2025] on all levels together.

    Only groups of regions in sets are kept in memory.
    """
    members = {
        level: counted.filter(pa.array(sets.of_rows(counted) != NO_SET))
        for level, counted in _levels(files, MARGINALS)
    }
    together = pa.concat_tables(members.values()).unify_dictionaries().combine_chunks()
    after = donate(together, sets.of_rows(together), order)
    start = 0
    for level, counted in _levels(files, MARGINALS):
        end = start + members[level].num_rows
        inside = sets.of_rows(counted) != NO_SET
        merged = _replaced(counted, inside, after.slice(start, end - start))
        write_groups(files.groups(COTERMINOUS, level), merged)
        start = end


def suppress_alone_levels(
    files: PassFiles, source: str, counterparts: Mapping[str, str], *, by_cell: bool = False
) -> None:
    """Suppress 'alone' groups above their counterpart, in what the stage `source` has left."""
    for level, counted in _levels(files, source):
        write_groups(
            files.groups(ALONE, level), suppress_alone(counted, counterparts, by_cell=by_cell)
        )


def final_groups(files: PassFiles, stage: str) -> Iterator[pa.Table]:
    """The groups of every level after the last stage, suppressed ones included."""
    for _, counted in _levels(files, stage):
        yield counted


def _levels(files: PassFiles, stage: str) -> Iterator[tuple[Level, pa.Table]]:
    for level in files.levels:
        yield level, read_groups([files.groups(stage, level)], COUNTED)


def _replaced(groups: pa.Table, where: np.ndarray, by: pa.Table) -> pa.Table:
    """The groups with those at a mask replaced, in the same order."""
    if not where.any():
        return groups
    both = pa.concat_tables([groups, by.select(groups.schema.names)]).unify_dictionaries()
    source = np.arange(groups.num_rows)
    source[where] = groups.num_rows + np.arange(by.num_rows)
    return both.combine_chunks().take(pa.array(source))

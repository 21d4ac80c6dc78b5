"""Characteristic iterations: a race or ethnicity group with 'alone' or 'in any combination'.

Iterations of level 0 are the major groups, which other products tabulate. Of the others, level 1
is regional and level 2 detailed. A `DETAILED_ONLY` iteration exists for the nation and the states
alone, where it is measured by a total only; a `COARSE_ONLY` iteration below them alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .regions import DETAILED

LEVELS = (1, 2)
"""Iteration levels that are tabulated: regional and detailed."""

N_SEXES = 2
OLDEST_AGE = 115

AGE_BINS: dict[int, tuple[int, ...]] = {
    1: (0, 18, 45, 65),
    2: (0, 5, 18, 25, 35, 45, 55, 65, 75),
    3: (0, 5, 10, 15, 18, 20, 21, 22, 25, 30, 35, 40, 45, 50, 55, 60, 62, 65, 67, 70, 75, 80, 85),
}
"""First ages of the bins of each sex by age table: 1 T02001, 2 T02002, 3 T02003. Each table's
bins are unions of those of the next."""

FINEST_TABLE = 3
N_CELLS = {0: 1} | {table: N_SEXES * len(bins) for table, bins in AGE_BINS.items()}
"""Counts of each table: 0 is the total; cells are row-major, sex by age."""


@dataclass(frozen=True)
class CharacteristicIteration:
    """A row of the race or the ethnicity characteristic iterations.

    `is_alone` is None for an ethnicity, of which everybody has one.
    """

    code: str
    name: str
    level: int
    is_alone: bool | None
    detailed_only: bool = False
    coarse_only: bool = False

    def is_tabulated(self, granularity: str, level: int) -> bool:
        """Whether the iteration is among those of a granularity and level."""
        is_left_out = self.coarse_only if granularity == DETAILED else self.detailed_only
        return self.level == level and not is_left_out


def finest_cell(sex: np.ndarray, age: np.ndarray) -> np.ndarray:
    """Cell of the finest table for sex (0 male, 1 female) and age in years; same shape."""
    bins = np.array(AGE_BINS[FINEST_TABLE])
    bin_of_age = (np.searchsorted(bins, np.arange(OLDEST_AGE + 1), side="right") - 1).astype(int)
    return sex * bins.size + bin_of_age[age]


def cells_of_table(table: int) -> np.ndarray:
    """The cell of a table in which each cell of the finest lies, shape `(46,)`; 0 for totals.

    >>> cells_of_table(1)[[0, 4, 22, 23]].tolist()
    [0, 1, 3, 4]
    """
    finest = AGE_BINS[FINEST_TABLE]
    if table == 0:
        return np.zeros(N_SEXES * len(finest), dtype=np.int64)
    bins = AGE_BINS[table]
    age = np.searchsorted(bins, finest, side="right") - 1
    return np.concatenate([sex * len(bins) + age for sex in range(N_SEXES)]).astype(np.int64)

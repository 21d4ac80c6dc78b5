"""Subspines: the states of a spine in groups, by which workers share the work on a large run.

No entity of a summary level extends over two states, and no geounit below the state does. States
are public, and so are their numbers of blocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ....geography.levels import Spine
from ...runs.directory import RunDirectory
from ..settings import TopdownSettings
from .files import spine_of

BLOCKS_PER_SUBSPINE = 1 << 13
"""Blocks of a spine from which it is cut into subspines, and of each of them, except for larger
states: some tenths of a second of most kinds of work."""

STATE = "State"


@dataclass(frozen=True, eq=False)
class Subspine:
    """Some states of a spine as a spine of their own, and the positions of its geounits in the
    whole one: `(n,)` for each geolevel."""

    spine: Spine
    positions: tuple[np.ndarray, ...]

    @classmethod
    def whole(cls, spine: Spine) -> Subspine:
        """The whole spine as its own subspine."""
        return cls(spine, tuple(np.arange(len(level)) for level in spine.geolevels))

    @property
    def blocks(self) -> np.ndarray:
        """Positions of its blocks."""
        return self.positions[-1]


def state_codes(state_geocode: np.ndarray) -> np.ndarray:
    """FIPS codes of geounits of the State geolevel: the last two digits on every spine. A state can
    have two."""
    return np.array([code[-2:] for code in state_geocode], dtype=object)


def first_states(spine: Spine) -> tuple[str, ...]:
    """Code of the first state of each subspine, ascending; the first one is empty. A spine has one
    subspine if it is small, or has no states below its root."""
    if spine.n_blocks <= BLOCKS_PER_SUBSPINE or spine.names[1:2] != (STATE,):
        return ("",)
    level = spine.geolevel(STATE)
    codes, state = np.unique(state_codes(level.geocode), return_inverse=True)
    n_blocks = np.bincount(state, level.n_blocks)
    before = np.cumsum(n_blocks) - n_blocks
    _, first = np.unique(before // BLOCKS_PER_SUBSPINE, return_index=True)
    return ("", *codes[first[1:]])


def n_subspines(spine: Spine) -> int:
    """Number of subspines of a spine."""
    return len(first_states(spine))


def n_pieces(run: RunDirectory, settings: TopdownSettings, universe: str) -> int:
    """Number of pieces of the work on a universe's areas, each a subspine: one where entities may
    extend over several states, unlike those of summary levels."""
    return n_subspines(spine_of(run, universe)) if settings.compiled_census.summary_levels else 1


def subspine_of(spine: Spine, number: int) -> Subspine:
    """One of the subspines of a spine, from 0; the whole if it is the only one."""
    starts = np.array(first_states(spine), dtype=object)
    if len(starts) == 1:
        return Subspine.whole(spine)
    codes = state_codes(spine.geolevel(STATE).geocode)
    subspine = np.searchsorted(starts, codes, side="right") - 1
    return _part(spine, np.flatnonzero(subspine == number))


def states_of_subspine(spine: Spine, number: int, states: Sequence[str]) -> list[str]:
    """The states of a subspine, among the given codes of all; a state that is not on the spine
    belongs to the subspine of the state before."""
    starts = first_states(spine)
    return [state for state in states if bisect_right(starts, state) == number + 1]


def read_areas(file: Path, spine: Spine, number: int) -> pd.DataFrame:
    """Rows of a file of areas that are a subspine's states'; see `states_of_subspine`."""
    starts = (*first_states(spine), ":")  # A colon follows the digits.
    return read_codes(file, *starts[number : number + 2])


def read_codes(file: Path, first: str, after: str) -> pd.DataFrame:
    """Rows of a file of areas whose codes are from `first` on and before `after`."""
    chosen = [("block_geocode", ">=", first), ("block_geocode", "<", after)]
    return pq.read_table(file, filters=chosen).to_pandas()


def blocks_of_state(spine: Spine, fips: str) -> np.ndarray:
    """Positions of the blocks of a state, ascending."""
    if STATE not in spine.names:
        codes = pa.array(spine.block_geocode, pa.string())
        return np.flatnonzero(pc.starts_with(codes, fips))
    states = np.flatnonzero(state_codes(spine.geolevel(STATE).geocode) == fips)
    below = (spine.blocks_below(STATE, state, state + 1) for state in states.tolist())
    return np.concatenate([np.arange(0), *(np.arange(one.start, one.stop) for one in below)])


def _part(spine: Spine, states: np.ndarray) -> Subspine:
    """The part of a spine below some State geounits, given by their ascending positions."""
    positions = [np.zeros(1, dtype=np.int64), states]
    levels = [spine.geolevels[0]]
    for depth, level in enumerate(spine.geolevels[1:], 1):
        above = positions[depth - 1]
        if depth > 1:
            is_kept = np.zeros(len(spine.geolevels[depth - 1]), dtype=bool)
            is_kept[above] = True
            positions.append(np.flatnonzero(is_kept[level.parent]))
        columns = ("geocode", "plb_share_code", "is_aian", "n_blocks")
        taken = {name: getattr(level, name)[positions[depth]] for name in columns}
        parent = np.searchsorted(above, level.parent[positions[depth]])
        levels.append(replace(level, parent=parent, **taken))
    blocks = positions[-1]
    part = Spine(spine.kind, tuple(levels), spine.block_geocode[blocks], spine.block_row[blocks])
    return Subspine(part, tuple(positions))

"""Subspines: some states of a large spine, as a spine of their own.

No entity of a summary level lies in two states, and no geounit below the state does, so that
subspines can be compared with the truth one after the other, or side by side. Their variances are
those of the whole spine: the states of other subspines are known by the sum of their covariances,
which is all that the root takes of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from .....geography.levels import Geolevel, Spine
from .theory import Prediction

BLOCKS_PER_SUBSPINE = 1 << 18
"""Blocks of a spine from which it is compared in subspines, and of each of them, but for a state
that has more."""

STATE = "State"


@dataclass(frozen=True, eq=False)
class Subspine:
    """Some states of a spine as a spine of their own, and where its geounits stand in the whole
    one: `(n,)` positions of each geolevel."""

    spine: Spine
    positions: tuple[np.ndarray, ...]

    @classmethod
    def whole(cls, spine: Spine) -> Subspine:
        """All of a spine."""
        return cls(spine, tuple(np.arange(len(level)) for level in spine.geolevels))

    @property
    def blocks(self) -> np.ndarray:
        """Positions of its blocks."""
        return self.positions[-1]


def states_of(spine: Spine) -> np.ndarray:
    """The number of each State geounit's state, `(n,)`; a state can have two."""
    return np.unique([code[-2:] for code in spine.geolevel(STATE).geocode], return_inverse=True)[1]


def n_subspines(spine: Spine) -> int:
    """Into how many subspines a spine is cut, between states: one if it is small, or has no states
    below its root."""
    if spine.n_blocks <= BLOCKS_PER_SUBSPINE or spine.names[1:2] != (STATE,):
        return 1
    return int(_subspine_of_state(spine).max()) + 1


def subspine_of(spine: Spine, number: int) -> Subspine:
    """One of the subspines of a spine, from 0; the whole if it is the only one."""
    if n_subspines(spine) == 1:
        return Subspine.whole(spine)
    return _part(spine, np.flatnonzero(_subspine_of_state(spine) == number))


def _subspine_of_state(spine: Spine) -> np.ndarray:
    """(n,) the subspine of each State geounit."""
    state = states_of(spine)
    n_blocks = np.bincount(state, spine.geolevel(STATE).n_blocks)
    before = np.cumsum(n_blocks) - n_blocks
    return np.unique(before // BLOCKS_PER_SUBSPINE, return_inverse=True)[1][state]


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
        levels.append(_of_level(level, positions[depth], above))
    blocks = positions[-1]
    part = Spine(spine.kind, tuple(levels), spine.block_geocode[blocks], spine.block_row[blocks])
    return Subspine(part, tuple(positions))


def _of_level(level: Geolevel, rows: np.ndarray, above: np.ndarray) -> Geolevel:
    names = ("geocode", "plb_share_code", "is_aian", "bypassed", "n_blocks")
    taken = {name: getattr(level, name)[rows] for name in names}
    return replace(level, parent=np.searchsorted(above, level.parent[rows]), **taken)


Totals = Mapping[int, np.ndarray]
"""By component of a prediction, `(n_subspines, 2, k, k)`: `below_root` of every subspine."""


def totals_of(whole: Prediction, components: Collection[int]) -> Totals:
    """What the prediction of each subspine needs of the others, for some components."""
    nothing = dict.fromkeys(components, np.zeros((2, whole.n_core, whole.n_core)))
    totals: dict[int, list[np.ndarray]] = {component: [] for component in components}
    for number in range(n_subspines(whole.spine)):
        part = _prediction_of_part(whole, subspine_of(whole.spine, number), nothing)
        for component, own in totals.items():
            own.append(part.covariances(component).below_root[:, 0])
    return {component: np.array(own) for component, own in totals.items()}


def prediction_of(whole: Prediction, subspine: Subspine, number: int, totals: Totals) -> Prediction:
    """The prediction of a subspine, which is the whole's on its geounits, for the components whose
    totals are told."""
    if subspine.spine is whole.spine:
        return whole
    beside = {c: np.delete(own, number, axis=0).sum(axis=0) for c, own in totals.items()}
    return _prediction_of_part(whole, subspine, beside)


def _prediction_of_part(
    whole: Prediction, subspine: Subspine, beside: Mapping[int, np.ndarray]
) -> Prediction:
    known = whole.known
    if known is not None:
        states = known[1][subspine.positions[1]]
        known = known[0], np.unique(states, return_inverse=True)[1]
    return replace(
        whole,
        spine=subspine.spine,
        type_is_possible=whole.type_is_possible[subspine.blocks],
        known=known,
        beside=beside,
    )

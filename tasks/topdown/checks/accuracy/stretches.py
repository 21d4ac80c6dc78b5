"""Stretches of a spine: some states of a large one, as a spine of their own.

No entity of a summary level lies in two states, and no geounit below the state does, so that
stretches can be compared with the truth one after the other. Their variances are those of the whole
spine: the states of other stretches are known by the sum of their covariances, which is all that
the root takes of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from spineflow.geography.levels import Geolevel, Spine
from spineflow.geography.vector_variance import VectorPrecision, handed_down
from spineflow.tasks.topdown.checks.accuracy.theory import Prediction

BLOCKS_PER_STRETCH = 1 << 18
"""Blocks of a spine from which it is compared in stretches, and of each of them, but for a state
that has more."""

STATE = "State"


@dataclass(frozen=True, eq=False)
class Stretch:
    """Some states of a spine as a spine of their own, and where its geounits stand in the whole
    one: `(n,)` positions of each geolevel."""

    spine: Spine
    positions: tuple[np.ndarray, ...]

    @property
    def blocks(self) -> np.ndarray:
        """Positions of its blocks."""
        return self.positions[-1]


def states_of(spine: Spine) -> np.ndarray:
    """The number of each State geounit's state, `(n,)`; a state can have two."""
    return np.unique([code[-2:] for code in spine.geolevel(STATE).geocode], return_inverse=True)[1]


def stretches_of(spine: Spine, blocks_per_stretch: int | None = None) -> list[Stretch]:
    """A spine cut between states; whole if it is small, or has no states below its root."""
    most = BLOCKS_PER_STRETCH if blocks_per_stretch is None else blocks_per_stretch
    whole = Stretch(spine, tuple(np.arange(len(level)) for level in spine.geolevels))
    if spine.n_blocks <= most or spine.names[1:2] != (STATE,):
        return [whole]
    state = states_of(spine)
    n_blocks = np.bincount(state, spine.geolevel(STATE).n_blocks)
    before = np.cumsum(n_blocks) - n_blocks
    number = (before // most).astype(np.int64)[state]
    return [_part(spine, np.flatnonzero(number == own)) for own in np.unique(number)]


def _part(spine: Spine, states: np.ndarray) -> Stretch:
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
    return Stretch(part, tuple(positions))


def _of_level(level: Geolevel, rows: np.ndarray, above: np.ndarray) -> Geolevel:
    return replace(
        level,
        geocode=level.geocode[rows],
        parent=np.searchsorted(above, level.parent[rows]),
        plb_share_code=level.plb_share_code[rows],
        is_aian=level.is_aian[rows],
        bypassed=level.bypassed[rows],
        n_blocks=level.n_blocks[rows],
    )


@dataclass(frozen=True, eq=False)
class _OfStates:
    """What the prediction of one stretch needs of the others; see `PredictionOfStates`."""

    whole: Mapping[int, Sequence[VectorPrecision]]
    totals: Mapping[int, Sequence[np.ndarray]]
    """By component, `below_root` of every stretch."""
    positions: tuple[np.ndarray, ...]
    number: int

    def precision(self, component: int) -> Sequence[VectorPrecision]:
        return [
            VectorPrecision(level.matrices, level.code[rows])
            for level, rows in zip(self.whole[component], self.positions, strict=True)
        ]

    def beside(self, component: int) -> np.ndarray:
        totals = self.totals[component]
        others = [own for number, own in enumerate(totals) if number != self.number]
        return np.sum(others, axis=0)


def predictions_of(
    whole: Prediction, stretches: Sequence[Stretch], components: set[int]
) -> list[Prediction]:
    """The prediction of each stretch, which is the whole's on its geounits, for some components."""
    if len(stretches) == 1:
        return [whole]
    handed = {c: handed_down(whole.spine, whole.precision(c)) for c in components}
    totals: dict[int, list[np.ndarray]] = {component: [] for component in components}
    found = []
    for number, stretch in enumerate(stretches):
        of_states = _OfStates(handed, totals, stretch.positions, number)
        known = whole.known
        if known is not None:
            states = known[1][stretch.positions[1]]
            known = known[0], np.unique(states, return_inverse=True)[1]
        part = replace(
            whole,
            spine=stretch.spine,
            can_have=whole.can_have[stretch.blocks],
            known=known,
            part_of=of_states,
        )
        nothing = np.zeros((whole.n_core, whole.n_core))
        for component in components:
            estimate = part.estimate(component, of_states.precision(component), nothing)
            totals[component].append(estimate.below_root)
        found.append(part)
    return found

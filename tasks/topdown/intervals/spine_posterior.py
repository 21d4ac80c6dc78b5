"""Best linear unbiased estimates of every geounit, with their covariances.

Going up the spine, each geounit gets the estimate from its subtree; going down, what is known of a
parent from everything else reaches its children (`spine_estimates`). The result is generalised
least squares over all measurements of the spine at once, with exact invariants, and the errors have
the covariances V + k D, k without bound (`geography.conditioning`): what D spans at the end is not
determined by anything that was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ..estimation.problem import QueryMeasurement
from ..estimation.query_algebra import QueryAlgebra
from ..estimation.spine_estimates import (
    GroupedEstimates,
    KnownSums,
    Step,
    steps_up,
    subtree_estimates,
)


@dataclass(frozen=True, eq=False)
class LevelInput:
    """What was measured and declared of a geolevel's geounits.

    parent : (n,) position of each geounit's parent; zeros at the root.
    type_is_possible : (n, T) types without a bound of zero.
    measured : yields runs of geounits in order, from first to last: where they start and stop and
        their answers by query; a precision of 0 stands for a geounit that was not measured.
    totals : (n,) exact totals, or None.
    known_sums : the state of each geounit and the states' exact totals, or None.
    """

    parent: np.ndarray
    type_is_possible: np.ndarray
    measured: Callable[[], Iterator[tuple[int, int, Mapping[str, QueryMeasurement]]]]
    totals: np.ndarray | None = None
    known_sums: KnownSums | None = None


Listener = Callable[[str, int, int], None]
"""Called with what is being done, and how many geounits are done and planned. With nothing planned,
the text is something to be said."""

UP = "estimates up the spine"
DOWN = "estimates down the spine"


def nobody(what: str, done: int, planned: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True, eq=False)
class SpinePosterior:
    """Estimates up a spine.

    root : of the root, from everything.
    steps : root first; where totals of states are known, one more stands between the states'
        parts and the root.
    depth_of_step : number of the geolevel whose geounits are a step's parts; -1 for states that
        are no geounits.
    listener : who is told of the progress down the spine.
    """

    algebra: QueryAlgebra
    root: GroupedEstimates
    steps: tuple[Step, ...]
    depth_of_step: tuple[int, ...]
    listener: Listener = nobody

    @classmethod
    def up(
        cls, algebra: QueryAlgebra, levels: list[LevelInput], listener: Listener = nobody
    ) -> SpinePosterior:
        """From the geolevels' measurements, root first."""
        planned = sum(len(level.parent) for level in levels)
        steps: list[Step] = []
        depths: list[int] = []
        below = None
        for depth in range(len(levels) - 1, -1, -1):
            level = levels[depth]
            before = sum(len(lower.parent) for lower in levels[depth + 1 :])

            def done(stop: int, before: int = before) -> None:
                listener(UP, before + stop, planned)

            root = _from_subtrees(algebra, level, below, done)
            if depth or level.known_sums is not None:
                n_above = len(levels[depth - 1].parent) if depth else 1
                found = steps_up(root, level.parent, n_above, level.known_sums)
                steps.extend(reversed(found))
                depths.extend([depth, *[-1] * (len(found) - 1)])
                root = below = found[0].sums
        return cls(algebra, root, tuple(reversed(steps)), tuple(reversed(depths)), listener)

    def down(self) -> Iterator[tuple[int, GroupedEstimates]]:
        """Number of each geolevel, root first, and the estimates of its geounits."""
        above, done = self.root, 0
        planned = sum(len(step.whole) for step in self.steps)
        if 0 not in self.depth_of_step:
            yield 0, above
        for step, depth in zip(self.steps, self.depth_of_step, strict=True):
            above, done = step.given(above), done + len(step.whole)
            self.listener(DOWN, done, planned)
            if depth >= 0:
                yield depth, above


def _from_subtrees(
    algebra: QueryAlgebra,
    level: LevelInput,
    below: GroupedEstimates | None,
    done: Callable[[int], None],
) -> GroupedEstimates:
    """Estimates of a geolevel's geounits from their own measurements and what lies below; `done` is
    called with the number of those that are there."""
    found = GroupedEstimates.zero(algebra, level.type_is_possible)
    for start, stop, measured in level.measured():
        totals = None if level.totals is None else level.totals[start:stop].astype(np.float64)
        own = below if below is None else below.part(start, stop)
        type_is_possible = level.type_is_possible[start:stop]
        found.enter(start, subtree_estimates(algebra, type_is_possible, measured, totals, own))
        done(stop)
    return found

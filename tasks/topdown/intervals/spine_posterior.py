"""Best linear unbiased estimates of every geounit, with their covariances.

Going up the spine, each geounit gets the estimate from its subtree (`spine_estimates`), with the
error covariance V + k D, k without bound. Going down, what is known of a parent from everywhere
else reaches its children: with S the sum of the children's covariances, K = V S^-1 a child's gain,
and m, C the parent's estimate from everything and its covariance,

    mean = x + K (m - sum of x),    covariance = (1 - K) V (1 - K)' + K (S - V) K' + K C K'.

The result is generalised least squares over all measurements of the spine at once, with exact
invariants. Where D is not zero the gain is the limit for k without bound, and what D still spans
afterwards is not determined by anything that was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..estimation.linear_estimates import LinearEstimates, gain_matrices
from ..estimation.problem import QueryMeasurement
from ..estimation.query_algebra import QueryAlgebra
from ..estimation.spine_estimates import (
    ROWS_AT_ONCE,
    GroupedEstimates,
    subtree_estimates,
)

RELATIVE_ZERO = 1e-9
"""What is left of D relative to what it was, from which it counts as zero."""


@dataclass(frozen=True, eq=False)
class LevelInput:
    """What was measured and declared of a geolevel's geounits.

    parent : (n,) position of each geounit's parent; zeros at the root.
    can_have : (n, T) types without a bound of zero.
    measured : yields runs of geounits in order, from first to last: where they start and stop and
        their answers by query; a precision of 0 stands for a geounit that was not measured.
    totals : (n,) exact totals, or None.
    state, state_totals : (n,) state of each geounit and the exact total of each, or None.
    """

    parent: np.ndarray
    can_have: np.ndarray
    measured: Callable[[], Iterator[tuple[int, int, Mapping[str, QueryMeasurement]]]]
    totals: np.ndarray | None = None
    state: np.ndarray | None = None
    state_totals: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Step:
    """From parts to the wholes that they add up to: `sums` is known of the wholes from the parts
    alone, `whole` (n,) is the whole of each part."""

    parts: GroupedEstimates
    whole: np.ndarray
    sums: GroupedEstimates

    @cached_property
    def gains(self) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        """`gain_matrices` of each group of the sums."""
        return tuple(gain_matrices(group.estimates) for group in self.sums.groups)


@dataclass(frozen=True, eq=False)
class SpinePosterior:
    """Estimates up a spine.

    root : of the root, from everything.
    steps : root first; where totals of states are known, one more stands between the states'
        parts and the root.
    depth_of_step : number of the geolevel whose geounits are a step's parts; -1 for states that
        are no geounits.
    """

    algebra: QueryAlgebra
    root: GroupedEstimates
    steps: tuple[Step, ...]
    depth_of_step: tuple[int, ...]

    @classmethod
    def up(cls, algebra: QueryAlgebra, levels: list[LevelInput]) -> SpinePosterior:
        """From the geolevels' measurements, root first."""
        steps: list[Step] = []
        depths: list[int] = []
        below = None
        for depth in range(len(levels) - 1, -1, -1):
            level = levels[depth]
            own = _from_subtrees(algebra, level, below)
            n_above = len(levels[depth - 1].parent) if depth else 1
            if level.state is not None and level.state_totals is not None:
                n_states = len(level.state_totals)
                country = np.zeros(n_states, dtype=np.int64)
                country[level.state] = level.parent
                states = own.summed(level.state, n_states)
                steps.append(Step(own, level.state, states))
                depths.append(depth)
                own = states.with_totals(level.state_totals.astype(np.float64))
                below = own.summed(country, n_above)
                steps.append(Step(own, country, below))
                depths.append(-1)
            elif depth:
                below = own.summed(level.parent, n_above)
                steps.append(Step(own, level.parent, below))
                depths.append(depth)
        if levels[0].state is not None:
            own = steps[-1].sums
        return cls(algebra, own, tuple(reversed(steps)), tuple(reversed(depths)))

    def down(self) -> Iterator[tuple[int, GroupedEstimates]]:
        """Number of each geolevel, root first, and the estimates of its geounits."""
        above = self.root
        if 0 not in self.depth_of_step:
            yield 0, above
        for step, depth in zip(self.steps, self.depth_of_step, strict=True):
            above = _given_wholes(step, above)
            if depth >= 0:
                yield depth, above


def _from_subtrees(
    algebra: QueryAlgebra, level: LevelInput, below: GroupedEstimates | None
) -> GroupedEstimates:
    """Estimates of a geolevel's geounits from their own measurements and what lies below."""
    found = GroupedEstimates.zero(algebra, level.can_have)
    for start, stop, measured in level.measured():
        totals = None if level.totals is None else level.totals[start:stop].astype(np.float64)
        own = below if below is None else below.part(start, stop)
        can_have = level.can_have[start:stop]
        found.enter(start, subtree_estimates(algebra, can_have, measured, totals, own))
    return found


def _given_wholes(step: Step, wholes: GroupedEstimates) -> GroupedEstimates:
    """Estimates of the parts given those of the wholes from everything."""
    algebra = step.parts.algebra
    found = GroupedEstimates.zero(algebra, step.parts.can_have)
    for into, group in zip(found.groups, step.parts.groups, strict=True):
        into.estimates.mean[:] = group.estimates.mean
    n_wholes = len(wholes.can_have)
    for sums, gains in zip(step.sums.groups, step.gains, strict=True):
        posterior = wholes.at(sums.rows, sums.cells)
        position = np.full(n_wholes, -1)
        position[sums.rows] = np.arange(sums.rows.size)
        for into, part in zip(found.groups, step.parts.groups, strict=True):
            place = position[step.whole[part.rows]]
            chosen = np.flatnonzero(place >= 0)
            where = np.searchsorted(sums.cells, part.cells)
            for start in range(0, chosen.size, ROWS_AT_ONCE):
                rows = chosen[start : start + ROWS_AT_ONCE]
                given = (sums.estimates, posterior, place[rows])
                _move(algebra, into.estimates, part.estimates, rows, where, gains, given)
    return found


def _move(
    algebra: QueryAlgebra,
    into: LinearEstimates,
    parts: LinearEstimates,
    rows: np.ndarray,
    where: np.ndarray,
    gains: tuple[np.ndarray, np.ndarray],
    given: tuple[LinearEstimates, LinearEstimates, np.ndarray],
) -> None:
    """Enter the posterior of the parts `rows` in `into`, whose means are those of the parts yet.

    where : (n,) place of the parts' core cells among those of the wholes.
    given : the sums of the wholes' parts, the wholes' posterior, and the whole of each row.
    """
    sums, posterior, at = given
    along, along_diffuse = gains
    distance = posterior.mean[at] - sums.mean[at]
    cells = np.arange(len(where))
    for component, columns in enumerate(algebra.components):
        v, d = parts.variance[rows, component], parts.diffuse[rows, component]
        gain = v @ along[at, component][:, where]
        if d.any():
            gain = gain + d @ along_diffuse[at, component][:, where]
        into.mean[np.ix_(rows, cells, columns)] += gain @ distance[:, :, columns]
        into.variance[rows, component] = _conditional(
            v, gain, where, sums.variance[at, component], posterior.variance[at, component]
        )
        if d.any():
            left = _conditional(
                d, gain, where, sums.diffuse[at, component], posterior.diffuse[at, component]
            )
            size = np.abs(d).max(axis=(1, 2), keepdims=True)
            into.diffuse[rows, component] = np.where(np.abs(left) > RELATIVE_ZERO * size, left, 0.0)


def _conditional(
    v: np.ndarray, gain: np.ndarray, where: np.ndarray, sums: np.ndarray, whole: np.ndarray
) -> np.ndarray:
    """(1 - K) V (1 - K)' + K (S - V) K' + K C K', for V on some cells of S and C."""
    cross = gain[:, :, where] @ v
    found = v - cross - cross.swapaxes(1, 2) + gain @ (sums + whole) @ gain.swapaxes(1, 2)
    return 0.5 * (found + found.swapaxes(1, 2))

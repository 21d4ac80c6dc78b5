"""Best linear unbiased estimates of a geolevel's geounits, up and down one step of the spine.

For one geounit, in the coordinates of `tasks.topdown.estimation.query_algebra`, the measurements in
its subtree determine x at least partly: its estimate has the error covariance

    V + k D,    k -> infinity,

and `geography.conditioning` derives it from measurements, sums of parts, exact totals and wholes.
This module adds means to these steps, for N geounits that can have the same types at once; for
shapes see `tasks.topdown.estimation.query_algebra`. If the root's estimate is passed down, the
result is weighted least squares over the whole spine at once.

A geolevel's geounits are grouped by the types that they can have. A state whose parts are geounits
of their own is a step between them and the nation if its exact total is known.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ....geography.conditioning import (
    RELATIVE_ZERO,
    condition_on_total,
    pseudo_inverse,
    root_of,
    see,
    symmetric,
    whole_gains,
    without_rounding,
)
from .problem import QueryMeasurement
from .query_algebra import QueryAlgebra

RELATIVE_LEFT = 1e-9
"""Relative remainder of D given a whole, below which it counts as zero."""

LARGE = 1 << 27
"""Size from which an array is kept in a temporary file instead of memory: 1 GiB of numbers."""


def zeros(shape: tuple[int, ...]) -> np.ndarray:
    """Zeros of this shape; large ones in a temporary file that is deleted with the array."""
    if math.prod(shape) <= LARGE:
        return np.zeros(shape)
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, dtype=np.float64, mode="w+", shape=shape)


@dataclass(frozen=True, eq=False)
class LinearEstimates:
    """mean : (N, n, m). variance, diffuse : (N, S, n, n), V and D of every component."""

    mean: np.ndarray
    variance: np.ndarray
    diffuse: np.ndarray

    @classmethod
    def zero(cls, algebra: QueryAlgebra, n_geounits: int, n_cells: int) -> LinearEstimates:
        """Empty sums."""
        square = (n_geounits, len(algebra.components), n_cells, n_cells)
        mean = zeros((n_geounits, n_cells, algebra.n_coordinates))
        return cls(mean, zeros(square), zeros(square))

    def taken(self, rows: np.ndarray) -> LinearEstimates:
        """The estimates of some geounits."""
        return LinearEstimates(self.mean[rows], self.variance[rows], self.diffuse[rows])

    def add(self, parts: LinearEstimates, whole: np.ndarray, cells: np.ndarray) -> None:
        """Add the estimates of disjoint parts to the sums in place.

        `whole` (N of the parts,) is the row of the sum that each belongs to, in nondecreasing
        order; `cells` (n of the parts,) the position of their core cells among the core cells of
        the sums.
        """
        starts = np.flatnonzero(np.diff(whole, prepend=-1))
        rows = whole[starts]
        square = np.ix_(cells, cells)
        self.mean[rows[:, None], cells] += np.add.reduceat(parts.mean, starts, axis=0)
        for sums, added in ((self.variance, parts.variance), (self.diffuse, parts.diffuse)):
            total = np.add.reduceat(added, starts, axis=0)
            for component in range(sums.shape[1]):
                sums[rows[:, None, None], component, square[0], square[1]] += total[:, component]


ARRAYS = ("mean", "variance", "diffuse")
"""Names of the arrays of `LinearEstimates`."""
Components = Sequence[np.ndarray]
"""Coordinates of each component; see `QueryAlgebra.components`."""


def with_measurements(
    prior: LinearEstimates, a: np.ndarray, b: np.ndarray, components: Components
) -> LinearEstimates:
    """Estimates that include the geounits' own measurements, A `(N, S, n, n)` and b
    `(N, n, m)` of `QueryAlgebra.information`.
    """
    n = a.shape[-1]
    is_unknown = (prior.diffuse == np.eye(n)).all(axis=(2, 3)) & ~prior.variance.any(axis=(2, 3))
    # Without measurements no part of D is seen.
    is_diffuse = prior.diffuse.any(axis=(2, 3)) & a.any(axis=(2, 3)) & ~is_unknown
    if is_diffuse.any():
        prior, a, b = _with_seen(prior, a, b, np.argwhere(is_diffuse), components)
    variance = np.zeros_like(prior.variance)
    if not is_unknown.all():
        variance = symmetric(np.linalg.solve(np.eye(n) + prior.variance @ a, prior.variance))
    mean, diffuse = prior.mean.copy(), prior.diffuse.copy()
    for component, columns in enumerate(components):
        x = prior.mean[:, :, columns]
        mean[:, :, columns] += variance[:, component] @ (b[:, :, columns] - a[:, component] @ x)
        rows = np.flatnonzero(is_unknown[:, component])
        # Geounits that are measured alike share one inverse.
        own = a[rows, component].reshape(rows.size, n * n)
        alike, code = np.unique(own, axis=0, return_inverse=True)
        inverse, null = (one[code.reshape(-1)] for one in pseudo_inverse(alike.reshape(-1, n, n)))
        variance[rows, component], diffuse[rows, component] = inverse, null
        mean[np.ix_(rows, np.arange(n), columns)] = inverse @ b[np.ix_(rows, np.arange(n), columns)]
    return LinearEstimates(mean, variance, diffuse)


def _with_seen(
    prior: LinearEstimates,
    a: np.ndarray,
    b: np.ndarray,
    diffuse: np.ndarray,
    components: Components,
) -> tuple[LinearEstimates, np.ndarray, np.ndarray]:
    """Estimates that include the answers that see D, and A and b of all others; `diffuse` (p, 2)
    are the geounits and components where D is neither zero nor all there is."""
    known = LinearEstimates(prior.mean.copy(), prior.variance.copy(), prior.diffuse.copy())
    a, b = a.copy(), b.copy()
    for row, component in diffuse.tolist():
        at, columns = (row, component), components[component]
        found = see(root_of(a[at]), 1.0, known.variance[at], known.diffuse[at])
        if found is not None:
            seen, known.variance[at], known.diffuse[at], rest = found
            x, answers = known.mean[row][:, columns], seen.answers @ b[row][:, columns]
            known.mean[row][:, columns] += seen.gain @ (answers - seen.rows @ x)
            b[row][:, columns] -= seen.rows.T @ answers
            a[at] = rest @ rest.T
    return known, a, b


def with_totals(estimates: LinearEstimates, h: np.ndarray, totals: np.ndarray) -> LinearEstimates:
    """Estimates given the exact totals `(N,)`, h'x of the constant coordinate; h is `(n,)`."""
    mean, variance = estimates.mean.copy(), estimates.variance.copy()
    diffuse = estimates.diffuse.copy()
    v, d = variance[:, 0], diffuse[:, 0]
    vh, dh = v @ h, d @ h
    known, unknown = vh @ h, dh @ h
    size = np.abs(v).max(axis=(1, 2), initial=0.0) * (h @ h)
    is_unknown = unknown > RELATIVE_ZERO * (h @ h)
    is_known = ~is_unknown & (known > RELATIVE_ZERO * size)
    gain = np.zeros_like(vh)
    gain[is_unknown] = dh[is_unknown] / unknown[is_unknown, None]
    gain[is_known] = vh[is_known] / known[is_known, None]
    mean[:, :, 0] += gain * (totals - mean[:, :, 0] @ h)[:, None]
    cross = gain[:, :, None] * vh[:, None, :]
    v_left = v - cross - cross.swapaxes(1, 2)
    v_left += known[:, None, None] * gain[:, :, None] * gain[:, None, :]
    d_left = d - np.where(is_unknown[:, None, None], gain[:, :, None] * dh[:, None, :], 0.0)
    variance[:, 0] = without_rounding(v_left, np.trace(v, axis1=1, axis2=2))
    diffuse[:, 0] = without_rounding(d_left, np.trace(d, axis1=1, axis2=2))
    return LinearEstimates(mean, variance, diffuse)


Gains = tuple[np.ndarray, np.ndarray]
"""P and Q (N, S, n, n) of every whole, by which its parts respond with V P + D Q."""
ROWS_AT_ONCE = 1 << 16
"""Geounits whose estimates are copied together."""


@dataclass(frozen=True, eq=False)
class Group:
    """Geounits that can have the same types.

    rows : (N,) their positions, ascending. cells : (n,) the core cells of those types.
    """

    rows: np.ndarray
    cells: np.ndarray
    estimates: LinearEstimates

    @classmethod
    def zeros(cls, algebra: QueryAlgebra, type_is_possible: np.ndarray) -> Iterator[Group]:
        """The group of each combination of types (n_geounits, T), one after another, with zeros."""
        for rows, cells in patterns(algebra, type_is_possible):
            yield cls(rows, cells, LinearEstimates.zero(algebra, rows.size, cells.size))


@dataclass(frozen=True, eq=False)
class GroupedEstimates:
    """Estimates of geounits from their subtrees.

    type_is_possible : (n_geounits, T) the types that each can have.
    groups : together every geounit that can have any type, once.
    """

    algebra: QueryAlgebra
    type_is_possible: np.ndarray
    groups: tuple[Group, ...]

    def summed(self, whole: np.ndarray, n_wholes: int) -> GroupedEstimates:
        """Estimates of wholes from their parts' estimates; `whole` maps geounits to wholes."""
        type_is_possible = np.zeros((n_wholes, self.type_is_possible.shape[1]), dtype=bool)
        np.logical_or.at(type_is_possible, whole, self.type_is_possible)
        return GroupedEstimates(
            self.algebra, type_is_possible, tuple(self.sums(whole, type_is_possible))
        )

    def sums(self, whole: np.ndarray, type_is_possible: np.ndarray) -> Iterator[Group]:
        """The groups of wholes, one after another; `type_is_possible` (n_wholes, T) is theirs."""
        for found in Group.zeros(self.algebra, type_is_possible):
            for number, chosen, place, where in self.parts_of(found, whole, len(type_is_possible)):
                found.estimates.add(self.groups[number].estimates.taken(chosen), place, where)
            yield found

    def parts_of(
        self, wholes: Group, whole: np.ndarray, n_wholes: int
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
        """The geounits that are parts of a group of wholes, some at a time: the number of their
        group, their rows in it, the nondecreasing rows of their wholes, and the positions of their
        core cells among the wholes' core cells.
        """
        position = np.full(n_wholes, -1)
        position[wholes.rows] = np.arange(wholes.rows.size)
        for number, group in enumerate(self.groups):
            place = position[whole[group.rows]]
            order = np.argsort(place, kind="stable")
            order = order[place[order] >= 0]
            where = np.searchsorted(wholes.cells, group.cells)
            for start in range(0, order.size, ROWS_AT_ONCE):
                rows = order[start : start + ROWS_AT_ONCE]
                yield number, rows, place[rows], where

    def with_totals(self, totals: np.ndarray) -> GroupedEstimates:
        """The estimates given each geounit's exact total."""
        groups = []
        for group in self.groups:
            h = self.algebra.total_vector(group.cells.size)
            given = with_totals(group.estimates, h, totals[group.rows])
            groups.append(replace(group, estimates=given))
        return GroupedEstimates(self.algebra, self.type_is_possible, tuple(groups))

    def means(self) -> np.ndarray:
        """The estimates, `(n_geounits, n_cells)`."""
        found = np.zeros((len(self.type_is_possible), self.algebra.schema.n_cells))
        for group in self.groups:
            found[group.rows] = self.algebra.histograms(group.estimates.mean, group.cells)
        return found

    @cached_property
    def _place(self) -> tuple[np.ndarray, np.ndarray]:
        """(n_geounits,) group of each geounit, -1 for none, and its row there."""
        group, row = np.full((2, len(self.type_is_possible)), -1)
        for number, found in enumerate(self.groups):
            group[found.rows], row[found.rows] = number, np.arange(found.rows.size)
        return group, row

    def part(self, start: int, stop: int) -> GroupedEstimates:
        """The estimates of the geounits `start` to `stop`."""
        groups = []
        for group in self.groups:
            kept = np.flatnonzero((group.rows >= start) & (group.rows < stop))
            if kept.size:
                taken = group.estimates.taken(kept)
                groups.append(Group(group.rows[kept] - start, group.cells, taken))
        return GroupedEstimates(self.algebra, self.type_is_possible[start:stop], tuple(groups))

    @classmethod
    def zero(cls, algebra: QueryAlgebra, type_is_possible: np.ndarray) -> GroupedEstimates:
        """Empty estimates, to be filled by `enter`."""
        return cls(algebra, type_is_possible, tuple(Group.zeros(algebra, type_is_possible)))

    def enter(self, start: int, part: GroupedEstimates) -> None:
        """Enter the estimates of a run of geounits from `start` on in place."""
        of_group, of_row = self._place
        for group in part.groups:
            number, row = of_group[group.rows + start], of_row[group.rows + start]
            for one in np.unique(number).tolist():
                chosen = np.flatnonzero(number == one)
                into = self.groups[one].estimates
                for name in ARRAYS:
                    getattr(into, name)[row[chosen]] = getattr(group.estimates, name)[chosen]

    @classmethod
    def joined(cls, parts: Sequence[GroupedEstimates]) -> GroupedEstimates:
        """The estimates of runs of geounits, one after the other."""
        can_have = np.concatenate([part.type_is_possible for part in parts])
        found, start = cls.zero(parts[0].algebra, can_have), 0
        for part in parts:
            found.enter(start, part)
            start += len(part.type_is_possible)
        return found

    def to_arrays(self) -> dict[str, Any]:
        """The arrays of the estimates, as `runs.objects` stores them."""
        groups = [
            {"rows": group.rows, "cells": group.cells, **vars(group.estimates)}
            for group in self.groups
        ]
        return {"can_have": self.type_is_possible, "groups": groups}

    @classmethod
    def of_arrays(cls, algebra: QueryAlgebra, arrays: Mapping[str, Any]) -> GroupedEstimates:
        """The estimates from `to_arrays`."""
        groups = (
            Group(own["rows"], own["cells"], LinearEstimates(*(own[name] for name in ARRAYS)))
            for own in arrays["groups"]
        )
        return cls(algebra, arrays["can_have"], tuple(groups))

    def meeting(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, Group, np.ndarray]]:
        """For each group, the positions in `rows` of its geounits, the group, and their rows in
        it; geounits that can have nothing are left out."""
        of_group, of_row = self._place
        numbers = of_group[rows]
        order = np.argsort(numbers, kind="stable")
        ends = np.searchsorted(numbers[order], np.arange(len(self.groups) + 1))
        for number, group in enumerate(self.groups):
            chosen = order[ends[number] : ends[number + 1]]
            if chosen.size:
                yield chosen, group, of_row[rows[chosen]]

    def at(self, rows: np.ndarray, cells: np.ndarray) -> LinearEstimates:
        """Estimates of geounits `rows` on the core cells `cells`; exact zeros where one of them
        cannot have a cell."""
        components = np.arange(len(self.algebra.components))
        found = LinearEstimates.zero(self.algebra, rows.size, cells.size)
        for chosen, group, place in self.meeting(rows):
            kept = np.flatnonzero(np.isin(group.cells, cells))
            where = np.searchsorted(cells, group.cells[kept])
            found.mean[np.ix_(chosen, where)] = group.estimates.mean[np.ix_(place, kept)]
            target = np.ix_(chosen, components, where, where)
            source = np.ix_(place, components, kept, kept)
            found.variance[target] = group.estimates.variance[source]
            found.diffuse[target] = group.estimates.diffuse[source]
        return found

    def covariances(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """V and D (N, S, n, n) of some geounits on all n core cells, and the possible cells (N,
        n).
        """
        found = self.at(rows, np.arange(len(self.algebra.cell_type)))
        possible = self.algebra.is_possible & self.type_is_possible[rows][:, self.algebra.cell_type]
        return found.variance, found.diffuse, possible


@dataclass(frozen=True, eq=False)
class Step:
    """One step of the spine, from parts to the wholes that they add up to.

    whole : (n,) the whole of each part. sums : estimates of the wholes from the parts alone.
    """

    parts: GroupedEstimates
    whole: np.ndarray
    sums: GroupedEstimates

    @classmethod
    def up(cls, parts: GroupedEstimates, whole: np.ndarray, n_wholes: int) -> Step:
        """The step, from the estimates of the parts."""
        return cls(parts, whole, parts.summed(whole, n_wholes))

    @cached_property
    def gains(self) -> tuple[Gains, ...]:
        """Responses of parts to their wholes, for each group of the sums."""
        sums = [group.estimates for group in self.sums.groups]
        return tuple(whole_gains(of.variance, of.diffuse) for of in sums)

    def given(self, wholes: GroupedEstimates) -> GroupedEstimates:
        """Estimates of the parts given the final estimates of the wholes."""
        n_wholes = len(self.sums.type_is_possible)
        found = GroupedEstimates.zero(self.parts.algebra, self.parts.type_is_possible)
        for group, gains in zip(self.sums.groups, self.gains, strict=True):
            above = wholes.at(group.rows, group.cells)
            distance = above.mean - group.estimates.mean
            variance = group.estimates.variance + above.variance
            diffuse = group.estimates.diffuse + above.diffuse
            both = LinearEstimates(distance, variance, diffuse)
            for number, rows, whole, cells in self.parts.parts_of(group, self.whole, n_wholes):
                part, into = (of.groups[number].estimates for of in (self.parts, found))
                own = part.taken(rows)
                given = _given_wholes(own, both, gains, whole, cells, found.algebra.components)
                for name in ARRAYS:
                    getattr(into, name)[rows] = getattr(given, name)
        return found


def _given_wholes(
    parts: LinearEstimates,
    both: LinearEstimates,
    gains: Gains,
    whole: np.ndarray,
    cells: np.ndarray,
    components: Components,
) -> LinearEstimates:
    """Estimates of parts given the final estimates of their wholes; `both` are the distance of
    these from the sums over the parts, and the sums of both's covariances; `whole` and `cells` as
    in `LinearEstimates.add`.
    """
    found, distance = parts.taken(np.arange(whole.size)), both.mean[whole]
    for component, columns in enumerate(components):
        v, d = parts.variance[:, component], parts.diffuse[:, component]
        at = whole, component
        gain, is_diffuse = v @ gains[0][at][:, cells], d.any()
        if is_diffuse:
            gain = gain + d @ gains[1][at][:, cells]
            left = condition_on_total(d, gain, cells, both.diffuse[at])
            size = np.abs(d).max(axis=(1, 2), keepdims=True)
            is_left = np.abs(left) > RELATIVE_LEFT * size
            found.diffuse[:, component] = np.where(is_left, left, 0.0)
        found.mean[:, :, columns] += gain @ distance[:, :, columns]
        found.variance[:, component] = condition_on_total(v, gain, cells, both.variance[at])
    return found


KnownSums = tuple[np.ndarray, np.ndarray]
"""The state (n,) of each geounit, and the exact total of each state. In a declared census, states
are the units with exact totals that are divided into parts.
"""


def steps_up(
    own: GroupedEstimates, parent: np.ndarray, n_parents: int, known: KnownSums | None = None
) -> tuple[Step, ...]:
    """Steps from geounits to their parents, the lowest first: one, or two by way of states in
    between with known totals.

    Args:
        parent: (n,) the parent of each geounit; geounits of one state share one parent.
    """
    if known is None:
        return (Step.up(own, parent, n_parents),)
    state, totals = known
    of_states = Step.up(own, state, len(totals))
    above = np.zeros(len(totals), dtype=np.int64)
    above[state] = parent
    exact = of_states.sums.with_totals(totals.astype(np.float64))
    return Step.up(exact, above, n_parents), of_states


def means_down(steps: Sequence[Step], histograms: np.ndarray | None) -> np.ndarray:
    """Estimates `(n, n_cells)` of the parts of the last step, given the histograms
    `(n_wholes, n_cells)` of the wholes of the first; without, given nothing above."""
    first, *further = steps
    found = first.parts
    if histograms is not None:
        wholes = GroupedEstimates.zero(first.sums.algebra, first.sums.type_is_possible)
        for group in wholes.groups:
            known = wholes.algebra.coordinates(histograms[group.rows], group.cells)
            group.estimates.mean[:] = known
        found = first.given(wholes)
    for step in further:
        found = step.given(found)
    return found.means()


def subtree_estimates(
    algebra: QueryAlgebra,
    type_is_possible: np.ndarray,
    measurements: Mapping[str, QueryMeasurement],
    totals: np.ndarray | None = None,
    below: GroupedEstimates | None = None,
) -> GroupedEstimates:
    """Estimates of a geolevel's geounits from their own measurements and their children's
    estimates.

    Args:
        type_is_possible: (n_geounits, T) types without a bound of zero.
        measurements: by query; a precision of 0 marks a geounit without measurements.
        totals: (n_geounits,) exact totals, if they are invariants.
        below: estimates of the same geounits from their children (`GroupedEstimates.summed`);
            None at the last geolevel.
    """
    if below is None:
        before = Group.zeros(algebra, type_is_possible)
    else:
        before = below.sums(np.arange(len(type_is_possible)), type_is_possible)
    groups = []
    for group in before:
        if below is None:
            group.estimates.diffuse[:] = np.eye(group.cells.size)
        if measurements:
            a, b = algebra.information(measurements, group.cells, group.rows)
            taken_in = with_measurements(group.estimates, a, b, algebra.components)
            group = replace(group, estimates=taken_in)
        groups.append(group)
    found = GroupedEstimates(algebra, type_is_possible, tuple(groups))
    return found if totals is None else found.with_totals(totals)


def patterns(
    algebra: QueryAlgebra, type_is_possible: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows and core cells of the geounits of each combination of types, rows ascending."""
    # As bytes: texts are sorted much faster than rows, and in the same order.
    packed = np.ascontiguousarray(np.packbits(type_is_possible, axis=1))
    texts = packed.view(f"V{packed.shape[1]}").reshape(-1)
    _, first, code = np.unique(texts, return_index=True, return_inverse=True)
    for number, row in enumerate(first):
        cells = algebra.cells_of(type_is_possible[row])
        if cells.size:
            yield np.flatnonzero(code.reshape(-1) == number), cells

"""Best linear unbiased estimates of a geolevel's geounits, up and down one step of the spine.

The steps are those of `tasks.topdown.estimation.linear_estimates`; here geounits that can have the
same types are taken together, and a state whose parts are geounits of their own stands between them
and the nation, where its exact total is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .linear_estimates import Gains, LinearEstimates, with_measurements, with_totals
from .problem import QueryMeasurement
from .query_algebra import QueryAlgebra

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
        """Those of each combination of types (n_geounits, T), one after another, with zeros."""
        for rows, cells in patterns(algebra, type_is_possible):
            zero = LinearEstimates.zero(rows.size, cells.size, *_sizes(algebra))
            yield cls(rows, cells, zero)


@dataclass(frozen=True, eq=False)
class GroupedEstimates:
    """Estimates of geounits from their subtrees.

    type_is_possible : (n_geounits, T) the types that each can have.
    groups : together every geounit that can have any, once.
    """

    algebra: QueryAlgebra
    type_is_possible: np.ndarray
    groups: tuple[Group, ...]

    def summed(self, whole: np.ndarray, n_wholes: int) -> GroupedEstimates:
        """Estimates of wholes from those of their parts; `whole` gives each geounit's."""
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
        group, their rows in it and those of their wholes, which never decrease, and the places of
        their core cells among those of the wholes."""
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
        return self.histograms([group.estimates.mean for group in self.groups])

    @cached_property
    def _place(self) -> tuple[np.ndarray, np.ndarray]:
        """(n_geounits,) group of each geounit, -1 for none, and its row there."""
        group, row = np.full((2, len(self.type_is_possible)), -1)
        for number, found in enumerate(self.groups):
            group[found.rows], row[found.rows] = number, np.arange(found.rows.size)
        return group, row

    def part(self, start: int, stop: int) -> GroupedEstimates:
        """Those of the geounits `start` to `stop`."""
        groups = []
        for group in self.groups:
            kept = np.flatnonzero((group.rows >= start) & (group.rows < stop))
            if kept.size:
                taken = group.estimates.taken(kept)
                groups.append(Group(group.rows[kept] - start, group.cells, taken))
        return GroupedEstimates(self.algebra, self.type_is_possible[start:stop], tuple(groups))

    @classmethod
    def zero(cls, algebra: QueryAlgebra, type_is_possible: np.ndarray) -> GroupedEstimates:
        """Of geounits of which nothing has been entered yet; see `enter`."""
        return cls(algebra, type_is_possible, tuple(Group.zeros(algebra, type_is_possible)))

    def enter(self, start: int, part: GroupedEstimates) -> None:
        """Enter the estimates of a run of geounits from `start` on in place."""
        of_group, of_row = self._place
        for group in part.groups:
            number, row = of_group[group.rows + start], of_row[group.rows + start]
            for one in np.unique(number).tolist():
                chosen = np.flatnonzero(number == one)
                into = self.groups[one].estimates
                for name in ("mean", "variance", "diffuse"):
                    getattr(into, name)[row[chosen]] = getattr(group.estimates, name)[chosen]

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
        n_components, n_coordinates = _sizes(self.algebra)
        found = LinearEstimates.zero(rows.size, cells.size, n_components, n_coordinates)
        for chosen, group, place in self.meeting(rows):
            kept = np.flatnonzero(np.isin(group.cells, cells))
            where = np.searchsorted(cells, group.cells[kept])
            found.mean[np.ix_(chosen, where)] = group.estimates.mean[np.ix_(place, kept)]
            components = np.arange(n_components)
            target = np.ix_(chosen, components, where, where)
            source = np.ix_(place, components, kept, kept)
            found.variance[target] = group.estimates.variance[source]
            found.diffuse[target] = group.estimates.diffuse[source]
        return found

    def covariances(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """V and D (N, S, n, n) of some geounits on all n core cells, and those possible (N, n)."""
        found = self.at(rows, np.arange(len(self.algebra.cell_type)))
        possible = self.algebra.is_possible & self.type_is_possible[rows][:, self.algebra.cell_type]
        return found.variance, found.diffuse, possible

    def histograms(self, means: Sequence[np.ndarray]) -> np.ndarray:
        """Histograms `(n_geounits, n_cells)` from means of each group."""
        found = np.zeros((len(self.type_is_possible), self.algebra.schema.n_cells))
        for group, mean in zip(self.groups, means, strict=True):
            found[group.rows] = self.algebra.histograms(mean, group.cells)
        return found


@dataclass(frozen=True, eq=False)
class Step:
    """One step of the spine, from parts to the wholes that they add up to.

    whole : (n,) the whole of each part. sums : what is known of the wholes from the parts alone.
    """

    parts: GroupedEstimates
    whole: np.ndarray
    sums: GroupedEstimates

    @classmethod
    def up(cls, parts: GroupedEstimates, whole: np.ndarray, n_wholes: int) -> Step:
        """From the parts."""
        return cls(parts, whole, parts.summed(whole, n_wholes))

    @cached_property
    def gains(self) -> tuple[Gains, ...]:
        """By which parts follow their wholes, of each group of the sums."""
        components = self.sums.algebra.components
        return tuple(Gains.of(group.estimates, components) for group in self.sums.groups)

    def means(self, histograms: np.ndarray) -> np.ndarray:
        """Estimates `(n, n_cells)` of the parts if the wholes' histograms `(n_wholes, n_cells)` are
        known."""
        algebra, n_wholes = self.parts.algebra, len(self.sums.type_is_possible)
        means = [group.estimates.mean.copy() for group in self.parts.groups]
        for group, gains in zip(self.sums.groups, self.gains, strict=True):
            value = algebra.coordinates(histograms[group.rows], group.cells)
            shift = gains.shift(value)
            for number, rows, whole, cells in self.parts.parts_of(group, self.whole, n_wholes):
                part = self.parts.groups[number].estimates.taken(rows)
                means[number][rows] = gains.means(part, whole, cells, shift)
        return self.parts.histograms(means)

    def given(self, wholes: GroupedEstimates) -> GroupedEstimates:
        """Estimates of the parts given those of the wholes from everything."""
        n_wholes = len(self.sums.type_is_possible)
        found = GroupedEstimates.zero(self.parts.algebra, self.parts.type_is_possible)
        for group, gains in zip(self.sums.groups, self.gains, strict=True):
            above = wholes.at(group.rows, group.cells)
            for number, rows, whole, cells in self.parts.parts_of(group, self.whole, n_wholes):
                part, into = (of.groups[number].estimates for of in (self.parts, found))
                gains.enter_given(into, part, rows, whole, cells, above)
        return found


KnownSums = tuple[np.ndarray, np.ndarray]
"""The state (n,) of each geounit, and the exact total of each state. Of a declared census, states
are whatever units have exact totals and stand in parts."""


def steps_up(
    own: GroupedEstimates, parent: np.ndarray, n_parents: int, known: KnownSums | None = None
) -> tuple[Step, ...]:
    """From geounits to their parents, the step below these first: one, or two by way of states
    between them whose totals are known.

    Args:
        parent: (n,) the parent of each geounit; those of one state have one parent.
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
    found = first.parts.means() if histograms is None else first.means(histograms)
    for step in further:
        found = step.means(found)
    return found


def subtree_estimates(
    algebra: QueryAlgebra,
    type_is_possible: np.ndarray,
    measurements: Mapping[str, QueryMeasurement],
    totals: np.ndarray | None = None,
    below: GroupedEstimates | None = None,
) -> GroupedEstimates:
    """Estimates of a geolevel's geounits from their own measurements and what lies below.

    Args:
        type_is_possible: (n_geounits, T) types without a bound of zero.
        measurements: by query; a precision of 0 stands for a geounit that was not measured.
        totals: (n_geounits,) exact totals, if they are invariants.
        below: estimates of the same geounits from their children (`GroupedEstimates.summed`);
            None at the last geolevel.
    """
    if below is None:
        before = _unknown(algebra, type_is_possible)
    else:
        before = below.sums(np.arange(len(type_is_possible)), type_is_possible)
    groups = []
    for group in before:
        if measurements:
            a, b = algebra.information(measurements, group.cells, group.rows)
            taken_in = with_measurements(group.estimates, a, b, algebra.components)
            group = replace(group, estimates=taken_in)
        groups.append(group)
    found = GroupedEstimates(algebra, type_is_possible, tuple(groups))
    return found if totals is None else found.with_totals(totals)


def _unknown(algebra: QueryAlgebra, type_is_possible: np.ndarray) -> Iterator[Group]:
    """The groups of geounits below which nothing is measured."""
    for group in Group.zeros(algebra, type_is_possible):
        group.estimates.diffuse[:] = np.eye(group.cells.size)
        yield group


def _sizes(algebra: QueryAlgebra) -> tuple[int, int]:
    return len(algebra.components), algebra.n_coordinates


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

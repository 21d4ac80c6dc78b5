"""Answers that count products of sets of levels: best linear unbiased estimates and covariances.

An answer counts the cells of a set of core cells c, and on every free attribute b of a set of
levels w_b. In the coordinates of `query_algebra` it is the product of c and of the w_b on their
bases, and its covariance with another answer (c', w_b') is

    sum over components S of (c V_S c') times the product over b of u_b,

where u_b is the product of the first coordinates of w_b and w_b' for b outside S, and the inner
product of the others for b in S. So an answer may take levels of a free attribute together, as the
variables of published tables do, although no measured query does, and variances need no matrix on
all answers.

Best linear unbiased estimates of every geounit, with their covariances.

Going up the spine, each geounit gets the estimate from its subtree; going down, information on a
parent from everything else reaches its children (`spine_estimates`). The result is generalised
least squares over all measurements of the spine at once, with exact invariants, and the errors have
covariances V + k D, k without bound (`geography.conditioning`): the span of D at the end is not
determined by the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from ...census.queries import incidence
from ..estimation.problem import QueryMeasurement
from ..estimation.query_algebra import QueryAlgebra, subsets
from ..estimation.spine_estimates import (
    GroupedEstimates,
    KnownSums,
    Step,
    steps_up,
    subtree_estimates,
)

ROUNDING = 1e-9
"""Variance, in squared records, below which it is a rounding error of 0."""
UNKNOWN = 1e-9
"""Undetermined share of an answer above which the answer counts as unknown."""
NUMBERS_AT_ONCE = 1 << 18
"""Numbers of matrices that are copied together: about the size of a processor's cache."""


@dataclass(frozen=True, eq=False)
class ProductAnswers:
    """Answers of histograms, each the product of a set of core cells and sets of free levels.

    counted : (a, n_cells) 0/1 matrix, the cells of each answer.
    core : (z, n) 0/1 matrix, the sets of core cells that occur.
    free : for each free attribute, of d levels, the sets of levels that occur, (F, d).
    core_of_answer : (a,) number of each answer's set of core cells.
    free_of_answer : (B, a) number of each answer's set of levels of the B free attributes.
    """

    algebra: QueryAlgebra
    counted: sparse.csr_array
    core: np.ndarray
    free: tuple[np.ndarray, ...]
    core_of_answer: np.ndarray
    free_of_answer: np.ndarray

    @classmethod
    def of(cls, algebra: QueryAlgebra, counted: sparse.sparray) -> ProductAnswers:
        """The answers that the rows of a 0/1 matrix (a, n_cells) count, such as a query's.

        Raises ValueError for a row that counts no product of sets.
        """
        counted = sparse.csr_array(counted, dtype=np.int64)
        shape = algebra.schema.shape
        levels = np.unravel_index(np.arange(counted.shape[1]), shape)
        core_cell = np.zeros(counted.shape[1], dtype=np.int64)
        for axis in algebra.core:
            core_cell = core_cell * shape[axis] + levels[axis]
        places = [(core_cell, len(algebra.cell_type))]
        places += [(levels[axis], shape[axis]) for axis in algebra.free]
        n_cells = np.ones(counted.shape[0], dtype=np.int64)
        sets, numbers = list[np.ndarray](), list[np.ndarray]()
        for place, n in places:
            marks = (counted @ incidence(place, n).T).astype(bool).toarray()
            n_cells *= marks.sum(axis=1)
            _, first, number = np.unique(marks, axis=0, return_index=True, return_inverse=True)
            order = np.argsort(first)
            sets.append(marks[first[order]].astype(np.float64))
            numbers.append(np.argsort(order)[number.reshape(-1)])
        if (n_cells != counted.sum(axis=1)).any():
            raise ValueError("an answer must count a product of sets of levels")
        of_answer = np.array(numbers)
        return cls(algebra, counted, sets[0], tuple(sets[1:]), of_answer[0], of_answer[1:])

    @property
    def n_answers(self) -> int:
        """a, the number of answers."""
        return len(self.core_of_answer)

    @cached_property
    def coordinates(self) -> tuple[np.ndarray, ...]:
        """The sets of free levels on the bases, (F, d) for each free attribute."""
        bases = self.algebra.bases
        return tuple(sets @ basis.T for sets, basis in zip(self.free, bases, strict=True))

    @cached_property
    def _seen(self) -> list[int]:
        """The components that an answer sees, as sets of free attributes by bits."""
        sees = [np.abs(part[:, 1:]).max(initial=0.0) > 1e-12 for part in self.coordinates]
        return subsets(sum(1 << bit for bit, does in enumerate(sees) if does))

    @cached_property
    def codes(self) -> list[int]:
        """The seen components that the algebra carries one by one."""
        carried = set(self.algebra.codes)
        return [code for code in self._seen if code in carried]

    @cached_property
    def _others(self) -> list[int]:
        """The other seen components, all represented by the algebra's last component."""
        return sorted(set(self._seen).difference(self.codes))

    @cached_property
    def places(self) -> list[int]:
        """Numbers of the algebra's components that an answer sees.

        Raises ValueError for components that it lacks, whose answers were not requested.
        """
        if self._others and not self.algebra.has_others:
            raise ValueError("these answers were not asked for when estimates were made")
        found = [self.algebra.codes.index(code) for code in self.codes]
        return [*found, len(self.algebra.codes)] if self._others else found

    def coupling(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """(S, ...) the product over free attributes of u_b for two arrays of answers (...), for the
        components at `places`; see the module's docstring."""
        shape = np.broadcast_shapes(np.shape(first), np.shape(second))
        found = np.ones((len(self.codes) + len(self._others), *shape))
        for bit, part in enumerate(self.coordinates):
            constant = np.outer(part[:, 0], part[:, 0])
            contrast = part[:, 1:] @ part[:, 1:].T
            one, other = self.free_of_answer[bit][first], self.free_of_answer[bit][second]
            for place, code in enumerate((*self.codes, *self._others)):
                found[place] *= (contrast if code >> bit & 1 else constant)[one, other]
        if not self._others:
            return found
        others = found[len(self.codes) :].sum(axis=0, keepdims=True)
        return np.concatenate([found[: len(self.codes)], others])

    def on_core(self, mean: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """(N, z, m) coordinates of the sums over core sets, from those (N, k, m) of some core cells
        (k,)."""
        return self.core[:, cells] @ mean

    def estimates(self, on_core: np.ndarray) -> np.ndarray:
        """(N, a) answers from `on_core`; coordinates that are not carried are zero."""
        seen, found = set(self.codes), np.zeros((len(on_core), self.n_answers))
        for number, cube in enumerate(self.algebra.cubes):
            if seen.isdisjoint(cube.codes):
                continue
            part = cube.spread(on_core)
            for position, sets in enumerate(self.coordinates, 2):
                own = sets[:, : part.shape[position]]
                part = np.moveaxis(np.moveaxis(part, position, -1) @ own.T, -1, position)
            values = part[:, self.core_of_answer, *self.free_of_answer]
            found = found + values if number else values
        return found


@dataclass(frozen=True, eq=False)
class AnswerCovariances:
    """Covariances of answers for N geounits, or for N tuples of areas.

    variance, diffuse : (N, S, slots * z, slots * z) of the sums over core sets, by component at
        `answers.places` and for each area of a tuple, and of the part that no measurement
        determines.
    """

    answers: ProductAnswers
    variance: np.ndarray
    diffuse: np.ndarray

    def variances(self, slot: int = 0) -> np.ndarray:
        """(N, a), exact zeros where an answer is known exactly."""
        answers = np.arange(self.answers.n_answers)
        return self.covariance((slot, answers), (slot, answers))

    def covariance(
        self, first: tuple[int, np.ndarray], second: tuple[int, np.ndarray]
    ) -> np.ndarray:
        """(N, k) between answers (k,) of an area of the tuple and as many of the same or another;
        exact zeros where rounding left something."""
        found = self._picked(self.variance, first, second)
        return np.where(np.abs(found) > ROUNDING, found, 0.0)

    def is_known(self, slot: int = 0) -> np.ndarray:
        """(N, a) whether the measurements determine an answer."""
        if not self.diffuse.any():
            return np.ones((len(self.diffuse), self.answers.n_answers), dtype=bool)
        answers = np.arange(self.answers.n_answers)
        return self._picked(self.diffuse, (slot, answers), (slot, answers)) <= UNKNOWN

    def _picked(
        self, matrices: np.ndarray, first: tuple[int, np.ndarray], second: tuple[int, np.ndarray]
    ) -> np.ndarray:
        z, core = len(self.answers.core), self.answers.core_of_answer
        (slot, one), (other_slot, other) = first, second
        coupling = self.answers.coupling(one, other)
        row, column = slot * z + core[one], other_slot * z + core[other]
        found = np.zeros((len(matrices), len(one)))
        for place in range(len(self.answers.places)):
            found += matrices[:, place, row, column] * coupling[place]
        return found


def covariances_of(
    level: GroupedEstimates, answers: ProductAnswers, rows: np.ndarray
) -> AnswerCovariances:
    """Covariances of the answers of geounits `rows` (N,) of a geolevel."""
    z = len(answers.core)
    shape = (len(rows), len(answers.places), z, z)
    variance, diffuse = np.zeros(shape), np.zeros(shape)
    for chosen, group, place in level.meeting(rows):
        core = answers.core[:, group.cells]
        for into, matrices in (
            (variance, group.estimates.variance),
            (diffuse, group.estimates.diffuse),
        ):
            for run in _runs(len(place), math.prod(matrices.shape[1:])):
                part = matrices[place[run]][:, answers.places]
                if part.any():
                    into[chosen[run]] = core @ part @ core.T
    return AnswerCovariances(answers, variance, diffuse)


def estimates_of(level: GroupedEstimates, answers: ProductAnswers, rows: np.ndarray) -> np.ndarray:
    """(N, a) best linear unbiased estimates of geounits `rows` (N,) of a geolevel."""
    found = np.zeros((len(rows), answers.n_answers))
    for chosen, group, place in level.meeting(rows):
        mean = group.estimates.mean
        for run in _runs(len(place), math.prod(mean.shape[1:])):
            on_core = answers.on_core(mean[place[run]], group.cells)
            found[chosen[run]] = answers.estimates(on_core)
    return found


def _runs(n_rows: int, size: int) -> Iterator[slice]:
    """Runs of rows that have `size` numbers each and are copied together."""
    n_together = max(1, NUMBERS_AT_ONCE // max(1, size))
    for start in range(0, n_rows, n_together):
        yield slice(start, start + n_together)


@dataclass(frozen=True, eq=False)
class LevelInput:
    """Measurements and declarations of a geolevel's geounits.

    parent : (n,) position of each geounit's parent; zeros at the root.
    type_is_possible : (n, T) types without a bound of zero.
    measured : yields runs of geounits in order, from first to last: their start, stop and answers
        by query; a precision of 0 means that a geounit was not measured.
    totals : (n,) exact totals, or None.
    known_sums : the state of each geounit and the states' exact totals, or None.
    """

    parent: np.ndarray
    type_is_possible: np.ndarray
    measured: Callable[[], Iterator[tuple[int, int, Mapping[str, QueryMeasurement]]]]
    totals: np.ndarray | None = None
    known_sums: KnownSums | None = None


Listener = Callable[[str, int, int], None]
"""Called with the current activity and the numbers of geounits done and planned. With nothing
planned, the text is a message."""

UP = "estimates up the spine"
DOWN = "estimates down the spine"


def ignore_progress(what: str, done: int, planned: int) -> None:
    """Ignore progress."""


@dataclass(frozen=True, eq=False)
class SpinePosterior:
    """Estimates up a spine.

    root : estimates of the root from all measurements.
    steps : root first; where totals of states are known, one more is between the states' parts and
        the root.
    depth_of_step : number of the geolevel whose geounits are a step's parts; -1 for states that
        are no geounits.
    listener : receives the progress down the spine.
    """

    algebra: QueryAlgebra
    root: GroupedEstimates
    steps: tuple[Step, ...]
    depth_of_step: tuple[int, ...]
    listener: Listener = ignore_progress

    @classmethod
    def up(
        cls, algebra: QueryAlgebra, levels: list[LevelInput], listener: Listener = ignore_progress
    ) -> SpinePosterior:
        """The posterior from the geolevels' measurements, root first."""
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
    """Estimates of a geolevel's geounits from their own measurements and the geolevels below;
    `done` is called with the number of finished ones."""
    found = GroupedEstimates.zero(algebra, level.type_is_possible)
    for start, stop, measured in level.measured():
        totals = None if level.totals is None else level.totals[start:stop].astype(np.float64)
        own = below if below is None else below.part(start, stop)
        type_is_possible = level.type_is_possible[start:stop]
        found.enter(start, subtree_estimates(algebra, type_is_possible, measured, totals, own))
        done(stop)
    return found

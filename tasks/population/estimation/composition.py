"""The households nearest to a block's that its persons can fill: an integer program by columns.

Unknown is after which pattern each household is made, `z` (household, pattern), and how many
persons go from each place that they have to each slot, `f` (place, slot):

    minimise    sum C z + sum c f + cost of members beyond the seventh
    subject to  every household has one pattern,
                every person goes to one slot,
                every slot of the chosen patterns has one person, the open slot of a household of
                seven or more any number of further ones.

Households of equal sex and age of the householder, oldest member and type are one class, with z
integer. There are some 20,000 patterns; columns are generated: the linear program over some
of them gives a price for every person, thus for every slot the price of the cheapest person, thus
the reduced cost of every pattern. The integer program then has all columns that are near by these.
Its solution is optimal among all patterns if it costs no more than the linear program and the
smallest reduced cost that was left out. Given z, f is a transportation problem.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from ...solvers.highs import HighsResult, solve
from ..workload.changes import PER_FURTHER_PERSON, pattern_costs
from ..workload.household_types import OPEN_SIZE
from ..workload.patterns import book
from .drift import Drift

_FIRST, _PER_ROUND, _ROUNDS = 10, 3, 25
"""Patterns of a class to begin with, and to add in a round; rounds at most."""
_NEAR, _MOST = 0.4, 15
"""Reduced cost of the columns of the integer program, and how many of a class at most."""
_NODES, _ITERATIONS, _GAP = 60, 50_000, 0.005
"""Limits of the integer program: nodes, iterations of a linear program, and the share of the cost
within which a solution is good enough."""
_MISSING = 30.0
"""Cost of a person without a slot, and of a slot without a person, while columns are generated."""
_EXACT = 1e-6
_FURTHER = 3
"""Members that a household may have beyond seven, where not all must have more."""


@dataclass(frozen=True, eq=False)
class Households:
    """Released households of a block, `(n,)` each, as levels of their attributes."""

    sex: np.ndarray
    age: np.ndarray
    origin: np.ndarray
    race: np.ndarray
    elderly: np.ndarray
    kind: np.ndarray


@dataclass(frozen=True, eq=False)
class Composition:
    """The pattern of each household `(n,)`, its members beyond the pattern's `(n,)`, whether no
    other patterns cost less for sure, and the cost.
    """

    pattern: np.ndarray
    further: np.ndarray
    is_optimal: bool
    cost: float


@dataclass(frozen=True, eq=False)
class _Problem:
    """Classes of households with their numbers, and places of persons with theirs."""

    costs: np.ndarray
    """(n_classes, n_patterns) what it costs to make a class after a pattern."""
    n_of_class: np.ndarray
    n_of_place: np.ndarray
    fill: np.ndarray
    """(n_places, n_slots) what it costs to fill a slot with a person of a place."""

    @property
    def most(self) -> int:
        """Members beyond the seventh of a household, at most: some, or as many as all need."""
        n_households, n_persons = int(self.n_of_class.sum()), int(self.n_of_place.sum())
        return _FURTHER + max(0, -(-n_persons // n_households) - OPEN_SIZE)


@dataclass(frozen=True, eq=False)
class _Columns:
    """The patterns that a program has: class and pattern, `(n,)` each."""

    owner: np.ndarray
    pattern: np.ndarray

    def merged(self, other: _Columns) -> _Columns:
        """The columns of both, each once, in order."""
        pairs = np.unique(
            np.stack(
                [
                    np.concatenate([self.owner, other.owner]),
                    np.concatenate([self.pattern, other.pattern]),
                ]
            ),
            axis=1,
        )
        return _Columns(pairs[0], pairs[1])


def nearest_composition(
    households: Households, places: np.ndarray, drift: Drift
) -> Composition | None:
    """Patterns for the households of a block, given how many persons have each place
    `(N_PLACES,)`; None where the program found none within its limits.
    """
    rows = np.stack([households.sex, households.age, households.elderly, households.kind])
    classes, owner, number = np.unique(rows, axis=1, return_inverse=True, return_counts=True)
    present = np.flatnonzero(places)
    masks = book().masks
    move, of_types = drift.distances(), drift.of_types()
    fill = np.array([np.where(masks, move[one], np.inf).min(axis=1) for one in present])
    problem = _Problem(
        np.array(
            [
                pattern_costs(sex, age, elderly, kind, of_types)
                for sex, age, elderly, kind in classes.T.tolist()
            ]
        ),
        number,
        places[present],
        fill,
    )
    owner = owner.reshape(-1)
    found = _generated(problem)
    if found is None:
        return None
    if found.whole is not None:
        return _dealt(found.columns, *found.whole, owner, True, found.bound)
    near, left_out = _nearest(found.reduced, _MOST, _NEAR)
    columns = found.columns.merged(near)
    # Persons go to slots that are near by the prices, too, unless that leaves no solution.
    is_far = found.of_fill > _NEAR
    left_out = min(left_out, float(found.of_fill[is_far].min(initial=np.inf)))
    program = _Program(
        replace(problem, fill=np.where(is_far, np.inf, problem.fill)), columns, may_miss=False
    )
    result = program.solved(is_integer=True)
    if result.incumbent is None:
        program = _Program(problem, columns, may_miss=False)
        result = program.solved(is_integer=True)
    if result.incumbent is None:
        return None
    z, further = program.integers(result.incumbent)
    # Best among its columns, and better than any solution with another one.
    is_optimal = result.objective <= min(result.bound, found.bound + left_out) + _EXACT
    return _dealt(program.columns, z, further, owner, is_optimal, result.objective)


@dataclass(frozen=True, eq=False)
class _Generated:
    """Columns, a bound on the cost, reduced costs of all patterns `(n_classes, n_patterns)` and of
    filling slots `(n_places, n_slots)`, and how often each column and further members are taken, if
    the solution is whole numbers."""

    columns: _Columns
    bound: float
    reduced: np.ndarray
    of_fill: np.ndarray
    whole: tuple[np.ndarray, np.ndarray] | None


def _nearest(reduced: np.ndarray, most: int, near: float) -> tuple[_Columns, float]:
    """The columns of the least reduced costs, `most` of a class and up to `near`; and the least of
    all others."""
    place = np.argpartition(reduced, most, axis=1)[:, : most + 1]
    cost = np.take_along_axis(reduced, place, axis=1)
    order = np.argsort(cost, axis=1, kind="stable")
    place, cost = (np.take_along_axis(one, order, axis=1) for one in (place, cost))
    taken = cost <= near
    taken[:, most] = False
    owner, at = np.nonzero(taken)
    return _Columns(owner, place[owner, at]), float(cost[~taken].min())


def _generated(problem: _Problem) -> _Generated | None:
    """The linear program over all patterns, solved by columns; None where HiGHS does not."""
    columns, _ = _nearest(problem.costs, _FIRST, np.inf)
    bound = -np.inf
    for _ in range(_ROUNDS):
        program = _Program(problem, columns, may_miss=True)
        result = program.solved(is_integer=False)
        if result.duals is None or result.x is None:
            return None
        x, duals = result.x, result.duals
        reduced = program.reduced_costs(duals)
        least = np.minimum(reduced.min(axis=1), 0.0)
        bound = max(bound, result.objective + float(problem.n_of_class @ least))
        if (least > -_EXACT).all():
            break
        better, _ = _nearest(reduced, _PER_ROUND, -_EXACT)
        columns = columns.merged(better)
    is_best = result.objective <= bound + _EXACT and program.is_whole(x)
    whole = program.integers(x) if is_best else None
    of_fill = program.reduced_costs_of_fill(duals)
    return _Generated(program.columns, bound, reduced - least[:, None], of_fill, whole)


class _Program:
    """The program over some columns: z, f, further members, and what is missing if it may be."""

    def __init__(self, problem: _Problem, columns: _Columns, *, may_miss: bool) -> None:
        self.problem, self.columns = problem, columns
        patterns = book().patterns
        slots = sparse.csc_array(patterns.slots[columns.pattern])
        opened = patterns.open_slot[columns.pattern]
        self.slots = np.flatnonzero(np.diff(slots.indptr))
        self.opens = np.unique(opened[opened >= 0])
        used = np.union1d(self.slots, self.opens)
        at = np.full(slots.shape[1], -1)
        at[used] = np.arange(len(used))
        fill = problem.fill[:, used]
        person, slot = np.nonzero(np.isfinite(fill))
        n_columns, n_classes, n_persons = slots.shape[0], len(problem.costs), len(fill)
        n_open = len(self.opens)
        z = np.arange(n_columns)
        f = n_columns + np.arange(len(person))
        more = n_columns + len(person) + np.arange(n_open)
        n = n_columns + len(person) + n_open
        missing = n_persons + len(used) if may_miss else 0
        own = sparse.coo_array(slots[:, used])
        slot_row, open_row = n_classes + n_persons, n_classes + n_persons + len(used)
        rows = [
            (columns.owner, z, np.ones(n_columns)),
            (n_classes + person, f, np.ones(len(f))),
            (slot_row + slot, f, np.ones(len(f))),
            (slot_row + own.col, own.row, -own.data),
            (slot_row + at[self.opens], more, -np.ones(n_open)),
            (open_row + np.arange(n_open), more, np.ones(n_open)),
        ]
        has_open = np.flatnonzero(opened >= 0)
        which = np.searchsorted(self.opens, opened[has_open])
        rows.append((open_row + which, has_open, np.full(len(has_open), -float(problem.most))))
        if may_miss:
            rows.append((n_classes + np.arange(missing), n + np.arange(missing), np.ones(missing)))
        n_rows = open_row + n_open
        row, column, value = (np.concatenate([part[axis] for part in rows]) for axis in range(3))
        self.matrix = sparse.csr_array((value, (row, column)), shape=(n_rows, n + missing))
        self.cost = np.concatenate(
            [
                problem.costs[columns.owner, columns.pattern],
                fill[person, slot],
                np.full(n_open, PER_FURTHER_PERSON),
                np.full(missing, _MISSING),
            ]
        )
        exact = np.concatenate(
            [problem.n_of_class, problem.n_of_place, np.zeros(len(used))]
        ).astype(float)
        self.lower = np.concatenate([exact, np.full(n_open, -np.inf)])
        self.upper = np.concatenate([exact, np.zeros(n_open)])
        self.is_integer = np.zeros(n + missing, dtype=bool)
        self.is_integer[z], self.is_integer[more] = True, True
        self.n_columns, self.more, self.missing = n_columns, more, n + np.arange(missing)

    def solved(self, *, is_integer: bool) -> HighsResult:
        """The solution, integer in patterns and further members or not at all."""
        n = len(self.cost)
        return solve(
            self.cost,
            self.matrix,
            self.lower,
            self.upper,
            np.zeros(n),
            np.full(n, np.inf),
            integral=self.is_integer if is_integer else None,
            iteration_limit=None if is_integer else _ITERATIONS,
            node_limit=_NODES if is_integer else None,
            gap=_GAP if is_integer else None,
        )

    def integers(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How often each column is taken, and the further members of each slot of the catalogue."""
        further = np.zeros(self.problem.fill.shape[1], dtype=np.int64)
        further[self.opens] = np.rint(x[self.more]).astype(np.int64)
        return np.rint(x[: self.n_columns]).astype(np.int64), further

    def is_whole(self, x: np.ndarray) -> bool:
        """Whether a solution has whole numbers of patterns and further members, and misses none."""
        own = x[self.is_integer]
        return bool((abs(own - np.rint(own)) < _EXACT).all() and (x[self.missing] < _EXACT).all())

    def prices(self, of_person: np.ndarray) -> np.ndarray:
        """Price of every slot, given those of persons by place."""
        return np.minimum((self.problem.fill - of_person[:, None]).min(axis=0), _MISSING)

    def reduced_costs_of_fill(self, duals: np.ndarray) -> np.ndarray:
        """Reduced cost of filling every slot with a person of every place `(n_places, n_slots)`."""
        n_classes = len(self.problem.costs)
        of_person = duals[n_classes : n_classes + len(self.problem.fill)]
        return self.problem.fill - of_person[:, None] - self.prices(of_person)

    def reduced_costs(self, duals: np.ndarray) -> np.ndarray:
        """Reduced cost of every pattern of every class `(n_classes, n_patterns)`.

        A slot has the price of the person who fills it at the least cost, found afresh for all
        slots, so that those count that the program does not have yet.
        """
        problem, patterns = self.problem, book().patterns
        n_classes = len(problem.costs)
        of_person = duals[n_classes : n_classes + len(problem.fill)]
        price = self.prices(of_person)
        # Members beyond the seventh lower the cost of a pattern where their slot is worth more.
        gain = np.minimum(price + PER_FURTHER_PERSON, 0.0) * problem.most
        of_pattern = patterns.slots @ price
        of_pattern += np.where(patterns.open_slot >= 0, gain[patterns.open_slot], 0.0)
        return problem.costs + of_pattern - duals[:n_classes, None]


def _dealt(
    columns: _Columns,
    z: np.ndarray,
    further: np.ndarray,
    owner: np.ndarray,
    is_optimal: bool,
    cost: float,
) -> Composition:
    """The patterns of the single households; further members spread evenly over open ones."""
    n = len(owner)
    pattern, more = np.empty(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    # Columns are in the order of their classes, and so are households here.
    pattern[np.argsort(owner, kind="stable")] = np.repeat(columns.pattern, z)
    opened = book().patterns.open_slot[pattern]
    for slot in np.flatnonzero(further):
        takers = np.flatnonzero(opened == slot)
        more[takers] = further[slot] // len(takers)
        more[takers[: further[slot] % len(takers)]] += 1
    return Composition(pattern, more, is_optimal, cost)

"""The convex program of a budget: the allocation whose largest criterion is least, certified.

A criterion r_i is a weighted sum of variances of best linear unbiased estimates. As a function of
the precisions v of all kinds of geounits it is tr(W M(v)^-1) with an information matrix M that is
linear in v: convex, and homogeneous of degree -1. The program is

    minimise the largest r_i(v(p))    over allocations p >= 0 of sum 1,

an A-optimal design where there is one criterion. The reciprocal of such a function is concave, and
homogeneous of degree 1, so its derivative at one point bounds it everywhere: for all v,

    1 / r_i(v) <= <-r_i'(u), v> / r_i(u)^2.

The largest s with s <= <-r_i'(u), v> / r_i(u)^2 for all criteria i and some points u is a linear
program, and no allocation has a largest criterion below 1 / s. With one criterion and one point,
this is the bound of the equivalence theorem of optimal design ([Pukelsheim2006]). It does not
depend on the method that found the points.

Precisions are linear in an allocation but for geounits to which a bypass has given the shares of
other geolevels. For the bound, these may spend the given shares on any queries, which allows more
than settings can express. Yet if they were given t times their own geolevel's share, and t is
between two numbers, so is the ratio of their spending on each query: the narrower the ranges, the
less is allowed. Ranges of t are halved where the bound is lowest, until it is high enough
everywhere (spatial branch and bound, with the same cuts in every range).

The search uses the same cuts: the next point is the analytic centre of the region they leave above
the best value so far ([AnalyticCentres1992]).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from .allocation import GeounitClasses

SMALLEST = 1e-9
"""Least loss of an entry of an allocation during the search."""
FIRST_SHARE = 1e-4
"""Least loss of every entry at the start of the search."""
STEPS_PER_BOUND = 5
"""Points from one certificate to the next."""
MOST_STEPS = 120
MOST_PROBES = 15
"""Points at which the bound is sharpened where it leaves room."""
PROGRESS = 0.05
"""Least fall of the gap from one certificate to the next, relative to the tolerance, for the search
to go on; and the gap at which it is closed."""
INWARDS = 1e-6
"""Distance by which a point is moved away from zero entries; its criteria hardly change."""
CENTRED = 1e-2
"""Newton decrement below which a point counts as the centre."""
MOST_NEWTON_STEPS = 50
INFEASIBLE = 2
"""Status of SciPy's linear programs without a solution."""
ROUNDING = 1e-12
"""Shortest step, and distance of points that count as one."""
MOST_CUTS = 25
"""Points, those with the smallest largest criteria, whose derivatives are kept for the bound."""
MOST_RANGES = 40
"""Ranges that are halved for the bound."""
SHARE_OF_CUTS = 0.1
"""Weight of the level in the centre, for each cut: how far the search goes for better values."""
WIDEN = 1.3
"""The first range around a ratio reaches to so many times it, further ones ever further."""
LEAST_RATIO = 1e-6
"""Ratios of shares below this, or above its inverse, are treated alike."""

Criteria = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From precisions (t, Q) to the criteria (N,) and their derivatives (N, t, Q)."""


@dataclass(frozen=True, eq=False)
class Program:
    """Objective and feasible set.

    kinds : the kinds of geounits, T of them.
    criteria : of the precisions of the kinds; positive, and not known without noise.
    allowed : (L, Q) bool, entries that may be positive.
    """

    kinds: GeounitClasses
    criteria: Criteria
    allowed: np.ndarray

    def bound(
        self, cuts: Sequence[Cut], at: np.ndarray | None = None, enough: float = np.inf
    ) -> Bounded:
        """Lower bound of the largest criterion over all allocations.

        Ranges of the budgets given to bypassed geounits are halved until the bound is `enough`,
        first at their values `at` an allocation.
        """
        linear = _BoundingProgram(self, cuts)
        n_kinds = len(self.kinds.depth)
        first = linear.solve(_Range(np.zeros(n_kinds), np.full(n_kinds, np.inf)))
        if at is None:
            return first
        middle = linear.ratios(at)
        queue = [(first.bound, 0, first)]
        for number in range(1, MOST_RANGES):
            low, _, solved = queue[0]
            halves = None if low >= enough else linear.halved(solved, middle)
            if halves is None:
                break
            heapq.heappop(queue)
            for side, half in enumerate(halves):
                heapq.heappush(queue, (max(half.bound, low), 2 * number + side, half))
        # A part of a range has no lower bound than the range.
        return replace(queue[0][2], bound=queue[0][0])


@dataclass(frozen=True, eq=False)
class Cut:
    """Criteria (N,) at a point, and their derivatives (N, t, Q) by the precisions."""

    values: np.ndarray
    slopes: np.ndarray


@dataclass(frozen=True, eq=False)
class _Range:
    """Least and most budget given to each kind, relative to that of its geolevel (t,)."""

    least: np.ndarray
    most: np.ndarray

    def sides(self, kind: int, middle: float) -> tuple[_Range, _Range] | None:
        """The range on both sides of a ratio of one kind, or of another within it; None if already
        narrow."""
        low, high = max(self.least[kind], LEAST_RATIO), min(self.most[kind], 1 / LEAST_RATIO)
        if high < low * 1.001:
            return None
        middle = float(np.clip(middle, LEAST_RATIO, 1 / LEAST_RATIO))
        if middle <= low * 1.0005:
            middle = low * min(max(low / middle, WIDEN), (high / low) ** 0.5)
        elif middle >= high / 1.0005:
            middle = high / min(max(middle / high, WIDEN), (high / low) ** 0.5)
        least, most = self.least.copy(), self.most.copy()
        least[kind] = most[kind] = middle
        return _Range(self.least, most), _Range(least, self.most)


@dataclass(frozen=True, eq=False)
class Bounded:
    """A range, a lower bound of the largest criterion in it, its loss by each kind's freedom in
    spending (t,), and the precisions (t, Q) where the cuts leave room for it; no rows
    otherwise."""

    within: _Range
    bound: float
    loss: np.ndarray
    precision: np.ndarray


class _BoundingProgram:
    """The linear program of the bound: an allocation, the spending of bypassed geounits out of
    their given shares, and the level that no cut is below."""

    def __init__(self, program: Program, cuts: Sequence[Cut]):
        kinds, (n_geolevels, n_queries) = program.kinds, program.allowed.shape
        self.n_queries, self.depth = n_queries, kinds.depth
        self.given = kinds.shares.copy()
        self.given[np.arange(len(kinds.depth)), kinds.depth] = 0.0
        self.bypassed = np.flatnonzero(self.given.any(axis=1))
        self.n, n_moved = program.allowed.size, len(self.bypassed) * n_queries
        # Levels near 1 suit the tolerances of the solver.
        self.unit = min(float(cut.values.max()) for cut in cuts)
        slopes = np.concatenate(
            [-cut.slopes * self.unit / cut.values[:, None, None] ** 2 for cut in cuts]
        )
        of_geolevel = np.equal.outer(np.arange(n_geolevels), kinds.depth).astype(float)
        own = (of_geolevel @ slopes).reshape(len(slopes), self.n)
        moved = slopes[:, self.bypassed].reshape(len(slopes), n_moved)
        self.upper = np.column_stack([-own, -moved, np.ones(len(slopes))])
        # A kind is given the shares of other geolevels.
        of_kinds = np.column_stack(
            [
                -np.repeat(self.given[self.bypassed], n_queries, axis=1),
                np.repeat(np.eye(len(self.bypassed)), n_queries, axis=1),
                np.zeros(len(self.bypassed)),
            ]
        )
        whole = np.append(np.ones(self.n), np.zeros(n_moved + 1))
        self.equal = sparse.csr_array(np.vstack([whole, of_kinds]))
        self.bounds = [
            *((0.0, 1.0 if may else 0.0) for may in program.allowed.ravel()),
            *((0.0, None) for _ in range(n_moved)),
            (None, None),
        ]

    def ratios(self, p: np.ndarray) -> np.ndarray:
        """(t,) budget given to each kind, relative to that of its geolevel."""
        of_geolevel = p.sum(axis=1)
        return self.given @ of_geolevel / np.maximum(of_geolevel[self.depth], SMALLEST)

    def solve(self, within: _Range) -> Bounded:
        """The bound for allocations in a range; infinite where there is no allocation."""
        rows = []
        for place, kind in enumerate(self.bypassed.tolist()):
            for sign, ratio in ((-1.0, within.least[kind]), (1.0, within.most[kind])):
                if not LEAST_RATIO < ratio < 1 / LEAST_RATIO:
                    continue
                row = np.zeros((self.n_queries, self.upper.shape[1]))
                every = np.arange(self.n_queries)
                row[every, self.depth[kind] * self.n_queries + every] = -sign * ratio
                row[every, self.n + place * self.n_queries + every] = sign
                rows.append(row / max(ratio, 1.0))
        upper = np.vstack([self.upper, *rows])
        found = linprog(
            -np.eye(upper.shape[1])[-1],
            A_ub=sparse.csr_array(upper),
            b_ub=np.zeros(len(upper)),
            A_eq=self.equal,
            b_eq=np.append(1.0, np.zeros(len(self.bypassed))),
            bounds=self.bounds,
        )
        loss, nowhere = np.zeros(len(self.depth)), np.zeros((0, self.n_queries))
        if not found.success:
            bound = np.inf if found.status == INFEASIBLE else 0.0
            return Bounded(within, bound, loss, nowhere)
        p = found.x[: self.n].reshape(-1, self.n_queries)
        moved = found.x[self.n : -1].reshape(-1, self.n_queries)
        as_set = self.ratios(p)[self.bypassed, None] * p[self.depth[self.bypassed]]
        excess = self.upper[:, self.n : -1] * (moved - as_set).ravel()
        by_kind = excess.reshape(len(excess), len(self.bypassed), self.n_queries).sum(axis=2)
        loss[self.bypassed] = found.ineqlin.marginals[: len(self.upper)] @ by_kind
        precision = p[self.depth]
        precision[self.bypassed] += moved
        return Bounded(within, self.unit / -found.fun, loss, precision)

    def halved(self, solved: Bounded, middle: np.ndarray) -> list[Bounded] | None:
        """The halves of the range of the kind whose freedom costs the bound most; None if all
        ranges are narrow."""
        for kind in np.argsort(-solved.loss, kind="stable").tolist():
            sides = solved.within.sides(kind, float(middle[kind]))
            if kind in self.bypassed and sides is not None:
                return [self.solve(side) for side in sides]
        return None


@dataclass(frozen=True, eq=False)
class Optimum:
    """An allocation (L, Q), its criteria (N,), and a lower bound of the largest criterion of every
    allocation; cuts, from which the bound follows, and where they leave room for it."""

    allocation: np.ndarray
    values: np.ndarray
    bound: float
    cuts: tuple[Cut, ...]
    elsewhere: np.ndarray

    @property
    def gap(self) -> float:
        """The gap between the largest criterion and the bound, relative to the bound."""
        return float(self.values.max() / self.bound - 1)


def certify_allocation(
    program: Program, p: np.ndarray, cuts: Sequence[Cut] = (), tolerance: float = np.inf
) -> Optimum:
    """An allocation with a bound from its own derivatives and from other points' derivatives; the
    bound need not exceed the one that proves a relative gap of `tolerance`."""
    values, slopes = program.criteria(program.kinds.precision(p))
    cuts = (*cuts, Cut(values, slopes))
    bound = program.bound(cuts, p, float(values.max()) / (1 + tolerance))
    return Optimum(p, values, bound.bound, cuts, bound.precision)


def optimum(program: Program, start: np.ndarray, tolerance: float) -> Optimum:
    """The allocation that minimises the largest criterion, to a relative gap of `tolerance`.

    The search goes from one analytic centre to the next, until the gap is closed or there is no
    progress. Where geounits are bypassed, the bound is then sharpened where it leaves most room,
    and the gap need not close entirely.
    """
    search = _Search(program, tolerance)
    search.centred(np.maximum(start, FIRST_SHARE))
    found = certify_allocation(program, search.point, search.best_cuts, tolerance)
    for _ in range(MOST_PROBES):
        if found.gap <= tolerance or not len(found.elsewhere):
            break
        # Cuts halfway between the region left by the cuts and the known point inform most.
        middle = 0.5 * (found.elsewhere + program.kinds.precision(found.allocation))
        cuts = (*found.cuts[:-1], Cut(*program.criteria(middle)))
        found = certify_allocation(program, search.point, cuts, tolerance)
    return found


@dataclass
class _Search:
    """The best point so far, and the cuts of all points."""

    program: Program
    tolerance: float
    least: float = np.inf
    point: np.ndarray = field(default_factory=lambda: np.zeros(0))
    cuts: list[Cut] = field(default_factory=list)

    def add(self, p: np.ndarray) -> None:
        """Add the cut of an allocation."""
        values, slopes = self.program.criteria(self.program.kinds.precision(p))
        if values.max() < self.least:
            self.least, self.point = float(values.max()), p
        self.cuts.append(Cut(values, slopes))

    @property
    def best_cuts(self) -> tuple[Cut, ...]:
        """The cuts of the points with the smallest largest criteria."""
        return tuple(sorted(self.cuts, key=lambda cut: float(cut.values.max()))[:MOST_CUTS])

    def centred(self, p: np.ndarray) -> None:
        """Search from one analytic centre to the next, until the gap is closed or nothing
        improves."""
        program = self.program
        inside = program.allowed / program.allowed.sum()
        p = np.where(program.allowed, p, 0.0)
        p /= p.sum()
        self.add(p)
        bound, before = 0.0, np.inf
        for step in range(1, MOST_STEPS + 1):
            barrier = _Barrier.of(program, self.cuts, self.least * (1 + 0.1 * self.tolerance))
            known = (1 - INWARDS) * self.point + INWARDS * inside
            p = barrier.centre((1 - INWARDS) * p + INWARDS * inside, known)
            self.add(p)
            if step % STEPS_PER_BOUND == 0:
                bound = max(bound, program.bound(self.cuts[-MOST_CUTS:]).bound)
                gap = self.least / bound - 1
                if gap <= PROGRESS * self.tolerance or gap > before - PROGRESS * self.tolerance:
                    break
                before = gap


@dataclass(frozen=True, eq=False)
class _Barrier:
    """Sum of logarithms of the slacks of p (L, Q) and s: of the cuts above s, of s above
    `floor` with the multiplicity `weight`, and of all entries that may be positive.

    cuts : (m, t * Q), of the precisions.
    """

    program: Program
    cuts: np.ndarray
    floor: float
    weight: float

    @classmethod
    def of(cls, program: Program, cuts: Sequence[Cut], largest: float) -> _Barrier:
        """Barrier of allocations within the cuts with a largest criterion below `largest`."""
        rows = np.concatenate(
            [(-c.slopes / c.values[:, None, None] ** 2).reshape(len(c.values), -1) for c in cuts]
        )
        return cls(program, rows, 1.0 / largest, max(1.0, SHARE_OF_CUTS * len(rows)))

    def lowest(self, p: np.ndarray) -> float:
        """The lowest cut at an allocation."""
        return float((self.cuts @ self.program.kinds.precision(p).ravel()).min())

    def value(self, p: np.ndarray, s: float) -> float:
        """Infinite outside."""
        slacks = np.concatenate(
            [
                self.cuts @ self.program.kinds.precision(p).ravel() - s,
                p[self.program.allowed],
            ]
        )
        if slacks.min() <= 0 or s <= self.floor:
            return np.inf
        return -float(np.log(slacks).sum() + self.weight * np.log(s - self.floor))

    def centre(self, p: np.ndarray, known: np.ndarray) -> np.ndarray:
        """The centre, by Newton's method without second derivatives of the precisions, from p or,
        where a cut is below the floor there, from the way to a `known` allocation inside."""
        while (lowest := self.lowest(p)) <= self.floor:
            p = 0.2 * p + 0.8 * known
            if np.abs(p - known).max() < ROUNDING:
                return known
        s = 0.5 * (self.floor + lowest)
        value = self.value(p, s)
        for _ in range(MOST_NEWTON_STEPS):
            step, change, decrement = self._step(p, s)
            length = 1.0
            while length > ROUNDING:
                trial = self.value(p + length * step, s + length * change)
                if trial <= value - 1e-4 * length * decrement:
                    break
                length /= 2
            else:
                break
            p, s, value = p + length * step, s + length * change, trial
            if decrement < CENTRED:
                break
        return p

    def _step(self, p: np.ndarray, s: float) -> tuple[np.ndarray, float, float]:
        """Newton's step of p and s, and its decrement."""
        program, allowed = self.program, self.program.allowed
        n = int(allowed.sum())
        shape = (*program.kinds.shares.shape[:1], allowed.shape[1])
        by_precision = self.cuts.reshape(-1, *shape)
        cuts = program.kinds.by_allocation(p, by_precision)[:, allowed]
        above = 1.0 / (self.cuts @ program.kinds.precision(p).ravel() - s)
        entries = 1.0 / p[allowed]
        level = self.weight / (s - self.floor)
        system = np.zeros((n + 2, n + 2))
        system[:n, :n] = (cuts.T * above**2) @ cuts
        system[:n, :n] += np.diag(entries**2)
        system[n, :n] = system[:n, n] = -(cuts.T @ above**2)
        system[n, n] = np.sum(above**2) + level**2 / self.weight
        system[n + 1, :n] = system[:n, n + 1] = 1.0
        right = np.concatenate([cuts.T @ above + entries, [level - above.sum(), 1.0 - p.sum()]])
        found = np.linalg.solve(system, right)
        step = np.zeros(allowed.shape)
        step[allowed] = found[:n]
        return step, float(found[n]), float(right[: n + 1] @ found[: n + 1])

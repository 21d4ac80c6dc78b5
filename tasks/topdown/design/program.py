"""The convex program of a budget: the allocation whose largest criterion is least, certified.

A criterion r_i is a weighted sum of variances of best linear unbiased estimates. As a function of
the precisions v of all kinds of geounits it is tr(W M(v)^-1) with an information matrix M that is
linear in v: convex, and homogeneous of degree -1. The program is

    minimise the largest r_i(v(p))    over allocations p >= 0 of sum 1 within the limits,

an A-optimal design where there is one criterion. Of such a function the reciprocal is concave, and
homogeneous of degree 1, so its derivative at one point bounds it everywhere: for all v,

    1 / r_i(v) <= <-r_i'(u), v> / r_i(u)^2.

The largest s with s <= <-r_i'(u), v> / r_i(u)^2 for all criteria i and some points u is a linear
program, and no allocation has a largest criterion below 1 / s. With one criterion, one point and
no limits, this is the bound of the equivalence theorem of optimal design ([Pukelsheim2006]). It
needs no trust in whatever found the points.

Precisions are linear in an allocation but for geounits that a bypass has given the shares of other
geolevels. For the bound, these may spend what they were given on any queries, which allows more
than what can be set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.optimize import linprog, minimize
from spineflow.tasks.topdown.design.allocation import Kinds

SMALLEST = 1e-9
"""Loss that an entry of an allocation has at least while it is searched for."""
FIRST_STEPS = 15
"""Steps of the multiplicative algorithm, which finds the region of the optimum."""
FIRST_SHARE = 1e-4
"""Loss that every entry has at least where the search begins."""
WEIGHING_STEPS = 100
"""Steps in which the criteria are weighed, for each of the multiplicative algorithm."""
STEPS_PER_BOUND = 10
"""Steps of sequential quadratic programming from one certificate to the next."""
MOST_STEPS = 400
PROGRESS = 0.02
"""Improvement from one certificate to the next, relative to the tolerance, below which the search
ends."""
ROUNDING = 1e-12
"""By how much an allocation may pass a limit."""
MOST_CUTS = 30
"""Points whose derivatives are kept for the bound."""

Criteria = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From precisions (t, Q) to the criteria (N,) and their derivatives (N, t, Q)."""


class LimitsContradict(ValueError):
    """No allocation lies within the limits."""


@dataclass(frozen=True, eq=False)
class Program:
    """What is minimised, and over what.

    kinds : the kinds of geounits, T of them.
    criteria : of the precisions of the kinds; positive, and not known without noise.
    allowed : (L, Q) bool, entries that may be positive.
    rows, most : (m, L * Q) and (m,); `rows` times an allocation is at most `most`.
    """

    kinds: Kinds
    criteria: Criteria
    allowed: np.ndarray
    rows: np.ndarray
    most: np.ndarray

    @cached_property
    def centre(self) -> np.ndarray:
        """(L, Q) an allocation well within the limits; raises LimitsContradict if there is none."""
        n = self.allowed.size
        upper = np.where(self.allowed.ravel(), 1.0, 0.0)
        # The smallest slack of all limits and entries is made as large as it can be.
        slack = np.zeros((n, n + 1))
        slack[:, :n], slack[:, n] = -np.eye(n), upper
        found = linprog(
            -np.eye(n + 1)[n],
            A_ub=np.vstack([np.column_stack([self.rows, np.ones(len(self.most))]), slack]),
            b_ub=np.append(self.most, np.zeros(n)),
            A_eq=np.append(np.ones(n), 0.0)[None],
            b_eq=[1.0],
            bounds=[*((0.0, most) for most in upper), (None, None)],
        )
        if not found.success or found.x[n] <= 0:
            raise LimitsContradict("no allocation lies within the limits")
        return found.x[:n].reshape(self.allowed.shape)

    def within_limits(self, p: np.ndarray) -> np.ndarray:
        """The allocation nearest to p on the way to the centre that is within the limits."""
        p = np.where(self.allowed, p, 0.0)
        p = p / p.sum()
        over = self.rows @ p.ravel() - self.most
        room = self.most - self.rows @ self.centre.ravel()
        share = np.max(np.where(over > 0, over / (over + room), 0.0), initial=0.0)
        return (1 - share) * p + share * self.centre

    def bound(self, cuts: Sequence[Cut]) -> float:
        """What the largest criterion of every allocation within the limits reaches at least."""
        n_kinds, (n_geolevels, n_queries) = len(self.kinds.depth), self.allowed.shape
        n, n_moved = self.allowed.size, n_kinds * n_queries
        slopes = np.concatenate([-cut.slopes / cut.values[:, None, None] ** 2 for cut in cuts])
        of_geolevel = np.equal.outer(np.arange(n_geolevels), self.kinds.depth).astype(float)
        own = of_geolevel @ slopes
        of_cuts = np.column_stack(
            [-own.reshape(-1, n), -slopes.reshape(-1, n_moved), np.ones(len(slopes))]
        )
        of_limits = np.zeros((len(self.most), n + n_moved + 1))
        of_limits[:, :n] = self.rows
        # What a kind is given of other geolevels is what these have.
        given = self.kinds.shares.copy()
        given[np.arange(n_kinds), self.kinds.depth] = 0.0
        of_kinds = np.column_stack(
            [
                -np.kron(given, np.ones(n_queries)),
                np.kron(np.eye(n_kinds), np.ones(n_queries)),
                np.zeros(n_kinds),
            ]
        )
        whole = np.append(np.ones(n), np.zeros(n_moved + 1))
        found = linprog(
            -np.eye(n + n_moved + 1)[-1],
            A_ub=sparse.csr_array(np.vstack([of_cuts, of_limits])),
            b_ub=np.append(np.zeros(len(slopes)), self.most),
            A_eq=sparse.csr_array(np.vstack([whole, of_kinds])),
            b_eq=np.append(1.0, np.zeros(n_kinds)),
            bounds=[
                *((0.0, 1.0 if may else 0.0) for may in self.allowed.ravel()),
                *((0.0, None) for _ in range(n_moved)),
                (None, None),
            ],
        )
        return float("nan") if not found.success else 1.0 / -found.fun


@dataclass(frozen=True, eq=False)
class Cut:
    """Criteria (N,) at a point, and their derivatives (N, t, Q) by the precisions."""

    values: np.ndarray
    slopes: np.ndarray


@dataclass(frozen=True, eq=False)
class Optimum:
    """An allocation (L, Q), its criteria (N,), and a lower bound of the largest criterion of every
    allocation; cuts, from which the bound follows."""

    allocation: np.ndarray
    values: np.ndarray
    bound: float
    cuts: tuple[Cut, ...]

    @property
    def gap(self) -> float:
        """How much larger the largest criterion is than the bound, relative to the bound."""
        return float(self.values.max() / self.bound - 1)


def certified(program: Program, p: np.ndarray, cuts: Sequence[Cut] = ()) -> Optimum:
    """An allocation with a bound from its own derivatives and from those of other points."""
    values, slopes = program.criteria(program.kinds.precision(p))
    cuts = (*cuts, Cut(values, slopes))
    return Optimum(p, values, program.bound(cuts), cuts)


def optimum(program: Program, start: np.ndarray, tolerance: float) -> Optimum:
    """The allocation that minimises the largest criterion, to a relative gap of `tolerance`.

    A multiplicative algorithm leads into the region of the optimum; from there sequential quadratic
    programming goes on, in logarithms, until the gap is closed or there is no progress. Where
    geounits are bypassed, the gap need not close entirely. Raises LimitsContradict.
    """
    search = _Search(program, tolerance)
    with suppress(_Enough):
        search.step(search.multiplied(np.maximum(start, FIRST_SHARE)))
    return search.best()


class _Enough(Exception):
    """The gap is closed, or there is no progress."""


@dataclass
class _Search:
    """The best point so far, and the cuts of the last points that were best."""

    program: Program
    tolerance: float
    least: float = np.inf
    point: np.ndarray = field(default_factory=lambda: np.zeros(0))
    cuts: list[Cut] = field(default_factory=list)
    n_steps: int = 0
    least_before: float = np.inf

    def at(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The criteria at an allocation, and their derivatives (N, L, Q) by it."""
        values, slopes = self.program.criteria(self.program.kinds.precision(p))
        is_within = (self.program.rows @ p.ravel() <= self.program.most + ROUNDING).all()
        if is_within and values.max() < self.least:
            self.least, self.point = float(values.max()), p
            self.cuts = [*self.cuts[-MOST_CUTS + 1 :], Cut(values, slopes)]
        return values, self.program.kinds.by_allocation(p, slopes)

    def best(self) -> Optimum:
        """The best point so far, with its bound."""
        return certified(self.program, self.point, self.cuts)

    def multiplied(self, p: np.ndarray) -> np.ndarray:
        """After steps that minimise the largest of sum of -p^2 r_i' / q over q: the variances of
        the estimates whose weights were best for p, which are bounds of those that are best for q.
        """
        for _ in range(FIRST_STEPS):
            p = self.program.within_limits(np.maximum(p, SMALLEST))
            values, slopes = self.at(p)
            weight = np.maximum(-slopes, 0.0) * p**2
            multiplier = values / values.sum()
            for _ in range(WEIGHING_STEPS):
                p = np.sqrt(np.maximum(np.tensordot(multiplier, weight, axes=1), SMALLEST**2))
                p /= p.sum()
                bound = (weight / p).sum(axis=(1, 2))
                multiplier = multiplier * (bound / bound.max()) ** 2
                multiplier /= multiplier.sum()
        return p

    def step(self, p: np.ndarray) -> None:
        """Sequential quadratic programming from p; raises _Enough."""
        program, allowed = self.program, self.program.allowed
        known: dict[bytes, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

        def around(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            """Logarithms of the criteria, slack of the limits, and the derivatives of both."""
            if x.tobytes() not in known:
                known.clear()
                share = np.exp(x) / np.exp(x).sum()
                full = np.zeros(allowed.shape)
                full[allowed] = share
                values, slopes = self.at(full)
                by_share = np.vstack(
                    [slopes[:, allowed] / values[:, None], -program.rows[:, allowed.ravel()]]
                )
                by_x = (by_share - (by_share @ share)[:, None]) * share
                slack = program.most - program.rows @ full.ravel()
                known[x.tobytes()] = np.log(values), slack, by_x
            return known[x.tobytes()]

        def slack(x: np.ndarray) -> np.ndarray:
            logs, of_limits, _ = around(x[:-1])
            return np.append(x[-1] - logs, of_limits)

        def slack_slopes(x: np.ndarray) -> np.ndarray:
            logs, of_limits, by_x = around(x[:-1])
            is_criterion = np.repeat([1.0, 0.0], [len(logs), len(of_limits)])
            signs = np.where(is_criterion > 0, -1.0, 1.0)
            return np.column_stack([signs[:, None] * by_x, is_criterion])

        first = np.log(np.maximum(p[allowed], SMALLEST))
        minimize(
            lambda x: x[-1],
            np.append(first, around(first)[0].max()),
            jac=lambda x: np.eye(len(x))[-1],
            method="SLSQP",
            bounds=[*((np.log(SMALLEST), 0.0) for _ in first), (None, None)],
            constraints={"type": "ineq", "fun": slack, "jac": slack_slopes},
            options={"maxiter": MOST_STEPS, "ftol": 1e-14},
            callback=self._stop_where_enough,
        )

    def _stop_where_enough(self, x: np.ndarray) -> None:
        if len(self.program.most):
            p = np.zeros(self.program.allowed.shape)
            p[self.program.allowed] = np.exp(x[:-1])
            self.at(self.program.within_limits(p))
        self.n_steps += 1
        if self.n_steps % STEPS_PER_BOUND == 0:
            is_slow = self.least > self.least_before * (1 - PROGRESS * self.tolerance)
            if is_slow or self.best().gap <= self.tolerance:
                raise _Enough
            self.least_before = self.least

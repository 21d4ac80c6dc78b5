"""The split of a budget: the convex program of every design, its search, and its certificate.

A criterion r_i is a weighted sum of variances of best linear unbiased estimates. As a function of
the precisions v of all classes of measured units it is tr(W M(v)^-1) with an information matrix M
that is linear in v: convex, and homogeneous of degree -1. The program is

    minimise the largest r_i(v(p))    over allocations p >= 0 of sum 1,

an A-optimal design where there is one criterion. The reciprocal of such a function is concave, and
homogeneous of degree 1, so its derivative at one point bounds it everywhere: for all v,

    1 / r_i(v) <= <-r_i'(u), v> / r_i(u)^2.

The largest s with s <= <-r_i'(u), v> / r_i(u)^2 for all criteria i and some points u is a linear
program, and no allocation has a largest criterion below 1 / s. With one criterion and one point,
this is the bound of the equivalence theorem of optimal design ([Pukelsheim2006]). It does not
depend on the method that found the points: sequential quadratic programming on the reciprocals,
whose least is made as large as it can be. A criterion of degree -k is given as its k-th root.

Precisions are linear in an allocation but for geounits to which a bypass has given the shares of
other geolevels. For the bound, these may spend the given shares on any queries, which allows more
than settings can express. Yet if they were given t times their own geolevel's share, and t is
between two numbers, so is the ratio of their spending on each query: the narrower the ranges, the
less is allowed. Ranges of t are halved where the bound is lowest, until it is high enough
everywhere (spatial branch and bound, with the same cuts in every range).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linprog, minimize

from ..pages.document import Section as PageSection
from ..pages.document import Table
from ..runs.settings import ExactFraction, Refuse, Section

NORMAL_95 = 1.959963984540054
"""Quantile of the normal distribution that a margin of 95 % reaches to."""
SMALLEST = 1e-9
"""Loss that counts as none."""
LEAST_PARTS = (0.05, 1e-3, 1e-5, 1e-7)
"""Least loss of every entry in the searches one after the other, relative to an even split."""
PROGRESS = 0.1
"""A search follows if the one before has gained this part of the tolerance."""
MOST_STEPS = 500
PRECISION = 1e-2
"""The search ends where a step gains less than this part of the tolerance."""
MOST_PROBES = 15
"""Points at which the bound is sharpened where it leaves room."""
INFEASIBLE = 2
"""Status of SciPy's linear programs without a solution."""
MOST_CUTS = 25
"""Points, those with the smallest largest criteria, whose derivatives are kept for the bound."""
MOST_RANGES = 40
"""Ranges that are halved for the bound."""
WIDEN = 1.3
"""The first range around a ratio reaches to so many times it, further ones ever further."""
LEAST_RATIO = 1e-6
"""Ratios of shares below this, or above its inverse, are treated alike."""

Criteria = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From precisions (t, Q) to the criteria (N,) and their derivatives (N, t, Q)."""


@dataclass(frozen=True, eq=False)
class GeounitClasses:
    """The kinds in which geounits are measured with an allocation (L, Q) of geolevels and queries.

    depth : (t,) geolevel of each. shares : (t, L) 0/1, the geolevels whose shares it has.

    The precision of a kind is its row of the allocation, times its shares over its geolevel's.
    """

    depth: np.ndarray
    shares: np.ndarray

    def precision(self, p: np.ndarray) -> np.ndarray:
        """(t, Q) of an allocation (L, Q), for rho = 1."""
        of_geolevel = p.sum(axis=1)
        return p[self.depth] * self._times(of_geolevel)[:, None]

    def by_allocation(self, p: np.ndarray, by_precision: np.ndarray) -> np.ndarray:
        """Derivatives (..., L, Q) by an allocation from those (..., t, Q) by the precisions."""
        of_geolevel = p.sum(axis=1)
        times = self._times(of_geolevel)
        found = np.zeros((*by_precision.shape[:-2], *p.shape))
        for kind, depth in enumerate(self.depth):
            slope = by_precision[..., kind, :]
            found[..., depth, :] += times[kind] * slope
            along = slope @ p[depth] / of_geolevel[depth]
            found += along[..., None, None] * self.shares[kind][:, None]
            found[..., depth, :] -= times[kind] * along[..., None]
        return found

    def _times(self, of_geolevel: np.ndarray) -> np.ndarray:
        """(t,) budget of a kind, as a multiple of its geolevel's."""
        own = of_geolevel[self.depth]
        return np.divide(self.shares @ of_geolevel, own, out=np.zeros_like(own), where=own > 0)


class Cut(NamedTuple):
    """Criteria (N,) at a point, and their derivatives (N, t, Q) by the precisions."""

    values: np.ndarray
    slopes: np.ndarray


@dataclass(frozen=True, eq=False)
class Program:
    """Objective and feasible set.

    kinds : the kinds of geounits, t of them.
    criteria : of the precisions of the kinds; positive, and not known without noise.
    allowed : (L, Q) bool, entries that may be positive.
    """

    kinds: GeounitClasses
    criteria: Criteria
    allowed: np.ndarray

    def bound(self, cuts: Sequence[Cut], at: np.ndarray, enough: float) -> Bounded:
        """Lower bound of the largest criterion over all allocations.

        Ranges of the budgets given to bypassed geounits are halved until the bound is `enough`,
        first at their values `at` an allocation.
        """
        linear = _BoundingProgram(self, cuts)
        n_kinds = len(self.kinds.depth)
        first = linear.solve(_Range(np.zeros(n_kinds), np.full(n_kinds, np.inf)))
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
            *((0.0, float(is_allowed)) for is_allowed in program.allowed.ravel()),
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

    Where geounits are bypassed, the bound is sharpened where it leaves most room, and the gap need
    not close entirely.
    """
    p, cuts = _search(program, start, tolerance)
    found = certify_allocation(program, p, cuts, tolerance)
    for _ in range(MOST_PROBES):
        if found.gap <= tolerance or not len(found.elsewhere):
            break
        # Cuts halfway between the region left by the cuts and the known point inform most.
        middle = 0.5 * (found.elsewhere + program.kinds.precision(found.allocation))
        cuts = (*found.cuts[:-1], Cut(*program.criteria(middle)))
        found = certify_allocation(program, p, cuts, tolerance)
    return found


def _search(
    program: Program, start: np.ndarray, tolerance: float
) -> tuple[np.ndarray, tuple[Cut, ...]]:
    """The best allocation that the search finds, and the cuts of its best points.

    Criteria are steep where an entry is next to nothing, so that entries are kept away from zero at
    first, and ever less.
    """
    allowed = program.allowed
    n = int(allowed.sum())
    p, points, before = start, list[tuple[float, np.ndarray, Cut]](), np.inf
    for part in LEAST_PARTS:
        least = np.full(n, part / n)
        first = np.maximum(p[allowed], least)
        first = least + (first - least) * (1 - least.sum()) / max((first - least).sum(), SMALLEST)
        points += _descend(program, first, least, PRECISION * tolerance)
        points.sort(key=lambda point: point[0])
        value, p, _ = points[0]
        if value > before * (1 - PROGRESS * tolerance):
            break
        before = value
    return p, tuple(cut for *_, cut in points[:MOST_CUTS])


def _descend(
    program: Program, first: np.ndarray, least: np.ndarray, precision: float
) -> list[tuple[float, np.ndarray, Cut]]:
    """Points of sequential quadratic programming among allocations above `least`: the largest
    criterion, the allocation, and its cut."""
    kinds, allowed = program.kinds, program.allowed
    points: dict[bytes, tuple[np.ndarray, Cut]] = {}

    def at(x: np.ndarray) -> tuple[np.ndarray, Cut]:
        key = x[:-1].tobytes()
        if key not in points:
            p = np.zeros(allowed.shape)
            p[allowed] = np.maximum(x[:-1], least)
            points[key] = p, Cut(*program.criteria(kinds.precision(p)))
        return points[key]

    unit = at(np.append(first, 1.0))[1].values.max()

    def slack(x: np.ndarray) -> np.ndarray:
        return unit / at(x)[1].values - x[-1]

    def slack_slopes(x: np.ndarray) -> np.ndarray:
        p, cut = at(x)
        slopes = kinds.by_allocation(p, cut.slopes)[:, allowed] / cut.values[:, None] ** 2
        return np.column_stack([-unit * slopes, -np.ones(len(cut.values))])

    last = np.append(np.zeros(len(first)), 1.0)
    minimize(
        lambda x: -x[-1],
        np.append(first, 1.0),
        jac=lambda x: -last,
        method="SLSQP",
        bounds=[*((low, 1.0) for low in least), (None, None)],
        constraints=[
            {"type": "ineq", "fun": slack, "jac": slack_slopes},
            {"type": "eq", "fun": lambda x: x[:-1].sum() - 1, "jac": lambda x: 1 - last},
        ],
        options={"maxiter": MOST_STEPS, "ftol": precision},
    )
    # Criteria are homogeneous, so that points of any sum compare.
    return [
        (float(cut.values.max() * p.sum()), p / p.sum(), cut)
        for p, cut in points.values()
        if np.isfinite(cut.values).all() and cut.values.min() > 0
    ]


class Goal(Section):
    """How precise some answers are to be."""

    margin: ExactFraction | None = None
    """The wanted 95 % margin, the root of the mean square over the answers; left out, the one that
    the settings give."""
    weight: ExactFraction = Fraction(1)
    """For weighted_sum: the weight of the mean variance of the answers."""

    def refuse_invalid(self, objective: str, where: str, refuse: Refuse) -> None:
        """Refuse a margin or weight out of range, or without effect on the objective."""
        if self.margin is not None and self.margin <= 0:
            refuse(f"{where}.margin must be above 0")
        if self.weight <= 0:
            refuse(f"{where}.weight must be above 0")
        if objective == "weighted_sum" and self.margin is not None:
            refuse(f"{where}.margin does nothing in a weighted sum; give weight instead")
        if objective != "weighted_sum" and self.weight != 1:
            refuse(f"{where}.weight does nothing but in a weighted sum; give margin instead")


def round_shares(shares: np.ndarray, denominator: int, least: int = 0) -> list[Fraction]:
    """Shares in whole parts of `denominator`, of sum exactly 1: every number rounded down or up, up
    where most was lost; none has less than its `least` parts."""
    exact = shares / shares.sum() * denominator
    whole = np.maximum(least, np.floor(exact)).astype(np.int64)
    while missing := denominator - int(whole.sum()):
        step = int(np.sign(missing))
        may = (whole > least) | (step > 0)
        whole[np.argmax(np.where(may, step * (exact - whole), -np.inf))] += step
    return [Fraction(number, denominator) for number in whole.tolist()]


def margin_of(variance: float, rho: Fraction | float = 1) -> float:
    """The 95 % margin at a rho, or at any precision, from the variance at 1."""
    return NORMAL_95 * math.sqrt(max(float(variance), 0.0) / float(rho))


@dataclass(frozen=True, eq=False, kw_only=True)
class Design:
    """A designed split of a budget: margins and shares before and after, and the certificate.

    title, symbol : of the budget; the symbol is rho or epsilon.
    before, total : the budget before and after.
    targets : for each target its keys, and the 95 % margins wanted, now and designed.
    headers : of the table of targets.
    levels : rows of the table of shares.
    margins : a clause about the margins.
    gap : share by which another split may be better at most, in terms of variances or of the
        smallest budget.
    notes : further sentences.
    compared : the splits that the certificate compares are of this.
    certified : the certificate, with `{}` for its clause.
    further : further JSON values.
    """

    title: str
    symbol: str
    objective: str
    before: Fraction
    total: Fraction
    targets: Sequence[Mapping[str, Any]]
    headers: tuple[str, ...]
    levels: Sequence[Mapping[str, str]]
    margins: str
    gap: float
    notes: tuple[str, ...] = ()
    compared: str = "this budget"
    certified: str = "{}"
    further: Mapping[str, Any] = field(default_factory=dict)

    @property
    def certificate(self) -> str:
        """The certified optimality of the design, as a clause."""
        what, gap = "weighted sum of variances", max(self.gap, 0.0)
        if self.objective == "largest_ratio":
            # Margins are roots of variances.
            what, gap = "largest ratio to the wanted margins", 1 - math.sqrt(1 - gap)
        share = f"smaller by more than {100 * gap:.2g} %"
        clause = f"no budget that is {share} meets all wanted margins, however it is split"
        if self.objective in ("largest_ratio", "weighted_sum"):
            clause = f"no other split of {self.compared} has a {what} that is {share}"
        return self.certified.format(clause)

    @property
    def section(self) -> PageSection:
        """Margins of every target before and after, shares of the levels, the certificate."""
        targets = [dict(zip(self.headers, own.values(), strict=True)) for own in self.targets]
        return PageSection(
            self.title,
            (
                f"{self.symbol} {float(self.before):.6g}, designed {float(self.total):.6g}",
                Table.of(targets),
                Table.of(self.levels),
                f"Margins of 95 %, {self.margins}",
                f"Certain: {self.certificate}.",
                *self.notes,
            ),
        )

    def to_json(self) -> dict[str, Any]:
        """The design as JSON values; fractions as strings."""
        return {
            "objective": self.objective,
            self.symbol: {"now": str(self.before), "designed": str(self.total)},
            "targets": [dict(target) for target in self.targets],
            "gap": self.gap,
            "certificate": self.certificate,
            **self.further,
        }

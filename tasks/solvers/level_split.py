"""Splits of a zCDP budget over the levels of a tree, by a convex program with a certificate.

On a tree where every node of level l - 1 has b_l children, measured with precision x_l (one over
the variance, 0 where a level is not measured), the estimates of level l have the variance V_l:

    X_T = x_T,   X_l = x_l + X_(l+1) / b_(l+1)        from the subtree of a node,
    V_0 = 0 or 1 / X_0,   V_l = (1 - 1 / b_l) / X_l + V_(l-1) / b_l^2.

These are the variances of least squares over all levels. Where each level is only fitted to the one
above, X_l = x_l. Either is convex in the precisions, which are linear in the losses of the levels,
and homogeneous of degree -1: a split p of the budget 1 whose largest ratio V_l(p) / wanted_l is t
needs the budget t. So the smallest budget is the minimum of the largest ratio over splits, as in
`spineflow design topdown`, and has the same certificate. The reciprocal of a ratio r is concave, so
that its derivative at one split u bounds it at every split p,

    1 / r(p) <= <-r'(u), p> / r(u)^2,

and the largest s below these bounds of all wanted levels, a linear program, gives 1 / s as a lower
bound on any split's budget ([Pukelsheim2006]). A weighted sum of variances is such a function, too:
the split for which it is least has a bound of the same kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

import numpy as np
from scipy.optimize import linprog, minimize

DENOMINATOR = 1000
"""Shares are whole thousandths: readable, and the same on machines that round differently."""

NORMAL_95 = 1.959963984540054
"""Quantile of the normal distribution that a margin of 95 % reaches to."""

SMALLEST = 1e-9
"""Share that every level has at least while the split is searched for."""

STEP = 1e-30
"""Step of complex-step derivatives, which lose no digits."""


@dataclass(frozen=True)
class RegularTree:
    """A tree by its fan-outs b_1, ..., b_T.

    is_root_exact : the root is known without noise.
    is_combined : estimates are least squares over all levels; else each level is fitted to the one
        above it.
    """

    fanouts: tuple[float, ...]
    is_root_exact: bool
    is_combined: bool = True

    def variances(self, precisions: Sequence[float] | np.ndarray) -> np.ndarray:
        """V_0, ..., V_T from x_0, ..., x_T; infinite if no measurement determines it."""
        upward = list(precisions)
        if self.is_combined:
            for level in range(len(self.fanouts) - 1, -1, -1):
                upward[level] = precisions[level] + upward[level + 1] / self.fanouts[level]
        whole = [0.0 if self.is_root_exact else _inverse(upward[0])]
        for level, fanout in enumerate(self.fanouts, start=1):
            # An only child has its parent's count, whether it is measured or not.
            own = _inverse(upward[level]) * (1 - 1 / fanout) if fanout > 1 else 0.0
            whole.append(own + whole[-1] / fanout**2)
        return np.array(whole)


def _inverse(precision: complex) -> complex:
    return 1 / precision if precision else np.inf


@dataclass(frozen=True)
class LevelSplit:
    """A split of a budget over levels, and a bound that no split can beat.

    total : the objective at these shares: the largest of some criteria at a budget of 1.
    shares : by measured level, thousandths that add to 1.
    bound : lower bound on the total of any split.
    """

    total: float
    shares: Mapping[int, Fraction]
    bound: float


Criterion = Mapping[int, float]
"""A weighted sum of the variances of levels, by level."""


def ratios(wanted: Mapping[int, float]) -> list[Criterion]:
    """The ratio of each level's variance, measured or not, to the wanted one: the largest at a
    budget of 1 is the budget that gives levels the wanted variances."""
    return [{level: 1 / variance} for level, variance in wanted.items()]


def largest(
    tree: RegularTree,
    units: Mapping[int, float],
    criteria: Sequence[Criterion],
    shares: Mapping[int, Fraction],
) -> float:
    """The largest of the criteria at these shares of a budget of 1.

    `units` has the variance of each measured level's noise at a loss of 1.
    """
    p = np.array([float(shares.get(level, 0)) for level in units])
    return float(_Program(tree, units, criteria).values(p).max())


def best_split(
    tree: RegularTree,
    units: Mapping[int, float],
    criteria: Sequence[Criterion],
    floors: Mapping[int, Fraction] = MappingProxyType({}),
) -> LevelSplit:
    """The split of a budget of 1 for which the largest of the criteria is least.

    Arguments as for `largest`. Every level of `units` gets a share, of its floor at least.
    """
    n, program = len(units), _Program(tree, units, criteria)
    least = np.array([max(SMALLEST, float(floors.get(level, 0))) for level in units])
    start = least + (1 - least.sum()) / n
    first = program.values(start).max()

    one_each = np.append(np.ones(n), 0.0)

    # Reciprocals of the criteria are concave, and of order 1 here: their least is made as large as
    # it can be.
    def slack(x: np.ndarray) -> np.ndarray:
        return first / program.values(x[:-1]) - x[-1]

    def slack_slopes(x: np.ndarray) -> np.ndarray:
        slopes = first * program.reciprocal_slopes(x[:-1])
        return np.column_stack([slopes, -np.ones(len(slopes))])

    found = minimize(
        lambda x: -x[-1],
        np.append(start, 1.0),
        jac=lambda x: -np.eye(n + 1)[-1],
        method="SLSQP",
        bounds=[*((low, 1.0) for low in least), (None, None)],
        constraints=[
            {"type": "ineq", "fun": slack, "jac": slack_slopes},
            {"type": "eq", "fun": lambda x: x[:-1].sum() - 1, "jac": lambda x: one_each},
        ],
        options={"maxiter": 500, "ftol": 1e-12},
    )
    best = np.maximum(found.x[:-1], least)
    best /= best.sum()
    shares = dict(zip(units, thousandths(best, [floors.get(x, 0) for x in units]), strict=True))
    bound = program.bound(best, least)
    return LevelSplit(largest(tree, units, criteria, shares), shares, bound)


@dataclass(frozen=True)
class _Program:
    """The objective as a function of the losses of the measured levels."""

    tree: RegularTree
    units: Mapping[int, float]
    criteria: Sequence[Criterion]

    def values(self, p: np.ndarray) -> np.ndarray:
        """The criteria at losses p."""
        precisions = np.zeros(len(self.tree.fanouts) + 1, dtype=p.dtype)
        precisions[list(self.units)] = p / np.array(list(self.units.values()))
        v = self.tree.variances(precisions)
        return np.array([sum(c * v[level] for level, c in one.items()) for one in self.criteria])

    def reciprocal_slopes(self, p: np.ndarray) -> np.ndarray:
        """Derivatives of one over each criterion by the losses, (criteria, measured levels)."""
        steps = p + 1j * STEP * np.eye(len(p))
        return np.column_stack([(1 / self.values(step)).imag / STEP for step in steps])

    def bound(self, u: np.ndarray, least: np.ndarray) -> float:
        """Lower bound on the largest criterion of any split, from the derivatives at one."""
        cuts, n = self.reciprocal_slopes(u), len(u)
        found = linprog(
            -np.eye(n + 1)[-1],
            A_ub=np.column_stack([-cuts, np.ones(len(cuts))]),
            b_ub=np.zeros(len(cuts)),
            A_eq=np.append(np.ones(n), 0.0)[None],
            b_eq=[1.0],
            bounds=[*((low if low > SMALLEST else 0.0, 1.0) for low in least), (None, None)],
        )
        return 1 / -float(found.fun)


def thousandths(shares: np.ndarray, floors: Sequence[Fraction | int] = ()) -> list[Fraction]:
    """Whole positive thousandths nearest to the shares, the largest remainders rounded up.

    None is below its floor, if there are floors; these are rounded up to thousandths.
    """
    exact = shares * DENOMINATOR
    least = np.ones(len(shares), dtype=int)
    if len(floors):
        least = np.maximum(least, [math.ceil(floor * DENOMINATOR) for floor in floors])
    whole = np.maximum(least, np.floor(exact)).astype(int)
    while whole.sum() != DENOMINATOR:
        step = 1 if whole.sum() < DENOMINATOR else -1
        may = (whole > least) | (step > 0)
        whole[np.argmax(np.where(may, step * (exact - whole), -np.inf))] += step
    return [Fraction(int(count), DENOMINATOR) for count in whole]

"""Splits of a zCDP budget over the levels of a tree: the smallest budget that meets wanted margins.

On a tree where every node of level l - 1 has b_l children, measured with precision x_l (one over
the variance, 0 where a level is not measured), the estimates of level l have the variance V_l:

    X_T = x_T,   X_l = x_l + X_(l+1) / b_(l+1)        from the subtree of a node,
    V_0 = 0 or 1 / X_0,   V_l = (1 - 1 / b_l) / X_l + V_(l-1) / b_l^2.

That is what least squares over all levels gives. Where each level is only fitted to the one above,
X_l = x_l. Either is convex in the precisions, which are linear in the losses of the levels, and
homogeneous of degree -1: a split p of the budget 1 whose largest ratio V_l(p) / wanted_l is t needs
the budget t. So the smallest budget is the minimum of the largest ratio over splits, as in
`spineflow design topdown`, and has the same certificate. The reciprocal of a ratio r is concave,
so that its derivative at one split u bounds it at every split p,

    1 / r(p) <= <-r'(u), p> / r(u)^2,

and the largest s below these bounds of all wanted levels, a linear program, gives 1 / s as a lower
bound of what any split needs ([Pukelsheim2006]).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.optimize import linprog, minimize
from spineflow.tasks.runs.errors import InputRefused

DENOMINATOR = 1000
"""Shares are whole thousandths: readable, and the same on machines that round differently."""

NORMAL_95 = 1.959963984540054
"""Quantile of the normal distribution that a margin of 95 % reaches to."""

SMALLEST = 1e-9
"""Share that every level has at least while the split is searched for."""

STEP = 1e-30
"""Of complex-step derivatives, which lose no digits."""


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
        """V_0, ..., V_T from x_0, ..., x_T; infinite for what nothing measured determines."""
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
    """A split of the smallest budget that gives levels the variances that are wanted.

    total : the budget, with these shares. shares : by measured level, thousandths that add to 1.
    bound : what any split needs at least.
    """

    total: float
    shares: Mapping[int, Fraction]
    bound: float


def budget_for(
    tree: RegularTree,
    units: Mapping[int, float],
    wanted: Mapping[int, float],
    shares: Mapping[int, Fraction],
) -> float:
    """The smallest budget of these shares with which levels have the wanted variances.

    `units` has the variance of each measured level's noise at a loss of 1, `wanted` variances of
    some levels, measured or not.
    """
    p = np.array([float(shares.get(level, 0)) for level in units])
    return float(_ratios(tree, units, wanted, p).max())


def smallest_split(
    tree: RegularTree, units: Mapping[int, float], wanted: Mapping[int, float]
) -> LevelSplit:
    """The split of the smallest budget with which levels have the wanted variances.

    Arguments as for `budget_for`. Every level of `units` gets a share.
    """
    n = len(units)
    start = np.full(n, 1 / n)
    first = _ratios(tree, units, wanted, start).max()

    one_each = np.append(np.ones(n), 0.0)

    # Reciprocals of the ratios are concave, and of order 1 here: their least is made as large as
    # it can be.
    def slack(x: np.ndarray) -> np.ndarray:
        return first / _ratios(tree, units, wanted, x[:-1]) - x[-1]

    def slack_slopes(x: np.ndarray) -> np.ndarray:
        slopes = first * _reciprocal_slopes(tree, units, wanted, x[:-1])
        return np.column_stack([slopes, -np.ones(len(slopes))])

    found = minimize(
        lambda x: -x[-1],
        np.append(start, 1.0),
        jac=lambda x: -np.eye(n + 1)[-1],
        method="SLSQP",
        bounds=[*[(SMALLEST, 1.0)] * n, (None, None)],
        constraints=[
            {"type": "ineq", "fun": slack, "jac": slack_slopes},
            {"type": "eq", "fun": lambda x: x[:-1].sum() - 1, "jac": lambda x: one_each},
        ],
        options={"maxiter": 500, "ftol": 1e-12},
    )
    best = found.x[:-1] / found.x[:-1].sum()
    shares = dict(zip(units, thousandths(best), strict=True))
    total = budget_for(tree, units, wanted, shares)
    return LevelSplit(total, shares, _bound(tree, units, wanted, best))


def _ratios(
    tree: RegularTree, units: Mapping[int, float], wanted: Mapping[int, float], p: np.ndarray
) -> np.ndarray:
    """V_l(p) / wanted_l of the wanted levels, at losses p of the measured ones."""
    precisions = np.zeros(len(tree.fanouts) + 1, dtype=p.dtype)
    precisions[list(units)] = p / np.array(list(units.values()))
    return tree.variances(precisions)[list(wanted)] / np.array(list(wanted.values()))


def _reciprocal_slopes(
    tree: RegularTree, units: Mapping[int, float], wanted: Mapping[int, float], p: np.ndarray
) -> np.ndarray:
    """Derivatives of 1 / r by the losses, (wanted levels, measured levels)."""
    steps = p + 1j * STEP * np.eye(len(p))
    columns = [(1 / _ratios(tree, units, wanted, step)).imag / STEP for step in steps]
    return np.column_stack(columns)


def _bound(
    tree: RegularTree, units: Mapping[int, float], wanted: Mapping[int, float], u: np.ndarray
) -> float:
    """What any split needs at least, from the derivatives at one."""
    cuts = _reciprocal_slopes(tree, units, wanted, u)
    n = len(units)
    found = linprog(
        -np.eye(n + 1)[-1],
        A_ub=np.column_stack([-cuts, np.ones(len(cuts))]),
        b_ub=np.zeros(len(cuts)),
        A_eq=np.append(np.ones(n), 0.0)[None],
        b_eq=[1.0],
        bounds=[*[(0.0, 1.0)] * n, (None, None)],
    )
    return 1 / -float(found.fun)


def variance_of_margin(margin: int) -> float:
    """The variance of a normal error that is within a margin with a probability of 95 %.

    Raises InputRefused for a margin of 0, which no noise has.
    """
    if margin < 1:
        raise InputRefused("--target: a split needs margins of 1 or more.")
    return (margin / NORMAL_95) ** 2


def together(symbol: str, split: LevelSplit, setting: str, now: float) -> str:
    """A sentence on a split; `now` is the budget that the present shares would need."""
    return (
        f"Estimates have all of these margins at {symbol} {split.total:.4g} with {setting}; no "
        f"split of less than {split.bound:.4g} gives them, and the shares of now need {now:.4g}"
    )


def thousandths(shares: np.ndarray) -> list[Fraction]:
    """Whole positive thousandths nearest to the shares, the largest remainders rounded up."""
    exact = shares * DENOMINATOR
    whole = np.maximum(1, np.floor(exact)).astype(int)
    while whole.sum() != DENOMINATOR:
        step = 1 if whole.sum() < DENOMINATOR else -1
        may = (whole > 1) | (step > 0)
        whole[np.argmax(np.where(may, step * (exact - whole), -np.inf))] += step
    return [Fraction(int(count), DENOMINATOR) for count in whole]

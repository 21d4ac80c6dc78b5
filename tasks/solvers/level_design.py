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

Designs of a budget over levels have settings, the best shares, and a bound on the gain of any
others.

[design]
objective = "smallest_budget"
[design.targets.county]
margin = 20

Where a level's estimate combines measurements of several levels and the budget is one of zCDP, the
program is the one above. Otherwise levels are taken by their
own measurements alone, whose variance at a loss of p is c / p under zCDP and at most c / p^2 under
pure differential privacy. Least squares over all levels are more precise, so that this is a bound
on their errors. Its best shares have a closed form: for a weighted sum of variances they are in
proportion to (w c)^(1 / (k + 1)), for the largest ratio to wanted variances v to (c / v)^(1 / k),
k being 1 or 2, and where floors bind, to the larger of floor and a multiple of that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from pydantic import Field
from scipy.optimize import linprog, minimize

from ..pages.document import Section as PageSection
from ..pages.document import Table
from ..runs.errors import InputRefused
from ..runs.names import did_you_mean
from ..runs.settings import ExactFraction, Refuse, Section

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


DIGITS = 6
"""Significant digits of a computed budget, rounded up."""


class LevelTarget(Section):
    """A level whose counts are to be precise."""

    margin: ExactFraction | None = None
    """The 95 % margin of error that is wanted; left out, the one that the settings give."""
    weight: ExactFraction = Fraction(1)
    """For weighted_sum: the weight of the level's variance."""


class LevelDesign(Section):
    """Targets of a budget over levels."""

    objective: Literal["largest_ratio", "weighted_sum", "smallest_budget"] = "largest_ratio"
    """largest_ratio: the largest ratio of a margin to the wanted one is least, at this budget.
    weighted_sum: the weighted sum of variances is. smallest_budget: as largest_ratio, at the
    smallest budget that meets all margins."""
    targets: dict[str, LevelTarget] = Field(min_length=1)
    """By level."""
    at_least: dict[str, ExactFraction] = {}
    """The least share of some levels; every measured level gets a thousandth."""

    def refuse_invalid(self, refuse: Refuse) -> None:
        """Refuse margins, weights and shares out of range, and settings that the objective
        ignores.
        """
        for name, target in self.targets.items():
            where = f"design.targets.{name}"
            if target.margin is not None and target.margin <= 0:
                refuse(f"{where}.margin must be above 0")
            if target.weight <= 0:
                refuse(f"{where}.weight must be above 0")
            if self.objective == "weighted_sum" and target.margin is not None:
                refuse(f"{where}.margin does nothing with weighted_sum; remove it")
            if self.objective != "weighted_sum" and target.weight != 1:
                refuse(f"{where}.weight does nothing but with weighted_sum; remove it")
        if any(share < 0 for share in self.at_least.values()):
            refuse("design.at_least holds a negative share")
        if sum(self.at_least.values()) > Fraction(1, 2):
            refuse("design.at_least leaves less than half of the budget; lower the shares")


@dataclass(frozen=True)
class LevelErrors:
    """Variances of levels as functions of their shares of the budget.

    names : of the levels that have a share, by their place in the tree, root first.
    units : the variance of a level's noise at a loss of 1, at these places.
    tree : how estimates combine levels; None for their own measurements alone.
    power : 1 for zCDP, where the variance falls as the loss, 2 for pure differential privacy, where
        it falls as its square; a tree is for 1 alone.
    symbol : rho or epsilon.
    """

    names: Mapping[int, str]
    units: Mapping[int, float]
    tree: RegularTree | None
    power: int
    symbol: str

    def variances(self, shares: Mapping[int, Fraction], total: float) -> dict[int, float]:
        """The variance of every level at a budget; infinite if no measurement determines it."""
        spent = {level: total * float(shares.get(level, 0)) for level in self.names}
        if self.tree is None:
            return {
                level: self.units[level] / loss**self.power if loss else math.inf
                for level, loss in spent.items()
            }
        precisions = np.zeros(len(self.tree.fanouts) + 1)
        for level, loss in spent.items():
            precisions[level] = loss / self.units[level]
        found = self.tree.variances(precisions)
        return {level: float(found[level]) for level in self.names}

    @property
    def margin_factor(self) -> float:
        """A 95 % margin over the standard deviation: of the normal or, if pure, of the Laplace
        distribution, whose deviation is sqrt(2) scales and whose margin log(20)."""
        return NORMAL_95 if self.power == 1 else math.log(20) / math.sqrt(2)

    def smallest_budget(
        self,
        margins: Mapping[int, int],
        now: Mapping[int, Fraction],
        setting: Callable[[Mapping[int, Fraction]], str],
    ) -> str | None:
        """A sentence: the smallest budget, and its shares, with which estimates of levels have 95 %
        margins of error. None where levels are not taken together.

        `now` are the shares of now; `setting` writes shares as the settings file has them. Raises
        InputRefused for a margin of 0, which no noise has.
        """
        if self.tree is None:
            return None
        if min(margins.values()) < 1:
            raise InputRefused("--target: a split needs margins of 1 or more.")
        wanted = ratios({level: (margin / NORMAL_95) ** 2 for level, margin in margins.items()})
        split = best_split(self.tree, self.units, wanted)
        needed = largest(self.tree, self.units, wanted, now)
        return (
            f"Estimates have all of these margins at {self.symbol} {split.total:.4g} with "
            f"{setting(split.shares)}; no split of less than {split.bound:.4g} gives them, and the "
            f"shares of now need {needed:.4g}"
        )

    def level_of(self, name: str, where: str = "design") -> int:
        """The place of a level, by its name or by this number; raises InputRefused for another.

        `where` is the beginning of the message.
        """
        for level, own in self.names.items():
            if name in (own, str(level)):
                return level
        known = ", ".join(f"{level} ({own})" for level, own in self.names.items())
        hint = did_you_mean(name, list(self.names.values()))
        raise InputRefused(f"{where} {name}: name a measured level{hint}: {known}.")


@dataclass(frozen=True)
class TargetMargins:
    """95 % margins of a target's counts: wanted, with the shares of now, and designed."""

    level: str
    wanted: float | None
    now: float
    designed: float


@dataclass(frozen=True)
class DesignedLevels:
    """A design: budget and shares before and after, targets, and the certificate.

    shares_before, shares : by place of the level. needed_now : the budget that the wanted margins
    need with the shares of now; None for a weighted sum. gap : no shares are better by more than
    this part, of variances or of the budget, none being below their floors if `has_floors`.
    """

    errors: LevelErrors
    before: Fraction
    total: Fraction
    shares_before: Mapping[int, Fraction]
    shares: Mapping[int, Fraction]
    targets: tuple[TargetMargins, ...]
    objective: str
    gap: float
    needed_now: float | None
    has_floors: bool

    @property
    def certificate(self) -> str:
        """The certificate in words."""
        what = {
            "largest_ratio": "of no split of this budget is the largest ratio of variances smaller",
            "weighted_sum": "of no split of this budget is the weighted sum of variances smaller",
            "smallest_budget": "no split meets these margins with a budget that is smaller",
        }[self.objective]
        within = "of those that `at_least` allows, " if self.has_floors else ""
        bounded = "" if self.errors.tree is not None else ", of the levels' own measurements"
        return f"{within}{what} by more than {100 * max(self.gap, 0.0):.2g} %{bounded}"

    @property
    def section(self) -> PageSection:
        """Margins of the targets before and after, shares of the levels, and the certificate."""
        names, symbol = self.errors.names, self.errors.symbol
        shares = [
            {
                "level": names[level],
                "share now": f"{float(self.shares_before.get(level, 0)):.2%}",
                "designed": f"{float(share):.2%}",
            }
            for level, share in self.shares.items()
        ]
        margins = "of each level's own noisy counts; estimates also use those of other levels."
        if self.errors.tree is not None:
            margins = (
                "of least squares on a tree of the mean numbers of parts; releases have whole "
                "counts and none below 0, and differ."
            )
        needed = f"{symbol} {self.needed_now or 0:.6g} with the shares of now."
        return PageSection(
            symbol,
            (
                f"{float(self.before):.6g}, designed {float(self.total):.6g}",
                Table.of([vars(target) for target in self.targets]),
                Table.of(shares),
                f"Margins of 95 %, {margins}",
                f"Certain: {self.certificate}.",
                *((f"These margins would need {needed}",) if self.needed_now is not None else ()),
            ),
        )

    def to_json(self) -> dict[str, Any]:
        """The design in JSON types, fractions as texts."""
        names = self.errors.names
        return {
            "objective": self.objective,
            self.errors.symbol: {"now": str(self.before), "designed": str(self.total)},
            "shares": {
                names[level]: {
                    "now": str(self.shares_before.get(level, Fraction(0))),
                    "designed": str(share),
                }
                for level, share in self.shares.items()
            },
            "targets": [vars(target) for target in self.targets],
            "is_bound": self.errors.tree is None,
            "gap": self.gap,
            "certificate": self.certificate,
            "needed_now": self.needed_now,
        }


def design_levels(
    errors: LevelErrors, design: LevelDesign, total: Fraction, shares: Mapping[int, Fraction]
) -> DesignedLevels:
    """The best shares of a budget over levels; `shares` and `total` are the settings'.

    Raises InputRefused for an unknown level, and for a target without a margin that the settings'
    own shares do not determine.
    """
    places = {name: errors.level_of(name) for name in (*design.targets, *design.at_least)}
    for named in (design.targets, design.at_least):
        if len({places[name] for name in named}) < len(named):
            raise InputRefused("design: a level is given twice, by its number and by its name.")
    floors = {places[name]: share for name, share in design.at_least.items()}
    now = errors.variances(shares, float(total))
    wanted: dict[int, float] = {}
    for name, target in design.targets.items():
        level = places[name]
        wanted[level] = now[level]
        if target.margin is not None:
            wanted[level] = (float(target.margin) / errors.margin_factor) ** 2
        elif not math.isfinite(now[level]) and design.objective != "weighted_sum":
            raise InputRefused(
                f"design.targets.{name} has no margin, and the shares of the settings do not "
                "determine its counts; give a margin."
            )
    weights = {places[name]: float(target.weight) for name, target in design.targets.items()}
    is_sum = design.objective == "weighted_sum"
    found, gap = _best_shares(errors, weights if is_sum else None, wanted, floors)
    needed_now = None if is_sum else _required_budget(errors, wanted, shares)
    after = total
    if design.objective == "smallest_budget":
        needed = _required_budget(errors, wanted, found)
        after = round_up_budget(needed)
        gap = (1 + gap) * float(after) / needed - 1
    then = errors.variances(found, float(after))
    return DesignedLevels(
        errors,
        total,
        after,
        shares,
        found,
        tuple(
            TargetMargins(
                errors.names[places[name]],
                None if target.margin is None else float(target.margin),
                *(errors.margin_factor * math.sqrt(one[places[name]]) for one in (now, then)),
            )
            for name, target in design.targets.items()
        ),
        design.objective,
        gap,
        needed_now,
        bool(floors),
    )


def round_up_budget(value: float) -> Fraction:
    """A budget of six significant digits that is at least the value.

    >>> round_up_budget(0.12345678)
    Fraction(123457, 1000000)
    """
    unit = Fraction(10) ** (math.floor(math.log10(value)) + 1 - DIGITS)
    return -(-Fraction(value) // unit) * unit


def _required_budget(
    errors: LevelErrors, wanted: Mapping[int, float], shares: Mapping[int, Fraction]
) -> float:
    """The budget of these shares at which levels have the wanted variances."""
    at_one = errors.variances(shares, 1.0)
    return max((at_one[level] / due) ** (1 / errors.power) for level, due in wanted.items())


def _best_shares(
    errors: LevelErrors,
    weights: Mapping[int, float] | None,
    wanted: Mapping[int, float],
    floors: Mapping[int, Fraction],
) -> tuple[dict[int, Fraction], float]:
    """The best shares for a weighted sum, or else for the largest ratio; and by how much others
    could be better: of variances, or of the smallest budget.
    """
    if errors.tree is not None:
        criteria = ratios(wanted) if weights is None else [weights]
        split = best_split(errors.tree, errors.units, criteria, floors)
        return dict(split.shares), split.total / split.bound - 1
    k = errors.power
    if weights is None:
        parts = {level: (errors.units[level] / due) ** (1 / k) for level, due in wanted.items()}
    else:
        parts = {level: (w * errors.units[level]) ** (1 / (k + 1)) for level, w in weights.items()}
    least = {level: max(float(floors.get(level, 0)), 1 / DENOMINATOR) for level in errors.names}
    exact = scaled_above(parts, least)
    names = list(errors.names)
    rounded = thousandths(
        np.array([exact[level] for level in names]), [floors.get(level, 0) for level in names]
    )
    shares = dict(zip(names, rounded, strict=True))

    def value(p: Mapping[int, Any]) -> float:
        at_one = errors.variances(p, 1.0)
        if weights is None:
            return max(at_one[level] / due for level, due in wanted.items())
        return sum(w * at_one[level] for level, w in weights.items())

    gap = value(shares) / value(exact) - 1
    return shares, gap if weights is not None else (1 + gap) ** (1 / k) - 1


def scaled_above(parts: Mapping[int, float], least: Mapping[int, float]) -> dict[int, float]:
    """Shares that add to 1, each the larger of its least share and a multiple of its part.

    Levels without a part get their least share.

    >>> scaled_above({1: 3.0, 2: 1.0}, {0: 0.2, 1: 0.0, 2: 0.0})
    {0: 0.2, 1: 0.6000000000000001, 2: 0.2}
    """
    bound = {level for level in least if not parts.get(level)}
    while True:
        free = 1 - sum(least[level] for level in bound)
        whole = sum(part for level, part in parts.items() if level not in bound)
        found = {
            level: least[level] if level in bound else free * parts[level] / whole
            for level in least
        }
        below = {level for level, share in found.items() if share < least[level]}
        if not below:
            return found
        bound |= below

"""Designs of a budget over levels: settings, the best shares, and a bound on the gain of any
others.

[design]
objective = "smallest_budget"
[design.targets.county]
margin = 20

On a tree where every node of level l - 1 has b_l children, measured with precision x_l (one over
the variance, 0 where a level is not measured), the estimates of level l have the variance V_l:

    X_T = x_T,   X_l = x_l + X_(l+1) / b_(l+1)        from the subtree of a node,
    V_0 = 0 or 1 / X_0,   V_l = (1 - 1 / b_l) / X_l + V_(l-1) / b_l^2.

These are the variances of least squares over all levels. Where each level is only fitted to the one
above, X_l = x_l. Either is convex in the precisions, which are linear in the losses of the levels,
and homogeneous of degree -1: a criterion of `split`. Where estimates do not combine levels so, or
the budget is one of pure differential privacy, levels are taken by their own measurements alone,
whose variance at a loss of p is c / p under zCDP and at most c / p^2 under pure differential
privacy. Least squares over all levels are more precise, so that this is a bound on their errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from ..runs.errors import InputRefused
from ..runs.names import did_you_mean
from ..runs.settings import Refuse, Section
from .split import NORMAL_95, Design, GeounitClasses, Goal, Program, optimum, round_shares

DENOMINATOR = 1000
"""Shares are whole thousandths: readable, and the same on machines that round differently."""
DIGITS = 6
"""Significant digits of a computed budget, rounded up."""
STEP = 1e-30
"""Step of complex-step derivatives, which lose no digits."""
TOLERANCE = 1e-10


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


class LevelDesign(Section):
    """Targets of a budget over levels."""

    objective: Literal["largest_ratio", "weighted_sum", "smallest_budget"] = "largest_ratio"
    """largest_ratio: the largest ratio of a margin to the wanted one is least, at this budget.
    weighted_sum: the weighted sum of variances is. smallest_budget: as largest_ratio, at the
    smallest budget that meets all margins."""
    targets: dict[str, Goal] = Field(min_length=1)
    """By level."""

    def refuse_invalid(self, is_infinite: bool, refuse: Refuse) -> None:
        """Refuse margins and weights out of range, settings without noise, and those that the
        objective ignores.
        """
        if is_infinite:
            refuse("privacy.infinite leaves no noise to design; remove it, or the section design")
        for name, target in self.targets.items():
            target.refuse_invalid(self.objective, f"design.targets.{name}", refuse)


Criterion = Mapping[int, float]
"""A weighted sum of the variances of levels, by level."""


class LevelSplit(NamedTuple):
    """A split of a budget over levels, and a bound that no split can beat.

    shares : by measured level, thousandths that add to 1.
    total : the largest criterion at these shares of a budget of 1, as a budget: its k-th root where
        variances fall as the k-th power of the budget.
    bound : lower bound on the total of any split.
    """

    shares: Mapping[int, Fraction]
    total: float
    bound: float


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

    def variances(self, shares: Mapping[int, Any], total: float) -> dict[int, float]:
        """The variance of every level at a budget; infinite if no measurement determines it."""
        losses = np.array([total * float(shares.get(level, 0)) for level in self.names])
        return dict(zip(self.names, self._variances(losses).tolist(), strict=True))

    def largest(self, criteria: Sequence[Criterion], shares: Mapping[int, Any]) -> float:
        """The largest of the criteria at these shares of a budget of 1, as a budget."""
        p = np.array([float(shares.get(level, 0)) for level in self.names])
        return float(self._values(criteria, p).max())

    def split(self, criteria: Sequence[Criterion]) -> LevelSplit:
        """The split of a budget of 1 for which the largest of the criteria is least.

        Every level gets a share.
        """
        n = len(self.names)

        def values(precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            losses = precision[:, 0]
            steps = losses + 1j * STEP * np.eye(n)
            slopes = np.column_stack([self._values(criteria, step).imag / STEP for step in steps])
            return self._values(criteria, losses), slopes[:, :, None]

        kinds = GeounitClasses(np.arange(n), np.eye(n))
        program = Program(kinds, values, np.ones((n, 1), dtype=bool))
        best = optimum(program, np.full((n, 1), 1 / n), TOLERANCE)
        shares = dict(zip(self.names, thousandths(best.allocation[:, 0]), strict=True))
        return LevelSplit(shares, self.largest(criteria, shares), best.bound)

    def _variances(self, losses: np.ndarray) -> np.ndarray:
        """Variances of the levels at their losses, which may be complex."""
        precisions = losses**self.power / np.array([*self.units.values()])
        if self.tree is None:
            return np.array([_inverse(precision) for precision in precisions.tolist()])
        of_tree = np.zeros(len(self.tree.fanouts) + 1, dtype=losses.dtype)
        of_tree[list(self.names)] = precisions
        return self.tree.variances(of_tree)[list(self.names)]

    def _values(self, criteria: Sequence[Criterion], losses: np.ndarray) -> np.ndarray:
        """The criteria at losses, as budgets."""
        v = dict(zip(self.names, self._variances(losses), strict=True))
        sums = [sum(weight * v[level] for level, weight in one.items()) for one in criteria]
        return np.array(sums) ** (1 / self.power)

    @property
    def margin_factor(self) -> float:
        """A 95 % margin over the standard deviation: of the normal or, if pure, of the Laplace
        distribution, whose deviation is sqrt(2) scales and whose margin log(20)."""
        return NORMAL_95 if self.power == 1 else math.log(20) / math.sqrt(2)

    def level_of(self, name: str) -> int:
        """The place of a level, by its name or by this number; raises InputRefused for another."""
        for level, own in self.names.items():
            if name in (own, str(level)):
                return level
        known = ", ".join(f"{level} ({own})" for level, own in self.names.items())
        hint = did_you_mean(name, list(self.names.values()))
        raise InputRefused(f"design {name}: name a measured level{hint}: {known}.")


@dataclass(frozen=True, eq=False, kw_only=True)
class DesignedLevels(Design):
    """A design of levels; `shares` are by place of the level in `errors`."""

    errors: LevelErrors
    shares: Mapping[int, Fraction]


def design_levels(
    errors: LevelErrors, design: LevelDesign, total: Fraction, shares: Mapping[int, Fraction]
) -> DesignedLevels:
    """The best shares of a budget over levels; `shares` and `total` are the settings'.

    Raises InputRefused for an unknown level, and for a target without a margin that the settings'
    own shares do not determine.
    """
    places = {name: errors.level_of(name) for name in design.targets}
    if len(set(places.values())) < len(places):
        raise InputRefused("design: a level is given twice, by its number and by its name.")
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
    ratios = [{level: 1 / due} for level, due in wanted.items()]
    weights = {places[name]: float(target.weight) for name, target in design.targets.items()}
    is_sum = design.objective == "weighted_sum"
    split = errors.split([weights] if is_sum else ratios)
    gap, after = 1 - (split.bound / split.total) ** errors.power, total
    if design.objective == "smallest_budget":
        after = round_up_budget(split.total)
        gap = 1 - split.bound / float(after)
    then = errors.variances(split.shares, float(after))
    names, symbol = errors.names, errors.symbol
    needed = None if is_sum else errors.largest(ratios, shares)
    margins = "of each level's own noisy counts; estimates also use those of other levels."
    certified = "{}, of the levels' own measurements"
    if errors.tree is not None:
        margins = (
            "of least squares on a tree of the mean numbers of parts; releases have whole counts "
            "and none below 0, and differ."
        )
        certified = "{}"
    return DesignedLevels(
        title=symbol,
        symbol=symbol,
        objective=design.objective,
        before=total,
        total=after,
        targets=[
            {
                "level": names[places[name]],
                "wanted": None if target.margin is None else float(target.margin),
                "now": errors.margin_factor * math.sqrt(now[places[name]]),
                "designed": errors.margin_factor * math.sqrt(then[places[name]]),
            }
            for name, target in design.targets.items()
        ],
        headers=("level", "wanted", "now", "designed"),
        levels=[
            {
                "level": names[level],
                "share now": f"{float(shares.get(level, 0)):.2%}",
                "designed": f"{float(share):.2%}",
            }
            for level, share in split.shares.items()
        ],
        margins=margins,
        gap=gap,
        certified=certified,
        notes=()
        if needed is None
        else (f"These margins would need {symbol} {needed:.6g} with the shares of now.",),
        further={
            "shares": {
                names[level]: {"now": str(shares.get(level, Fraction(0))), "designed": str(share)}
                for level, share in split.shares.items()
            },
            "is_bound": errors.tree is None,
            "needed_now": needed,
        },
        errors=errors,
        shares=split.shares,
    )


def round_up_budget(value: float) -> Fraction:
    """A budget of six significant digits that is at least the value.

    >>> round_up_budget(0.12345678)
    Fraction(123457, 1000000)
    """
    unit = Fraction(10) ** (math.floor(math.log10(value)) + 1 - DIGITS)
    return -(-Fraction(value) // unit) * unit


def thousandths(shares: np.ndarray) -> list[Fraction]:
    """Whole positive thousandths nearest to the shares."""
    return round_shares(shares, DENOMINATOR, 1)

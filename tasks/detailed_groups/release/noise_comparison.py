"""Gaussian against geometric noise of detailed groups: equal margins, which guarantee.

The discrete Gaussian is accounted for by rho, the geometric by epsilon: the two are compared by the
epsilon that either has at the same delta, from the distributions of their privacy losses. Both get
the least budgets with which the margins of every level hold, in each of the two stages. One person
added or removed changes as many counts of each stage of a level as the level's stability says, by
one each; one who is changed, twice as many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from ...ledger.accounting import BOUNDED, UNBOUNDED
from ...ledger.exact_curve import PrivacyCurve
from ...ledger.loss_laws import ChangedCount
from ...ledger.plan import REPORT_DELTA
from ...noise.distributions import IntegerDistribution
from ...noise.quantiles import margin
from ..workload.explorer import LevelBudget
from ..workload.wanted_margins import least_budget


def sentence_of(comparison: Mapping[str, Any]) -> str:
    """A comparison, as `compare_noise` has it, in words."""
    gained, people = comparison["gained"], "changed"
    if comparison["neighbors"] == UNBOUNDED:
        people = "added or removed"
    return (
        f"With one person {people}, discrete Gaussian noise of these margins has epsilon "
        f"{comparison['gaussian']:.4g} at delta {float(Fraction(comparison['delta'])):g}, "
        f"{abs(gained):.1%} {'less' if gained >= 0 else 'more'} than two-sided geometric noise "
        f"with {comparison['geometric']:.4g} ({comparison['geometric_pure']:.4g} at delta 0)."
    )


def compare_noise(
    levels: Iterable[LevelBudget], coverage: Fraction, delta: Fraction = REPORT_DELTA
) -> tuple[dict[str, Any], ...]:
    """Both kinds of noise at the margins that the noise of some levels has, by kind of neighbours:
    what JSON can hold.

    `gaussian` and `geometric` are the epsilons at `delta`, `geometric_pure` that of the geometric
    at delta 0, and `gained` the part of the geometric's that the Gaussian saves, negative if it
    costs. The budgets of the levels say which margins, and are used for nothing else.
    """
    changed: dict[bool, Counter[IntegerDistribution]] = {False: Counter(), True: Counter()}
    for level in levels:
        stages = [level.second_stage, *([level.first_stage] if level.stage_1_fraction else [])]
        for noise in stages:
            due = margin(noise, coverage)
            for is_pure, counts in changed.items():
                counts[narrowest(due, coverage, is_pure=is_pure)] += level.stability
    pure = float(sum(noise.c * count for noise, count in changed[True].items()))
    found = []
    for neighbors, times in ((UNBOUNDED, 1), (BOUNDED, 2)):
        gaussian, geometric = (
            PrivacyCurve(
                {ChangedCount(noise): times * k for noise, k in counts.items()}
            ).epsilon_upper(delta)
            for counts in changed.values()
        )
        found.append(
            {
                "neighbors": neighbors,
                "delta": str(delta),
                "gaussian": gaussian,
                "geometric": geometric,
                "geometric_pure": times * pure,
                "gained": 1 - gaussian / geometric,
            }
        )
    return tuple(found)


@lru_cache(maxsize=256)
def narrowest(due: int, coverage: Fraction, *, is_pure: bool) -> IntegerDistribution:
    """The noise of least loss that stays within a margin, of one of the two kinds."""
    one = LevelBudget(Fraction(1), 1, Fraction(0), is_pure)
    return one.with_budget(least_budget(one, due, coverage)).second_stage

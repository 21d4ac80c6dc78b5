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
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from ...ledger.accounting import BOUNDED, UNBOUNDED
from ...ledger.exact_curve import PrivacyCurve
from ...ledger.loss_laws import ChangedCount
from ...ledger.summary import REPORT_DELTA
from ...noise.distributions import IntegerDistribution
from ...noise.quantiles import margin
from ..workload.explorer import LevelBudget
from ..workload.wanted_margins import least_budget


@dataclass(frozen=True)
class NoiseComparison:
    """Epsilon at `delta` of the two kinds of noise that give the same margins.

    neighbors : between which inputs. pure : the epsilon of the geometric at delta 0.
    """

    neighbors: str
    delta: Fraction
    gaussian: float
    geometric: float
    pure: float

    @property
    def gained(self) -> float:
        """The part of the geometric's epsilon that the Gaussian saves; negative if it costs."""
        return 1 - self.gaussian / self.geometric

    def as_json(self) -> dict[str, str | float]:
        """The comparison as what JSON can hold."""
        return {
            "neighbors": self.neighbors,
            "delta": str(self.delta),
            "gaussian": self.gaussian,
            "geometric": self.geometric,
            "geometric_pure": self.pure,
            "gained": self.gained,
        }


def sentence_of(comparison: Mapping[str, Any]) -> str:
    """A comparison, as `as_json` has it, in words."""
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
) -> tuple[NoiseComparison, ...]:
    """Both kinds of noise at the margins that the noise of some levels has, by kind of neighbours.

    The budgets of the levels say which margins, and are used for nothing else.
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
        found.append(NoiseComparison(neighbors, delta, gaussian, geometric, times * pure))
    return tuple(found)


@lru_cache(maxsize=256)
def narrowest(due: int, coverage: Fraction, *, is_pure: bool) -> IntegerDistribution:
    """The noise of least loss that stays within a margin, of one of the two kinds."""
    one = LevelBudget(Fraction(1), 1, Fraction(0), is_pure)
    return one.with_budget(least_budget(one, due, coverage)).second_stage

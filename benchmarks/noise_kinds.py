"""What discrete Gaussian noise saves against geometric noise, for the margins of the 2020 run.

Prints epsilon of both at several deltas, for all levels of the pass of the United States and for
single levels: the table of benchmarks/results/detailed_groups.md.

The discrete Gaussian is accounted for by rho, the geometric by epsilon: the two are compared by the
epsilon that either has at the same delta, from the distributions of their privacy losses. Both get
the least budgets with which the margins of every level hold, in each of the two stages. One person
added or removed changes as many counts of each stage of a level as its stability, by one each;
changing a person, twice as many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction

from spineflow.tasks.detailed_groups.workload.budgets import LevelBudget, least_budget
from spineflow.tasks.ledger.accounting import BOUNDED, UNBOUNDED
from spineflow.tasks.ledger.exact_curve import PrivacyCurve
from spineflow.tasks.ledger.loss_laws import ChangedCount
from spineflow.tasks.noise.distributions import IntegerDistribution
from spineflow.tasks.noise.quantiles import COVERAGE, margin

LEVELS = {
    3: (LevelBudget(Fraction("2.134"), 9, Fraction(1, 10)), 2),
    11: (LevelBudget(Fraction("0.159"), 9, Fraction(1, 10)), 4),
    49: (LevelBudget(Fraction("0.008"), 9, Fraction(1, 10)), 5),
}
"""By its margin: a level of the production run, and how many there are."""


def narrowest(due: int, *, is_pure: bool) -> IntegerDistribution:
    """The noise of least loss that stays within a margin, of one of the two kinds."""
    one = LevelBudget(Fraction(1), 1, Fraction(0), is_pure)
    return replace(one, budget=least_budget(one, due, COVERAGE)).second_stage


def compare_noise(
    levels: Iterable[LevelBudget], delta: Fraction
) -> Iterator[tuple[str, float, float]]:
    """Epsilon at delta of Gaussian and of geometric noise with the margins that the noise of some
    levels has, by kind of neighbours. The budgets of the levels only determine the margins.
    """
    changed: dict[bool, Counter[IntegerDistribution]] = {False: Counter(), True: Counter()}
    for level in levels:
        for noise in (level.first_stage, level.second_stage):
            due = margin(noise, COVERAGE)
            for is_pure, counts in changed.items():
                counts[narrowest(due, is_pure=is_pure)] += level.stability
    for neighbors, times in ((UNBOUNDED, 1), (BOUNDED, 2)):
        gaussian, geometric = (
            PrivacyCurve(
                {ChangedCount(noise): times * k for noise, k in counts.items()}
            ).epsilon_upper(delta)
            for counts in changed.values()
        )
        yield neighbors, gaussian, geometric


def main() -> None:
    whole = [level for level, times in LEVELS.values() for _ in range(times)]
    compared = {"all levels": whole} | {
        f"one level of margin {due}": [level] for due, (level, _) in LEVELS.items()
    }
    print("what | neighbours | delta | Gaussian | geometric | saved")
    for what, levels in compared.items():
        for exponent in (6, 8, 10):
            for neighbors, *epsilons in compare_noise(levels, Fraction(1, 10**exponent)):
                gaussian, geometric = epsilons
                print(
                    f"{what} | {neighbors} | 1e-{exponent} | {gaussian:.3f} | "
                    f"{geometric:.3f} | {1 - gaussian / geometric:.1%}"
                )


if __name__ == "__main__":
    main()

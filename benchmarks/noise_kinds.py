"""What discrete Gaussian noise saves against geometric noise, for the margins of the 2020 run.

Prints epsilon of both at several deltas, for all levels of the pass of the United States and for
single levels: the table of benchmarks/results/detailed_groups.md.
"""

from __future__ import annotations

from fractions import Fraction

from spineflow.tasks.detailed_groups.release.figures import compare_noise
from spineflow.tasks.detailed_groups.workload.budgets import LevelBudget
from spineflow.tasks.noise.margins import COVERAGE

LEVELS = {
    3: (LevelBudget(Fraction("2.134"), 9, Fraction(1, 10)), 2),
    11: (LevelBudget(Fraction("0.159"), 9, Fraction(1, 10)), 4),
    49: (LevelBudget(Fraction("0.008"), 9, Fraction(1, 10)), 5),
}
"""By its margin: a level of the production run, and how many there are."""


def main() -> None:
    whole = [level for level, times in LEVELS.values() for _ in range(times)]
    compared = {"all levels": whole} | {
        f"one level of margin {due}": [level] for due, (level, _) in LEVELS.items()
    }
    print("what | neighbours | delta | Gaussian | geometric | saved")
    for what, levels in compared.items():
        for exponent in (6, 8, 10):
            for found in compare_noise(levels, COVERAGE, Fraction(1, 10**exponent)):
                print(
                    f"{what} | {found['neighbors']} | 1e-{exponent} | {found['gaussian']:.3f} | "
                    f"{found['geometric']:.3f} | {found['gained']:.1%}"
                )


if __name__ == "__main__":
    main()

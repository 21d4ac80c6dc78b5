"""Time of all group-size mechanisms, and errors by kind of noise, on generated data.

Run from the repository's root, all parts or one of them:

    .venv/bin/python -m benchmarks.group_size_mechanisms [--part PART ...]

zcdp     epsilon of discrete Laplace noise beside the rho of discrete Gaussian noise that costs as
         much in the ledger, epsilon^2 / 2, and persons who count up to four times
once     levels with the same regions: measured each, as version 0.1.0 did, and measured once
sizes    seconds by the number of sizes N, at the regions of the taxi-like data
regions  seconds by the number of counties, at N = 16
rows     error and seconds where the counties' numbers of groups are public
release  seconds and memory from noise to the release's files, of the default mechanism

Errors are L1 distances to the truth, summed over a level's regions and sizes, mean over replicates;
noise is the product's own, seeded. Times are of the estimation alone, in seconds of one thread, the
best of three, compiled before. A relaxed program that passes `--limit` seconds is not tried at
larger sizes. The errors of all mechanisms beside those of the paper: `group_size_figures.py`.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from spineflow.tasks.group_sizes.estimation.estimate import (
    TIME_LIMIT,
    estimate_plan,
    relaxed_estimate,
)
from spineflow.tasks.group_sizes.estimation.marginal_costs import Program
from spineflow.tasks.group_sizes.ingest.generate import GroupDataset, census_like
from spineflow.tasks.group_sizes.ingest.regions import RegionHierarchy, hierarchy_of_rows
from spineflow.tasks.group_sizes.measurement import true_vector
from spineflow.tasks.group_sizes.plan import (
    PROVEN,
    PUBLISHED,
    RELAXED,
    Plan,
    calibrate,
    default_mechanism,
)
from spineflow.tasks.group_sizes.release import write_tables
from spineflow.tasks.ledger.charging import UnchargedNoise
from spineflow.tasks.noise.distributions import Noise, SeededRandom, SystemRandom
from spineflow.tasks.products.measurement import with_noise
from spineflow.tasks.runs.errors import SolveFailed
from spineflow.tasks.tables.value_tallies import ValueTally

from benchmarks.taxis import taxi_like

EPSILONS = (Fraction("0.1"), Fraction("0.5"), Fraction(1))
MECHANISMS = (
    ("hierarchical", PROVEN),
    ("hierarchical_dp", PROVEN),
    ("cumulative", PROVEN),
    ("cumulative_dp", PROVEN),
    ("chain_dp", PROVEN),
    ("chain_dp", PUBLISHED),
    ("topdown", PROVEN),
)
FAST = tuple(chosen for chosen in MECHANISMS if chosen[0] not in RELAXED)


class Case:
    """A dataset with its hierarchy and the true counts of every level."""

    def __init__(self, dataset: GroupDataset) -> None:
        self.name = dataset.name
        self.hierarchy: RegionHierarchy = hierarchy_of_rows(dataset.regions, ValueTally())
        finest = self.hierarchy.levels[-1].codes
        position = {region: i for i, region in enumerate(finest)}
        counts = np.zeros((len(finest), dataset.largest), dtype=np.int64)
        rows = dataset.sizes["region"].map(position).to_numpy()
        counts[rows, dataset.sizes["size"].to_numpy() - 1] = dataset.sizes["count"].to_numpy()
        self.truth = self.hierarchy.sum_up(counts)
        self.groups = int(counts.sum())

    def plan(
        self, mechanism: str | None, calibration: str, epsilon: Fraction | None, **changes
    ) -> Plan:
        names, n_regions = self.hierarchy.names, self.hierarchy.n_regions
        plan = Plan(
            mechanism=mechanism or default_mechanism(n_regions),
            smallest_size=1,
            largest_size=self.truth[0].shape[1],
            groups=self.groups,
            epsilon=epsilon,
            calibration=calibration,
            **changes,
        )
        return calibrate(plan, names, n_regions)

    def noisy(self, plan: Plan, source) -> list[np.ndarray]:
        draws = UnchargedNoise(source)
        return [
            with_noise(true_vector(plan.vector, counts), level.noise, draws)
            for level, counts in zip(plan.levels, self.truth, strict=True)
        ]

    def estimate(
        self, plan: Plan, noisy: list[np.ndarray], limit: float = TIME_LIMIT
    ) -> list[np.ndarray]:
        exact = None
        if plan.exact_level is not None:
            exact = self.truth[self.hierarchy.names.index(plan.exact_level)].sum(axis=1)
        if plan.mechanism in RELAXED:
            program = Program(noisy, self.hierarchy, self.groups, plan.weights)
            return relaxed_estimate(plan.mechanism, program, time_limit=limit)
        return estimate_plan(plan, self.hierarchy, noisy, exact)

    def mean_error(self, plan: Plan, replicates: int, key: str) -> np.ndarray:
        """L1 error of every level, mean over replicates."""
        found = []
        for replicate in range(replicates):
            noisy = self.noisy(plan, SeededRandom(1, self.name, key, str(replicate)))
            found.append(l1_error(self.estimate(plan, noisy), self.truth))
        return np.mean(found, axis=0)

    def violations(self, levels: list[np.ndarray]) -> int:
        """Pairs of region and size that the regions below do not add to."""
        wrong = 0
        for depth in range(len(levels) - 1):
            sums = np.add.reduceat(levels[depth + 1], self.hierarchy.children(depth)[:-1], axis=0)
            wrong += int((sums != levels[depth]).sum())
        return wrong


def l1_error(estimated: list[np.ndarray], truth: list[np.ndarray]) -> list[int]:
    """For each level the sum over regions and sizes of |estimated - true|."""
    return [int(np.abs(e - t).sum()) for e, t in zip(estimated, truth, strict=True)]


def shown(mechanism: str, calibration: str) -> str:
    return f"{mechanism} (published)" if calibration == PUBLISHED else mechanism


def by_noise(cases: list[Case], replicates: int) -> Iterator[str]:
    """Error of discrete Laplace and Gaussian noise at the same charge, by mechanism."""
    names = [f"{case.name}: {name}" for case in cases for name in case.hierarchy.names]
    yield f"| epsilon | quantity | mechanism | noise | {' | '.join(names)} |"
    yield f"| ---: | ---: | --- | --- | {' | '.join(['---:'] * len(names))} |"
    for epsilon in EPSILONS:
        for quantity in (1, 4):
            for mechanism in ("hierarchical_dp", "cumulative_dp", "chain_dp", "topdown"):
                for noise in ("Laplace", "Gaussian"):
                    loss = (epsilon, None) if noise == "Laplace" else (None, epsilon**2 / 2)
                    cells = []
                    for case in cases:
                        plan = case.plan(mechanism, PROVEN, loss[0], rho=loss[1], quantity=quantity)
                        key = f"{noise} {plan.vector} {epsilon} {quantity}"
                        means = case.mean_error(plan, replicates, key)
                        cells += [f"{mean:,.0f}" for mean in means]
                    yield (
                        f"| {float(epsilon)} | {quantity} | `{mechanism}` | {noise} | "
                        f"{' | '.join(cells)} |"
                    )


def measured_once(replicates: int) -> Iterator[str]:
    """A nation that is one state: both measured, and one for both."""
    case = Case(census_like(groups=466_000, counties=5, states=1, largest=1000))
    yield "| loss | state and nation | nation | state | county |"
    yield "| --- | --- | ---: | ---: | ---: |"
    for loss in ({"epsilon": Fraction(1)}, {"epsilon": None, "rho": Fraction(1, 2)}):
        once = case.plan(None, PROVEN, **loss)
        third = Fraction(1, 3)
        each = replace(
            once,
            levels=tuple(
                replace(
                    level,
                    share=third,
                    noise=Noise(once.noise, level.moved / (third * (2 * once.rho or 1))),
                )
                for level in once.levels
            ),
        )
        for name, plan in (("each", each), ("once", once)):
            means = case.mean_error(plan, replicates, f"{name} {loss}")
            cells = " | ".join(f"{mean:,.0f}" for mean in means)
            yield f"| {once.loss} {once.noise} | {name} | {cells} |"


def exact_rows(replicates: int) -> Iterator[str]:
    """Counties' numbers of groups public or not, at growing numbers of counts."""
    yield "| counties | sizes | numbers public | nation | state | county | seconds |"
    yield "| ---: | ---: | --- | ---: | ---: | ---: | ---: |"
    for counties, states, largest in (
        (5, 1, 1000),
        (60, 6, 12),
        (60, 6, 100),
        (250, 5, 100),
        (250, 5, 1000),
    ):
        dataset = census_like(
            groups=40_000 * counties, counties=counties, states=states, largest=largest
        )
        case = Case(dataset)
        for level in (None, "county"):
            plan = case.plan("cumulative_dp", PROVEN, None, rho=Fraction(1, 2), exact_level=level)
            start = time.process_time()
            means = case.mean_error(plan, replicates, f"rows {counties} {largest}")
            taken = (time.process_time() - start) / replicates
            cells = " | ".join(f"{mean:,.0f}" for mean in means)
            public = "counties" if level else "total"
            yield f"| {counties} | {largest} | {public} | {cells} | {taken:.2f} |"


def seconds(case: Case, mechanism: str, limit: float) -> float:
    """Best time of an estimation, infinite if it passes the limit; one try of what is slow."""
    plan = case.plan(mechanism, PROVEN, Fraction(1))
    noisy = case.noisy(plan, SeededRandom(1))
    best = np.inf
    for _ in range(1 if mechanism in RELAXED else 3):
        start = time.process_time()
        try:
            case.estimate(plan, noisy, limit)
        except SolveFailed:
            return np.inf
        best = min(best, time.process_time() - start)
    return best


def growth(label: str, cases: Iterator[tuple[int, Case]], limit: float) -> Iterator[str]:
    """Seconds of every mechanism by size, and the ratio to the relaxed program of each."""
    names = [name for name, calibration in MECHANISMS if calibration == PROVEN]
    yield f"| {label} | {' | '.join(names)} | hierarchical / dp | cumulative / dp |"
    yield f"| ---: | {' | '.join(['---:'] * (len(names) + 2))} |"
    too_slow: set[str] = set()
    for size, case in cases:
        taken = {name: np.inf if name in too_slow else seconds(case, name, limit) for name in names}
        too_slow |= {name for name, value in taken.items() if np.isinf(value)}
        cells = [
            f"> {limit:.0f}" if np.isinf(taken[name]) else f"{taken[name]:.3g}" for name in names
        ]
        for name in RELAXED:
            ratio = taken[name] / taken[f"{name}_dp"]
            cells.append("–" if np.isinf(ratio) else f"{ratio:.0f}")
        yield f"| {size:,} | {' | '.join(cells)} |"


def release(cases: list[Case]) -> Iterator[str]:
    """From noise to the release's files, by the default mechanism with the system's randomness."""
    yield "| data | mechanism | noise | estimate | files | total | peak GiB |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    for case in cases:
        plan = case.plan(None, PROVEN, Fraction(1))
        marks = [time.perf_counter()]
        noisy = case.noisy(plan, SystemRandom())
        marks.append(time.perf_counter())
        levels = case.estimate(plan, noisy, TIME_LIMIT)
        marks.append(time.perf_counter())
        with tempfile.TemporaryDirectory() as folder:
            write_tables(Path(folder), case.hierarchy, levels, 1)
            marks.append(time.perf_counter())
        taken = np.diff(marks)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        yield (
            f"| {case.name} | {plan.mechanism} | {taken[0]:.2f} | {taken[1]:.2f} | {taken[2]:.2f} "
            f"| {taken.sum():.2f} | {peak:.2f} |"
        )


def counties(n: int) -> GroupDataset:
    """Households of sizes 1 to 16 in n counties of up to 52 states."""
    return census_like(groups=40_000 * n, counties=n, states=min(52, n // 25 + 1), largest=16)


def small_cases() -> list[Case]:
    """Sizes at which HiGHS solves the relaxed programs in seconds."""
    return [
        Case(taxi_like(largest=8, mean_size=3)),
        Case(census_like(groups=2_400_000, counties=60, states=6, largest=12)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parts = ("zcdp", "once", "sizes", "regions", "rows", "release")
    parser.add_argument("--part", choices=parts, action="append", help="default: all of them")
    parser.add_argument("--replicates", type=int, default=10)
    parser.add_argument("--limit", type=float, default=TIME_LIMIT, help="seconds a relaxed program")
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 16, 32, 64, 128, 1024, 13282])
    parser.add_argument("--counties", type=int, nargs="+", default=[25, 100, 400, 3144, 12576])
    options = parser.parse_args()
    compile_first = Case(census_like(groups=500, counties=4, states=2, largest=9))
    for name, _ in FAST:
        seconds(compile_first, name, 1.0)
    for part in options.part or parts:
        start = time.perf_counter()
        if part == "zcdp":
            lines = by_noise(small_cases(), options.replicates)
        elif part == "once":
            lines = measured_once(options.replicates)
        elif part == "rows":
            lines = exact_rows(options.replicates)
        elif part == "sizes":
            cases = ((n, Case(taxi_like(largest=n, mean_size=n / 7))) for n in options.sizes)
            lines = growth("N", cases, options.limit)
        elif part == "regions":
            cases = ((n, Case(counties(n))) for n in options.counties)
            lines = growth("counties", cases, options.limit)
        else:
            lines = release([Case(taxi_like()), Case(census_like())])
        print(f"\n{part}\n")
        for line in lines:
            print(line, flush=True)
        print(f"\n{time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()

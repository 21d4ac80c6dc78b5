"""The figures of [GroupSizes2021] for all mechanisms: error and time against epsilon, as charts.

    .venv/bin/python -m benchmarks.group_size_figures FOLDER [--data taxi ...] [--epsilons 0.1 ...]
        [--mechanisms chain_dp ...] [--replicates 10]

The data are those of `group_size_mechanisms.py`: taxi-like, 13,282 groups in 263 zones of six
boroughs, N = 13,282, and census-like, 117.6 million groups in 3,144 counties, N = 1,000, without
the relaxed programs, which do not end there; the former also with the 3,973 leaves that the paper
speaks of, the latter with group quarters; and small ones of both kinds with the relaxed programs.
Tables have the mean with the smallest and the largest replicate, and below it what the paper
published. Replicates go to rows.csv in the folder one by one, and the command continues with what
is missing there; without --replicates it draws what there is, as figures.html and SVG files. Noise
is the product's own, seeded; seconds are processor time of the estimation alone, on one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pandas as pd
from spineflow.tasks.group_sizes.estimation.estimate import TIME_LIMIT
from spineflow.tasks.group_sizes.ingest.generate import census_like
from spineflow.tasks.group_sizes.plan import PROVEN
from spineflow.tasks.noise.distributions import SeededRandom
from spineflow.tasks.pages.document import Table

from benchmarks.figure_rows import KEYS, Rows, chart, measure_and_draw, with_range, write_charts
from benchmarks.group_size_mechanisms import (
    FAST,
    MECHANISMS,
    Case,
    l1_error,
    seconds,
    shown,
    small_cases,
)
from benchmarks.published_figures import GROUP_SIZES
from benchmarks.taxis import taxi_like

LEAVES = 3973
"""Of the taxis' hierarchy in the paper, whose levels end with 263 zones."""
GROUP_QUARTERS_SHARE = 0.0016
"""The share of group quarters among all groups in the 2010 census; the paper's data have none."""
EPSILONS = ("0.1", "0.5", "1.0")
CASES = {
    "census": lambda: Case(census_like()),
    "taxi": lambda: Case(taxi_like()),
    "taxi with 3,973 zones": lambda: Case(taxi_like(zones=LEAVES)),
    "census with group quarters": lambda: Case(census_like(group_quarters=GROUP_QUARTERS_SHARE)),
    "small census": lambda: small_cases()[1],
    "small taxi": lambda: small_cases()[0],
}


def measured(case: Case, data: str, mechanism: str, calibration: str, of: tuple) -> pd.DataFrame:
    """Rows of one replicate, one a level; errors are L1 distances to the truth."""
    epsilon, replicate = of
    plan = case.plan(mechanism, calibration, Fraction(epsilon))
    # One noise for all mechanisms that measure the same vector alike.
    key = (case.name, plan.vector, calibration, epsilon, str(replicate))
    noisy = case.noisy(plan, SeededRandom(1, *key))
    start = time.process_time()
    levels = case.estimate(plan, noisy, TIME_LIMIT)
    taken = time.process_time() - start
    errors, wrong = l1_error(levels, case.truth), case.violations(levels)
    name = shown(mechanism, calibration)
    rows = [
        (data, name, epsilon, replicate, level, error, wrong, taken)
        for level, error in zip(case.hierarchy.names, errors, strict=True)
    ]
    return pd.DataFrame(rows, columns=[*KEYS, "error", "violated", "seconds"])


def measure(rows: Rows, options: argparse.Namespace) -> None:
    """Measure what is asked for and missing."""
    warm = Case(census_like(groups=500, counties=4, states=2, largest=9))
    for name, _ in FAST:
        seconds(warm, name, 1.0)
    for data in options.data:
        chosen = MECHANISMS if data.startswith("small") else FAST
        wanted = [
            (pair, epsilon, replicate)
            for replicate in range(options.replicates)
            for epsilon in options.epsilons
            for pair in chosen
            if options.mechanisms is None or pair[0] in options.mechanisms
            if not rows.has(data, shown(*pair), epsilon, replicate)
        ]
        if not wanted:
            continue
        case = CASES[data]()
        for pair, epsilon, replicate in wanted:
            found = measured(case, data, *pair, (epsilon, replicate))
            rows.add(found)
            print(found.iloc[-1].to_dict(), flush=True)


def draw(rows: Rows, folder: Path) -> None:
    """The page, the charts, and a table for every kind of data."""
    charts, tables = {}, {}
    for data, own in rows.means().groupby("data", sort=False):
        whole = own.groupby(["mechanism", "epsilon"], sort=False, as_index=False).agg(
            error=("error", "sum"), seconds=("seconds", "first")
        )
        whole["error"] /= 1000
        whole = whole.sort_values(
            "epsilon", key=lambda epsilon: epsilon.astype(float), kind="stable"
        )
        charts[str(data)] = {
            "Error": chart(
                whole, "epsilon", "error", "Error, all levels", "error of all levels, thousands"
            ),
            "Seconds": chart(
                whole, "epsilon", "seconds", "Time of an estimation", "seconds of an estimation"
            ),
        }
        levels = own["level"].unique()
        headers = ("epsilon", "mechanism", *levels, "violated", "seconds", "replicates")
        tables[str(data)] = Table(headers, tuple(cells_of(str(data), own)))
    about = "Means over replicates; errors are L1 distances to the truth, in thousands."
    write_charts(folder, "Group sizes: error and time against epsilon", about, charts, tables)


def cells_of(data: str, means: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """Rows of a table by epsilon, each followed by what the paper published of its mechanism."""
    order = {name: place for place, name in enumerate(shown(*pair) for pair in MECHANISMS)}
    published = GROUP_SIZES.get(data, {})
    means = means.sort_values(
        ["epsilon", "mechanism"],
        key=lambda values: (
            values.map(order) if values.name == "mechanism" else values.astype(float)
        ),
        kind="stable",
    )
    for (epsilon, name), own in means.groupby(["epsilon", "mechanism"], sort=False):
        first = own.iloc[0]
        errors = (
            with_range(row.error / 1000, row.error_min / 1000, row.error_max / 1000)
            for row in own.itertuples()
        )
        yield (
            epsilon,
            f"`{name}`",
            *errors,
            f"{first.violated:.0f}",
            f"{first.seconds:.3g}",
            int(first.replicates),
        )
        # The paper's chain is the one with the paper's calibration.
        paper = "" if name == shown("chain_dp", PROVEN) else str(name).removesuffix(" (published)")
        if (str(epsilon), paper) in published:
            yield (epsilon, "*the paper*", *published[str(epsilon), paper], "", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--epsilons", nargs="+", default=list(EPSILONS))
    parser.add_argument("--mechanisms", nargs="+", default=None)
    measure_and_draw(parser, measure, draw)


if __name__ == "__main__":
    main()

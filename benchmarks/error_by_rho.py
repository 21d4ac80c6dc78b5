"""Mean absolute error as rho grows from production to a thousand times that, and without noise.

Run `.venv/bin/python -m benchmarks.error_by_rho [--replicates N] [--persons N] [--estimator NAME]`
from the repository's root. More budget must never cost accuracy: with a rounder that looks at
cells alone there is an intermediate range of rho in which it does. The county is generated; the
noise is that of the product under fixed seeds.

With `--ablate` one table of what the parts of the estimation do: production's passes of the least
squares and of the rounder, and the same with one of them left out, at production's rho and at
multiples of it (`--times 1 30`), all on the same noise.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd

from benchmarks.public_persons import generated, settings_of
from benchmarks.query_errors import query_errors

Choice = tuple[int | None, str]
"""A multiple of production's rho, None being no noise; and an ablation."""

TIMES = (1, 3, 10, 30, 100, 300, 1000)
PRODUCTION = Fraction(293764, 114921)
QUERIES = ("total", "hispanic * cenrace", "detailed")

TOTAL_FIRST = [["total"], ["all but total"]]
CHAIN = ["hhgq", "hhgq * hispanic", "hhgq * hispanic * cenrace", "detailed"]
ABLATIONS: Mapping[str, tuple[list[list[str]], list[list[str]]] | None] = {
    "production": None,
    "least squares in one pass": ([["all"]], [["total"], CHAIN]),
    "rounder in one pass": (TOTAL_FIRST, [["total", *CHAIN]]),
    "both in one pass": ([["all"]], [["total", *CHAIN]]),
    "rounder of total, then cells": (TOTAL_FIRST, [["total"], ["detailed"]]),
    "rounder of cells alone": (TOTAL_FIRST, [["detailed"]]),
}
"""Passes of the least squares and of the rounder from the states to block groups; the root and the
blocks have the rounder's queries too, in one pass as in production."""


def passes_of(ablation: str) -> dict[str, Any]:
    """The settings of an ablation's passes; nothing for those of production."""
    passes = ABLATIONS[ablation]
    if passes is None:
        return {}
    least_squares, rounder = passes
    once = [["all"]], [[query for queries in rounder for query in queries]]
    sections = {"US": once, "Block": once, "other": (least_squares, rounder)}
    return {geolevel: {"least_squares": ls, "rounder": r} for geolevel, (ls, r) in sections.items()}


def errors_of(asked: argparse.Namespace, choices: Mapping[str, Choice]) -> pd.DataFrame:
    """Errors of every replicate of choices."""
    from spineflow.tasks.topdown.checks.replicate import study
    from spineflow.tasks.topdown.product import TOPDOWN

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables = generated(asked.persons, folder)
        settings = {}
        for choice, (times, ablation) in choices.items():
            own = settings_of(tables, universes=["persons"], estimator=asked.estimator)
            own["privacy"]["infinite"] = times is None
            own["budget"] = {"persons": {"rho": str(PRODUCTION * (times or 1))}}
            if passes := passes_of(ablation):
                own["workload"] = {"persons": {"passes": passes}}
            settings[choice] = TOPDOWN.load(own)
        return pd.concat(study(settings, range(asked.replicates), folder / "study", query_errors))


def table(
    frame: pd.DataFrame, query: str, choices: Sequence[str], label: str
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Print errors of a query by geolevel, and yield those of every choice by seed."""
    errors = frame[frame["query"] == query]
    geolevels = list(dict.fromkeys(errors["geolevel"]))
    print(f"\n{query}\n\n| {label} | {' | '.join(geolevels)} |\n|---|{'---|' * len(geolevels)}")
    for choice in choices:
        of_choice = errors[errors["choice"] == choice]
        wide = of_choice.pivot(index="seed", columns="geolevel", values="mean_absolute_error")
        wide = wide[geolevels]
        deviation = wide.std(ddof=1) / np.sqrt(len(wide))
        shown = (f"{m:.4f} ± {s:.4f}" for m, s in zip(wide.mean(), deviation, strict=True))
        print(f"| {choice} | {' | '.join(shown)} |")
        yield choice, wide


def by_rho(asked: argparse.Namespace) -> None:
    """Tables by multiples of production's rho, and how often an error rose with it."""
    choices: dict[str, Choice] = {
        f"{times} times" if times else "no noise": (times, "production") for times in (*TIMES, None)
    }
    frame = errors_of(asked, choices)
    rises = 0
    for query in QUERIES:
        before = None
        for _, wide in table(frame, query, list(choices), "rho"):
            if before is not None:
                step = wide - before
                rises += int((step.mean() > 2 * step.std(ddof=1) / np.sqrt(len(wide))).sum())
            before = wide
    print(f"\nsteps on which an error rose by more than two standard errors: {rises}")


def by_ablation(asked: argparse.Namespace) -> None:
    """Tables by what is left out, at every multiple of production's rho."""
    choices: dict[str, Choice] = {
        f"{times} times, {ablation}": (times, ablation)
        for times in asked.times
        for ablation in ABLATIONS
    }
    frame = errors_of(asked, choices)
    for query in QUERIES:
        list(table(frame, query, list(choices), "rho and passes"))


def main() -> None:
    """Print the tables; see the module's docstring."""
    from spineflow.tasks.topdown.workload.sections import ESTIMATORS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--persons", type=int, default=20_000)
    parser.add_argument("--estimator", choices=ESTIMATORS, default="topdown")
    parser.add_argument("--ablate", action="store_true", help="leave out parts of the estimation")
    parser.add_argument("--times", type=int, nargs="+", default=[1, 30], help="of rho, ablated")
    asked = parser.parse_args()

    started = time.perf_counter()
    (by_ablation if asked.ablate else by_rho)(asked)
    print(f"{asked.replicates} replicates in {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()

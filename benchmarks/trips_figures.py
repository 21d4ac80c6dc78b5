"""Figures 3 to 6 of [InfTDA2024] for its six synthetic tables, as charts of all mechanisms.

    .venv/bin/python -m benchmarks.trips_figures FOLDER [--data binary-sparse country ...]
        [--epsilons 0.1 1 10] [--mechanisms inftda ...] [--replicates 10]

For every table: the largest absolute error and the false discoveries by level at epsilon 1, the
largest error of the cells against epsilon, and the processor time of a replicate against epsilon;
means over the replicates, noise from the system's randomness, delta 1e-8. Tables also have the
smallest and the largest replicate, the bound of Theorem 4 or Proposition 1 at probability 0.95, and
the false discoveries that the authors published. `country` is of the size of Italy, without
`gaussian_leaves` (figure 3). The tables are generated; the authors' are not needed. Replicates go
to rows.csv in the folder one by one, and the command continues with what is missing there; without
--replicates it draws what there is, as figures.html and SVG files.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from spineflow.tasks.noise.distributions import SystemRandom
from spineflow.tasks.pages.document import Table
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.trips.ingest.generate import CountrySize, generate_country
from spineflow.tasks.trips.plan import make_plan
from spineflow.tasks.trips.release import BOUND_OF, error_bounds
from spineflow.tasks.trips.settings import TripsSettings

from benchmarks.figure_rows import (
    KEYS,
    Rows,
    chart,
    measure_and_draw,
    number,
    with_range,
    write_charts,
)
from benchmarks.generated_trees import DENSITIES, PARTITIONS, generate_tree
from benchmarks.published_figures import FALSE_DISCOVERIES
from benchmarks.trips_replicates import replicate_errors, true_tree

MECHANISMS = (
    "inftda",
    "tda_l2",
    "tda_chebyshev",
    "inftda_full_information",
    "gaussian_leaves",
    "stability_histogram",
)
COUNTRY = "country"
DATA = (*(f"{partition}-{density}" for partition in PARTITIONS for density in DENSITIES), COUNTRY)
LARGEST, FALSE, SECONDS = "max_absolute_error", "false_discovery_percent", "seconds"
BOUND = "error_bound"
MIDDLE = "1"
"""The epsilon of the charts by level."""


def measure(rows: Rows, options: argparse.Namespace) -> None:
    """Measure what is asked for and missing; kernels are compiled before on a small country."""
    if options.replicates:
        with tempfile.TemporaryDirectory() as folder:
            file = generate_country(Path(folder), CountrySize(2, 4, 90, 800, 50_000))
            list(replicates_of(file, [(mechanism, MIDDLE) for mechanism in options.mechanisms]))
    for data in options.data:
        wanted = [
            (name, epsilon, replicate)
            for replicate in range(options.replicates)
            for epsilon in options.epsilons
            for name in options.mechanisms
            if not (data == COUNTRY and name == "gaussian_leaves")
            if not rows.has(data, name, epsilon, replicate)
        ]
        if not wanted:
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / data
            is_country = data == COUNTRY
            file = (
                generate_country(folder) if is_country else generate_tree(folder, *data.split("-"))
            )
            tried = replicates_of(file, [one[:2] for one in wanted])
            for (mechanism, epsilon, replicate), found in zip(wanted, tried, strict=True):
                of = {"data": data, "mechanism": mechanism, "epsilon": epsilon}
                found = found.assign(**of, replicate=replicate)
                rows.add(found[[*KEYS, LARGEST, BOUND, FALSE, SECONDS]])
                print(found.iloc[-1].to_dict(), flush=True)


def replicates_of(file: Path, wanted: list[tuple[str, str]]) -> Iterator[pd.DataFrame]:
    """One replicate each of mechanisms at some epsilon, on the table of a settings file."""
    truth = true_tree(load_settings(TripsSettings, file, presets=file.parent))
    for name, epsilon in wanted:
        overrides = (f"mechanism.name={name}", f'privacy.epsilon="{epsilon}"')
        settings = load_settings(TripsSettings, file, presets=file.parent, overrides=overrides)
        plan = make_plan(settings, truth.tree)
        start = time.process_time()
        errors = replicate_errors(plan, truth, settings.mechanism, SystemRandom())
        taken = time.process_time() - start
        found = pd.DataFrame({LARGEST: errors[LARGEST], FALSE: errors[FALSE], SECONDS: taken})
        found[BOUND] = error_bounds(plan, truth.leaves.total) or float("nan")
        yield found.assign(level=range(len(found)))


def draw(rows: Rows, folder: Path) -> None:
    """The page, the charts, and a table for every kind of data."""
    charts, tables = {}, {}
    for data, every in rows.means().groupby("data", sort=False):
        own = every[every["level"] > 0]
        at_middle = own[own["epsilon"] == MIDDLE].astype({"level": float})
        last = own[own["level"] == own["level"].max()].sort_values(
            "epsilon", key=lambda epsilon: epsilon.astype(float), kind="stable"
        )
        charts[str(data)] = {
            "Error by level": chart(
                at_middle,
                "level",
                LARGEST,
                f"Largest error by level, epsilon {MIDDLE}",
                "largest absolute error",
            ),
            "False by level": chart(
                at_middle,
                "level",
                FALSE,
                f"False discoveries by level, epsilon {MIDDLE}",
                "false discoveries, %",
                log_y=False,
            ),
            "Error of cells": chart(
                last, "epsilon", LARGEST, "Largest error of the cells", "largest absolute error"
            ),
            "Seconds": chart(
                last, "epsilon", SECONDS, "Time of a replicate", "processor seconds of a replicate"
            ),
        }
        levels = (str(level) for level in sorted(own["level"].unique()))
        figures = ("false, %", "published", "seconds", "replicates")
        headers = ("epsilon", "mechanism", *levels, *figures)
        tables[str(data)] = Table(headers, tuple(cells_of(str(data), own)))
    about = "Means over replicates of generated tables, delta 1e-8."
    write_charts(folder, "Trips: errors, false discoveries and time", about, charts, tables)


def cells_of(data: str, means: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """Rows of a table by epsilon, each followed by the bound that holds for its mechanism."""
    published = FALSE_DISCOVERIES.get(data, {})
    order = {name: place for place, name in enumerate(MECHANISMS)}
    means = means.sort_values(
        ["epsilon", "mechanism", "level"],
        key=lambda own: own.map(order) if own.name == "mechanism" else own.astype(float),
    )
    for (epsilon, name), own in means.groupby(["epsilon", "mechanism"], sort=False):
        last = own.iloc[-1]
        known = published.get((str(name), str(epsilon)))
        yield (
            epsilon,
            f"`{name}`",
            *(
                with_range(*of)
                for of in own[[LARGEST, f"{LARGEST}_min", f"{LARGEST}_max"]].to_numpy()
            ),
            f"{last[FALSE]:.1f}",
            "" if known is None else f"{known:.1f}",
            f"{last[SECONDS]:.3g}",
            int(last.replicates),
        )
        if str(name) in BOUND_OF:
            bounds = (number(bound) for bound in own[BOUND])
            yield (epsilon, f"*{BOUND_OF[str(name)]}*", *bounds, "", "", "", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--epsilons", nargs="+", default=["0.1", "1", "10"])
    parser.add_argument("--mechanisms", nargs="+", choices=MECHANISMS, default=list(MECHANISMS))
    measure_and_draw(parser, measure, draw)


if __name__ == "__main__":
    main()

"""Figures 3 to 6 of [InfTDA2024] for its six synthetic tables, as one page of charts.

    python tests/benchmarks/trips_figures.py PAGE.html [--replicates 10] [--sets binary-sparse ...]
        [--epsilons 0.1 1 10] [--mechanisms inftda ...] [--country]

For every table: the largest absolute error and the false discoveries by level at the middle
epsilon, the largest error of the cells against epsilon, and the processor time of a replicate
against epsilon; means over the replicates, noise from the system's randomness, delta 1e-8. The same
figures are printed as tables. --country adds the generated country, of the size of Italy, without
`gaussian_leaves` (figure 3). The tables are generated; the authors' are not needed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from spineflow.tasks.noise.randomness import SystemRandom
from spineflow.tasks.pages.document import Document, Figure, Section, Table, to_html
from spineflow.tasks.pages.figures import line_chart
from spineflow.tasks.runs.settings_files import load_settings
from spineflow.tasks.trips.checks.replicates import replicate_errors
from spineflow.tasks.trips.ingest.generate import generate_country
from spineflow.tasks.trips.ingest.generate_trees import DENSITIES, PARTITIONS, generate_tree
from spineflow.tasks.trips.ingest.ingest import check_input
from spineflow.tasks.trips.settings import TripsSettings
from spineflow.tasks.trips.workload.plan import make_plan
from spineflow.tasks.trips.workload.truth import TrueTree

MECHANISMS = (
    "inftda",
    "tda_l2",
    "tda_chebyshev",
    "inftda_full_information",
    "gaussian_leaves",
    "stability_histogram",
)
SETS = tuple(f"{partition}-{density}" for partition in PARTITIONS for density in DENSITIES)
LARGEST, FALSE, SECONDS = "max_absolute_error", "false_discovery_percent", "seconds"

Found = dict[tuple[str, str], dict[str, np.ndarray]]
"""Means by mechanism and epsilon: errors and false discoveries by level, seconds of a replicate."""


def measured(file: Path, mechanisms: list[str], epsilons: list[str], replicates: int) -> Found:
    """The means of a table's mechanisms at every epsilon."""
    base = load_settings(TripsSettings, file, presets=file.parent)
    check = check_input(base)
    truth = TrueTree(check.shape.tree, check.leaves)
    found: Found = {}
    for name in mechanisms:
        for epsilon in epsilons:
            overrides = (f"mechanism.name={name}", f'privacy.epsilon="{epsilon}"')
            settings = load_settings(TripsSettings, file, presets=file.parent, overrides=overrides)
            plan = make_plan(settings, truth.tree)
            start = time.process_time()
            errors = [
                replicate_errors(plan, truth, settings.mechanism, SystemRandom())
                for _ in range(replicates)
            ]
            seconds = (time.process_time() - start) / replicates
            means = {key: np.mean([one[key] for one in errors], axis=0) for key in (LARGEST, FALSE)}
            found[name, epsilon] = means | {SECONDS: np.array(seconds)}
            shown = " ".join(f"{error:8.1f}" for error in means[LARGEST][1:])
            print(f"{name:24} {epsilon:>4} {shown}  {means[FALSE][-1]:5.1f} %  {seconds:.3f} s")
    return found


def charts(found: Found, mechanisms: list[str], epsilons: list[str]) -> Iterator[Figure | Table]:
    """The charts of one table, and the numbers below them."""
    middle = epsilons[len(epsilons) // 2]
    depth = next(iter(found.values()))[LARGEST].size - 1
    levels = list(range(1, depth + 1))

    def by_level(key: str) -> dict[str, tuple[list[int], list[float]]]:
        return {name: (levels, found[name, middle][key][1:].tolist()) for name in mechanisms}

    def by_epsilon(key: str) -> dict[str, tuple[list[float], list[float]]]:
        points = [float(epsilon) for epsilon in epsilons]
        return {
            name: (points, [max(float(np.ravel(found[name, e][key])[-1]), 1e-3) for e in epsilons])
            for name in mechanisms
        }

    wanted = (
        (by_level(LARGEST), "Largest error by level", "level", "absolute error", False, True),
        (by_level(FALSE), "False discoveries by level", "level", "%", False, False),
        (
            by_epsilon(LARGEST),
            "Largest error of the cells",
            "epsilon",
            "absolute error",
            True,
            True,
        ),
        (by_epsilon(SECONDS), "Time of a replicate", "epsilon", "processor seconds", True, True),
    )
    for series, title, x_label, y_label, log_x, log_y in wanted:
        if log_y:
            series = {name: (xs, [max(y, 1e-3) for y in ys]) for name, (xs, ys) in series.items()}
        chart = line_chart(
            series, title=title, x_label=x_label, y_label=y_label, log_x=log_x, log_y=log_y
        )
        at = "" if x_label == "epsilon" else f", epsilon {middle}"
        yield Figure(chart, f"{title}{at}.")
    headers = ("mechanism", "epsilon", *(f"level {level}" for level in levels), "false, %", "s")
    rows = tuple(
        (
            name,
            epsilon,
            *(round(float(error), 1) for error in means[LARGEST][1:]),
            round(float(means[FALSE][-1]), 1),
            round(float(means[SECONDS]), 3),
        )
        for (name, epsilon), means in found.items()
    )
    yield Table(headers, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("--replicates", type=int, default=10)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--epsilons", nargs="+", default=["0.1", "1", "10"])
    parser.add_argument("--mechanisms", nargs="+", choices=MECHANISMS, default=list(MECHANISMS))
    parser.add_argument("--country", action="store_true")
    options = parser.parse_args()
    sections = []
    with tempfile.TemporaryDirectory() as name:
        for data in [*options.sets, *(["country"] if options.country else [])]:
            folder = Path(name) / data
            mechanisms = list(options.mechanisms)
            if data == "country":
                file = generate_country(folder)
                mechanisms = [one for one in mechanisms if one != "gaussian_leaves"]
            else:
                file = generate_tree(folder, *data.split("-"))
            print(f"\n{data}: largest error by level, false discoveries of the cells, time")
            found = measured(file, mechanisms, options.epsilons, options.replicates)
            blocks = tuple(charts(found, mechanisms, options.epsilons))
            sections.append(Section(data.replace("-", ", "), blocks))
    document = Document(
        "Trips: errors, false discoveries and time",
        (
            f"Means over {options.replicates} replicates of generated tables, delta 1e-8, by "
            "python tests/benchmarks/trips_figures.py.",
        ),
        tuple(sections),
    )
    options.page.write_text(to_html(document), encoding="utf-8")
    print(f"\n{options.page}")


if __name__ == "__main__":
    main()

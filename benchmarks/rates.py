"""Rates of the steps of finished runs, for the table of `spineflow.tasks.runs.costs`.

    .venv/bin/python -m benchmarks.rates RUN_DIR ...

fits processor seconds of a task, and of a million units of its size, to the record of work of all
these runs together, and prints them as Python. Runs on processes tell them best.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from scipy.optimize import nnls
from spineflow.tasks.runs.costs import RATES, Rate
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.work import Task, read, tasks_of


def fitted(tasks: Iterable[Task]) -> dict[str, Rate]:
    """Rates of steps that have finished tasks: processor seconds, by non-negative least squares.

    Relative errors are squared, so that small tasks tell what every task costs.
    """
    of_step: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for task in tasks:
        if not task.reused:
            of_step[task.step].append((task.size, task.cpu))
    rates = {}
    for step, points in of_step.items():
        size, seconds = np.array(points).T
        weight = 1 / np.maximum(seconds, 0.1)
        matrix = np.column_stack([np.ones(len(size)), size / 1e6]) * weight[:, None]
        fixed, slope = nnls(matrix, seconds * weight)[0]
        again = RATES[step].again if step in RATES else False
        rates[step] = Rate(float(f"{fixed:.2g}"), float(f"{slope:.3g}"), again)
    return rates


def main() -> None:
    """Print rates; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIR")
    options = parser.parse_args()
    tasks = [
        task for folder in options.runs for task in tasks_of(read(RunDirectory(folder))).values()
    ]
    for step, rate in fitted(tasks).items():
        again = ", again=True" if rate.again else ""
        print(f'    "{step}": Rate({rate.seconds}, {rate.per_million}{again}),')


if __name__ == "__main__":
    main()

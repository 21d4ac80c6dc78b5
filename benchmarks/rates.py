"""Rates of the steps of finished runs, for the table of `spineflow.tasks.runs.costs`.

    .venv/bin/python -m benchmarks.rates RUN_DIR ...

fits processor seconds of a task, and of a million units of its size, to the record of work of all
these runs together, and prints them as Python. Runs on processes tell them best.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from spineflow.tasks.runs.costs import fitted
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.work import read, tasks_of


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

r"""Released trips cells that are expected to be false, beside those that are.

    .venv/bin/python -m benchmarks.trips_false_cells [--data sparse complete] \
        [--mechanisms inftda ...]

Runs the authors' tables of ../shared/data/trips at epsilon 0.1, 1 and 10 and delta 1e-8, noise
seeded, and prints what a run says at its end and how many of its cells have no trips in truth.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from spineflow.flows.replicates import run_under_seed
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.trips.plan import read_plan
from spineflow.tasks.trips.product import TRIPS as PRODUCT
from spineflow.tasks.trips.release import false_cells, level_errors, released_level
from spineflow.tasks.trips.tree import read_truth

from benchmarks.public_persons import TRIPS

SETTINGS = """\
[input]
trips = "{trips}/random_{data}.parquet"
origin = "LEVEL4_ORIG"
destination = "LEVEL4_DEST"
count = "COUNT"
areas = "{trips}/random_{data}_areas.csv"
confidential = false
[privacy]
dataset = "{data}"
epsilon = "{epsilon}"
delta = "1e-8"
[mechanism]
name = "{mechanism}"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", nargs="+", default=["sparse", "complete"])
    parser.add_argument("--mechanisms", nargs="+", default=["inftda"])
    options = parser.parse_args()
    for data in options.data:
        for mechanism in options.mechanisms:
            for epsilon in ("0.1", "1", "10"):
                with tempfile.TemporaryDirectory() as name:
                    folder = Path(name)
                    file = folder / "settings.toml"
                    file.write_text(
                        SETTINGS.format(
                            trips=TRIPS, data=data, epsilon=epsilon, mechanism=mechanism
                        )
                    )
                    settings = PRODUCT.load(file)
                    run_under_seed(PRODUCT, settings, 1, folder / "run")
                    run = RunDirectory(folder / "run")
                    plan, truth = read_plan(run), read_truth(run)
                    found = false_cells(run, plan)
                    cells = released_level(run.release, plan.tree, plan.tree.depth)
                    errors = level_errors(truth.levels[-1], cells)
                    true = errors["false_discovery_percent"] / 100 * found.released
                    print(
                        f"{data}, {mechanism}, epsilon {epsilon}: {found.sentence}; {true:.0f} are"
                    )


if __name__ == "__main__":
    main()

"""Mean absolute error as rho grows from production to a thousand times that, and without noise.

Run `.venv/bin/python -m benchmarks.error_by_rho [--replicates N] [--persons N] [--estimator NAME]`
from the repository's root. More budget must never cost accuracy: with a rounder that looks at
cells alone there is an intermediate range of rho in which it does. The county is generated; the
noise is that of the product under fixed seeds.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from fractions import Fraction
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

REPOSITORY = Path(__file__).resolve().parents[1]
TIMES = (1, 3, 10, 30, 100, 300, 1000)
PRODUCTION = Fraction(293764, 114921)
QUERIES = ("total", "hispanic * cenrace", "detailed")
SETTINGS = """
preset = "pl94_2020_us"
[input]
persons = "{folder}/persons.parquet"
units = "{folder}/units.parquet"
geography = "{folder}/grfc.txt"
confidential = false
[privacy]
dataset = "benchmark"
infinite = {infinite}
[run]
universes = ["persons"]
estimator = "{estimator}"
[budget.persons]
rho = "{rho}"
"""


def main() -> None:
    """Print the tables; see the module's docstring."""
    from spineflow.tasks.runs.settings_files import load_settings
    from spineflow.tasks.topdown.checks.replicate import study
    from spineflow.tasks.topdown.ingest.generate import generate_county
    from spineflow.tasks.topdown.settings import TopdownSettings
    from spineflow.tasks.topdown.workload.sections import ESTIMATORS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--persons", type=int, default=20_000)
    parser.add_argument("--estimator", choices=ESTIMATORS, default="topdown")
    asked = parser.parse_args()

    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate_county(folder / "county", persons=asked.persons, seed=1)
        choices = {}
        for times in (*TIMES, None):
            path = folder / f"{times}.toml"
            path.write_text(
                SETTINGS.format(
                    folder=folder / "county",
                    estimator=asked.estimator,
                    rho=PRODUCTION * (times or 1),
                    infinite="false" if times else "true",
                )
            )
            presets = REPOSITORY / "flows" / "settings"
            choice = f"{times} times" if times else "no noise"
            choices[choice] = load_settings(TopdownSettings, path, presets=presets)
        frame = pd.concat(study(choices, range(asked.replicates), folder / "study"))

    rises = 0
    for query in QUERIES:
        errors = frame[frame["query"] == query]
        geolevels = list(dict.fromkeys(errors["geolevel"]))
        print(f"\n{query}\n\n| rho | {' | '.join(geolevels)} |\n|---|{'---|' * len(geolevels)}")
        before = None
        for choice in choices:
            of_choice = errors[errors["choice"] == choice]
            wide = of_choice.pivot(index="seed", columns="geolevel", values="mean_absolute_error")
            wide = wide[geolevels]
            deviation = wide.std(ddof=1) / np.sqrt(len(wide))
            shown = (f"{m:.4f} ± {s:.4f}" for m, s in zip(wide.mean(), deviation, strict=True))
            print(f"| {choice} | {' | '.join(shown)} |")
            if before is not None:
                step = wide - before
                rises += int((step.mean() > 2 * step.std(ddof=1) / np.sqrt(len(wide))).sum())
            before = wide
    print(f"\nsteps on which an error rose by more than two standard errors: {rises}")
    print(f"{asked.replicates} replicates in {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()

"""Mean absolute error of the three estimators on a county or a state, with standard errors.

Run `.venv/bin/python -m benchmarks.estimator_accuracy [--replicates N] [--preset NAME]
[--generated PERSONS | --state]` from the repository's root. The county is that of
../shared/data/ri2010_bristol_fixed_width, or a generated one, or else it is the whole state
of ../shared/data/ri2010; rho is the same for all estimators.
`topdown` and `full_information` are given the same noisy measurements in every replicate;
`block_by_block` measures the blocks alone. The noise is that of the product under fixed seeds, so
that the table comes out alike every time. Writes the tables of benchmarks/results/estimators.md.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd

from benchmarks.public_persons import add_choice, chosen, settings_of

ESTIMATORS = ("block_by_block", "topdown", "full_information")
QUERIES = (
    "total",
    "hhgq",
    "votingage",
    "hispanic",
    "cenrace",
    "hispanic * cenrace",
    "votingage * hispanic * cenrace",
    "detailed",
)


def main() -> None:
    """Print the tables; see the module's docstring."""
    from spineflow.tasks.topdown.checks.replicate import study
    from spineflow.tasks.topdown.product import TOPDOWN

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=30)
    parser.add_argument("--preset", default="pl94_2020_us")
    add_choice(parser)
    parser.add_argument("--estimators", nargs="+", choices=ESTIMATORS, default=ESTIMATORS)
    asked = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables = chosen(asked, folder)
        choices = {
            name: TOPDOWN.load(
                settings_of(tables, preset=asked.preset, universes=["persons"], estimator=name)
            )
            for name in asked.estimators
        }
        started = time.perf_counter()
        frame = pd.concat(study(choices, range(asked.replicates), folder / "study"))
        seconds = time.perf_counter() - started

    frame = frame[frame["query"].isin(QUERIES)]
    for query in QUERIES:
        print(f"\n{query}\n")
        print(_table(frame[frame["query"] == query]))
    print(f"\n{asked.replicates} replicates in {seconds:.0f} s")


def _table(errors: pd.DataFrame) -> str:
    """Markdown: one row a geolevel, mean and standard error of every choice, and the paired
    difference of the last two."""
    choices = list(dict.fromkeys(errors["choice"]))
    lines = [f"| geolevel | geounits | {' | '.join(choices)} | difference |"]
    lines.append("|---|---|" + "---|" * (len(choices) + 1))
    for geolevel, rows in errors.groupby("geolevel", sort=False):
        wide = rows.pivot(index="seed", columns="choice", values="mean_absolute_error")[choices]
        shown = [_mean(wide[choice]) for choice in choices]
        if len(choices) > 1:
            shown.append(_mean(wide[choices[-1]] - wide[choices[-2]]))
        lines.append(f"| {geolevel} | {rows['geounits'].iloc[0]} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _mean(values: pd.Series) -> str:
    """Mean and standard error."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    digits = 4 if abs(values.mean()) < 1 else 3 if abs(values.mean()) < 100 else 1
    return f"{values.mean():.{digits}f} ± {error:.{digits}f}"


if __name__ == "__main__":
    main()

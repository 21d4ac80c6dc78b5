"""Forecast errors of released totals against those of actual releases.

Run `.venv/bin/python -m benchmarks.forecast_of_totals [--replicates N] [--generated PERSONS |
--state] [--estimators E ...]` from the repository's root. The county is that of
../shared/data/ri2010_bristol_fixed_width; --state takes ../shared/data/ri2010. All figures are
roots of mean squared errors of total population over the areas of a level, N releases each with
noise of their own:

analytic   of best linear unbiased estimates, known before anything is measured;
public     simulated on the input, as a forecast does where input may be disclosed;
release    simulated on the counts of one release, as `spineflow report --expected` does;
realised   errors of further releases of the input, with its standard error.

Writes the table that benchmarks/results/designed_budget.md shows.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pandas as pd

from benchmarks.public_persons import add_choice, chosen, root_of_mean, settings_of

LEVELS = ("county", "tract", "block group", "county subdivision", "place")


def main() -> None:
    """Print the table; see the module's docstring."""
    from spineflow.tasks.topdown.checks.replicate import (
        estimate,
        expected_errors,
        lay_out,
        measure,
        read_dataset,
        study,
        with_seed,
    )
    from spineflow.tasks.topdown.product import TOPDOWN

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=20)
    add_choice(parser)
    parser.add_argument("--estimators", nargs="+", default=["topdown", "full_information"])
    asked = parser.parse_args()
    n = asked.replicates
    print("| estimator | level | areas | analytic | public | release | realised | ratios |")
    print("|---|---|---|---|---|---|---|---|")
    started = time.perf_counter()
    for estimator in asked.estimators:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            settings = TOPDOWN.load(
                settings_of(chosen(asked, folder), universes=["persons"], estimator=estimator)
            )
            forecast, realised = (
                pd.concat(study({"": settings}, seeds, folder / what, totals))
                for what, seeds in (
                    ("public", range(1, n + 1)),
                    ("realised", range(n + 1, 2 * n + 1)),
                )
            )
            # A release of its own noise, whose counts the simulation takes for the truth.
            seeded = with_seed(settings, 3 * n)
            layout = lay_out(read_dataset(settings, folder / "data"), settings, folder / "layout")
            run = estimate(
                measure(layout, seeded, folder / "measured"), seeded, folder / "released"
            )
            of_release = expected_errors(run, seeded, n, folder / "expected")
        of_release = of_release[
            (of_release["quantity"] == "total population") & (of_release["size_class"] == "all")
        ].set_index("level")["root_mean_square_error"]
        for level in LEVELS:
            own = realised[realised["level"] == level]
            if own.empty or not own["root_mean_square_error"].any():
                continue
            true, error = root_of_mean(own["root_mean_square_error"] ** 2)
            of_level = forecast[forecast["level"] == level]
            public, _ = root_of_mean(of_level["root_mean_square_error"] ** 2)
            analytic, _ = root_of_mean(of_level["predicted_standard_deviation"] ** 2)
            ratios = ", ".join(f"{x / true:.2f}" for x in (analytic, public, of_release[level]))
            print(
                f"| {estimator} | {level} | {own['entities'].iloc[0]} | {analytic:.3g} "
                f"| {public:.3g} | {of_release[level]:.3g} | {true:.3g} ± {error:.2g} | {ratios} |",
                flush=True,
            )
    print(f"\n{n} replicates of each in {time.perf_counter() - started:.0f} s")


def totals(run, settings) -> pd.DataFrame:
    """Errors of total population by level, over all areas."""
    from spineflow.tasks.topdown.checks.accuracy.compared import compute_figures

    errors = compute_figures(run, settings).errors
    chosen = (errors["quantity"] == "total population") & (errors["answer"] == "all")
    return errors[chosen & (errors["size_class"] == "all")]


if __name__ == "__main__":
    main()

"""Errors of every mechanism for trips, beside those that InfTDA's authors published.

Run `.venv/bin/python -m benchmarks.trips_accuracy [--data complete|sparse|country] [--replicates N]
[--epsilons E ...] [--mechanisms NAME ...]` from the repository's root. Prints, for each epsilon at
delta 1e-8, the mean over replicates of the largest absolute error of every level, and of the
false discovery rate and the false negative rate at the last one. `rho/2` is a mechanism with half
the budget, which is what the authors' program spends: it divides rho by twice the number of levels.
Below a mechanism stands the bound of Theorem 4 or Proposition 1 at probability 0.95, if one holds.
`inftda, tight` takes the tight conversion; with --root the areas have a root row.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np

from benchmarks.public_persons import TRIPS

VARIANTS: dict[str, dict[str, str]] = {
    "inftda, rho/2": {"name": "inftda"},
    "inftda": {"name": "inftda"},
    "inftda, tight": {"name": "inftda"},
    "inftda, optimised": {"name": "inftda", "shares": "optimised"},
    "tda_l2": {"name": "tda_l2"},
    "tda_l2, rho/2": {"name": "tda_l2"},
    "tda_chebyshev": {"name": "tda_chebyshev"},
    "tda_chebyshev, rho/2": {"name": "tda_chebyshev"},
    "full": {"name": "inftda_full_information"},
    "full, optimised": {"name": "inftda_full_information", "shares": "optimised"},
    "full, selected": {"name": "inftda_full_information", "most_nodes": "1"},
    "gaussian_leaves": {"name": "gaussian_leaves"},
    "stability_histogram": {"name": "stability_histogram"},
}


def rooted_areas(data: str, folder: Path) -> Path:
    """The areas with a row for the whole country above them."""
    rows = (TRIPS / f"random_{data}_areas.csv").read_text().splitlines()
    rows = [f"{row}nation" if row.endswith(",") else row for row in rows]
    path = folder / f"{data}_areas.csv"
    path.write_text("\n".join([rows[0], "nation,nation,", *rows[1:]]) + "\n")
    return path


def input_of(data: str, folder: Path, *, has_root: bool = False) -> dict[str, object]:
    """The `[input]` section of a data set; the country is generated in `folder`."""
    if data == "country":
        from spineflow.tasks.runs.settings_files import load_settings
        from spineflow.tasks.trips.ingest.generate import generate_country
        from spineflow.tasks.trips.settings import TripsSettings

        settings = load_settings(TripsSettings, generate_country(folder), presets=folder)
        return settings.input.model_dump()
    return {
        "trips": f"{TRIPS}/random_{data}.parquet",
        "origin": "LEVEL4_ORIG",
        "destination": "LEVEL4_DEST",
        "count": "COUNT",
        "areas": str(
            rooted_areas(data, folder) if has_root else f"{TRIPS}/random_{data}_areas.csv"
        ),
        "confidential": False,
    }


def studies(
    data: str,
    folder: Path,
    epsilon: str,
    chosen: list[str],
    n_replicates: int,
    *,
    has_root: bool = False,
) -> Iterator[tuple[str, dict[str, np.ndarray], float]]:
    """Mean errors of each variant by name, and its seconds a replicate."""
    from spineflow.tasks.noise.distributions import SystemRandom
    from spineflow.tasks.trips.plan import make_plan
    from spineflow.tasks.trips.release import error_bounds
    from spineflow.tasks.trips.settings import TripsSettings

    from benchmarks.trips_replicates import replicate_errors, true_tree

    own = input_of(data, folder, has_root=has_root)
    privacy = {"dataset": data, "epsilon": epsilon, "delta": "1e-8"}
    truth = None
    for name in chosen:
        settings = TripsSettings.model_validate(
            {"input": own, "privacy": privacy, "mechanism": VARIANTS[name]}
        )
        truth = truth or true_tree(settings)
        if name.endswith("rho/2"):
            half = {"dataset": data, "rho": settings.rho * Fraction(1, 2)}
            settings = settings.model_copy(
                update={"privacy": type(settings.privacy).model_validate(half)}
            )
        if name.endswith("tight"):
            tight = settings.privacy.model_dump() | {"conversion": "tight"}
            settings = settings.model_copy(
                update={"privacy": type(settings.privacy).model_validate(tight)}
            )
        plan = make_plan(settings, truth.tree)
        start = time.perf_counter()
        errors = [
            replicate_errors(plan, truth, settings.mechanism, SystemRandom())
            for _ in range(n_replicates)
        ]
        seconds = (time.perf_counter() - start) / n_replicates
        means = {key: np.mean([error[key] for error in errors], axis=0) for key in errors[0]}
        bounds = error_bounds(plan, truth.leaves.total)
        if bounds is not None:
            means["error_bound"] = np.array(bounds)
        yield name, means, seconds


def by_level(errors: np.ndarray) -> str:
    """Errors of all levels."""
    return " ".join(f"{error:8.1f}" for error in errors)


def row(means: dict[str, np.ndarray]) -> str:
    """Largest errors of all levels, and the rates at the last one."""
    largest = by_level(means["max_absolute_error"])
    discoveries = means["false_discovery_percent"][-1]
    negatives = means["false_negative_percent"][-1]
    return f"{largest}   false discoveries {discoveries:5.1f} %  negatives {negatives:5.1f} %"


def main() -> int:
    """Print the tables; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", choices=("complete", "sparse", "country"), default="complete")
    parser.add_argument("--replicates", type=int, default=10)
    parser.add_argument("--epsilons", nargs="+", default=["0.1", "1", "10"])
    parser.add_argument("--mechanisms", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--root", action="store_true", help="add a root row to the areas")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for epsilon in options.epsilons:
            print(f"\n{options.data}, epsilon {epsilon}, {options.replicates} replicates")
            for name, means, seconds in studies(
                options.data,
                Path(folder),
                epsilon,
                options.mechanisms,
                options.replicates,
                has_root=options.root,
            ):
                print(f"{name:20} {row(means)}   {seconds:.2f} s")
                if "error_bound" in means:
                    print(f"{'  its bound':20} {by_level(means['error_bound'])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

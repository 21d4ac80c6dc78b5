"""The housing units of the DHC product on the sample state or one of its counties: what it takes.

    .venv/bin/python -m benchmarks.dhc_units FOLDER [--county 001] [--infinite]

draws households that fit together on the block counts of the tables, makes a redistricting run in
FOLDER and a run of units held to it. Prints, stage by stage, seconds and peak memory of one process
that runs all steps one after the other, how many answers were drawn, how the solves ended, and
whether all checks passed. A FOLDER with finished runs is only told about.
"""

from __future__ import annotations

import json

import pandas as pd
import pyarrow.parquet as pq
from spineflow.tasks.topdown.ingest.generate_households import synthesize_households

from .dhc_persons import answers_of, options_of, run_of, sample


def main() -> None:
    """Run, and tell."""
    options = options_of(__doc__)
    folder = options.folder
    if not (folder / "input").exists():
        synthesize_households(sample(folder, options.county), folder / "input")
    run_of(folder, "pl94_2020_us", "", options.infinite)
    held = 'redistricting = "pl94_2020_us"'
    run = run_of(folder, "dhc_units_2020_us", held, options.infinite)
    n_units = pq.read_metadata(run.release / "mdf_units.parquet").num_rows
    print(f"{n_units:,} units; {answers_of(run, 'households'):,} answers of households drawn")
    for universe in ("units", "households"):
        files = (run.root / "solves" / universe).rglob("*.parquet")
        solves = pd.concat(map(pd.read_parquet, files))
        for (stage, solver, status), n in (
            solves.groupby(["stage", "solver", "status"]).size().items()
        ):
            print(f"| {universe} | {stage} | {solver} | {status} | {n:,} |")
    checks = json.loads((run.root / "validation/checks.json").read_text())
    print(f"{len(checks['checks'])} checks, all passed: {checks['passed']}")


if __name__ == "__main__":
    main()

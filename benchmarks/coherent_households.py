"""Blocks in which households are possible, and what that costs, on a generated county.

    .venv/bin/python -m benchmarks.coherent_households FOLDER [--persons 3000] [--runs 10]

makes redistricting runs of the county with the same seeds, with and without `run.coherent`, and
prints the share of blocks where no households are possible, and the mean absolute error of
occupied units at block groups and blocks, as means over the runs and standard errors of them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from spineflow.flows.running import prepare, run_stages_in_process
from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.topdown.ingest.generate import generate_county
from spineflow.tasks.topdown.ingest.generate_households import synthesize_households
from spineflow.tasks.topdown.product import TOPDOWN

SETTINGS = """
preset = "pl94_2020_us"
[input]
persons = "input/persons.parquet"
units = "input/units.parquet"
geography = "input/grfc.txt"
confidential = false
[privacy]
dataset = "county"
{privacy}
[release]
margins = false
[run]
coherent = {coherent}
"""
CODES = ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK")
LEVELS = {"county": 5, "tract": 11, "block group": 12, "block": 16}


def main() -> None:
    """Run, and tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--persons", type=int, default=3000)
    parser.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    generate_county(options.folder / "raw", persons=options.persons, seed=3, state="35")
    synthesize_households(options.folder / "raw", options.folder / "input", seed=4)
    truth = blocks_of(run_of(options.folder, "truth", "infinite = true", False))
    print("| | blocks | O > N | O = 0 < N | impossible |", "|---|---:|---:|---:|---:|", sep="\n")
    tell("truth", [truth])
    for coherent in (False, True):
        found = []
        for seed in range(1, options.runs + 1):
            name = f"{'coherent' if coherent else 'apart'}-{seed}"
            found.append(blocks_of(run_of(options.folder, name, f"seed = {seed}", coherent)))
        tell("coherent" if coherent else "apart", found)
        for level, digits in LEVELS.items():
            errors = [mean_error(truth, one, digits) for one in found]
            spread = np.std(errors, ddof=1) / len(errors) ** 0.5 if len(errors) > 1 else np.nan
            print(f"mean absolute error of occupied, {level}: {np.mean(errors):.3f} ({spread:.3f})")


def run_of(folder: Path, name: str, privacy: str, coherent: bool) -> RunDirectory:
    """A finished run."""
    file = folder / f"{name}.toml"
    file.write_text(SETTINGS.format(privacy=privacy, coherent=str(coherent).lower()))
    settings = TOPDOWN.load(file)
    run = prepare(settings, folder / name)
    run_stages_in_process(TOPDOWN, run, settings)
    return run


def blocks_of(run: RunDirectory) -> pd.DataFrame:
    """Occupied units and persons in households of every block with either."""
    columns = {}
    for name, file, column, code in (
        ("occupied", "mdf_units", "HH_STATUS", "1"),
        ("persons", "mdf_persons", "RTYPE", "3"),
    ):
        path = run.release / f"{file}.parquet"
        rows = pd.read_parquet(path, columns=[*CODES, column]).astype(str)
        own = rows[rows[column] == code]
        columns[name] = own[list(CODES)].agg("".join, axis=1).value_counts()
    return pd.DataFrame(columns).fillna(0).astype(int)


def tell(name: str, runs: list[pd.DataFrame]) -> None:
    """Print a row of the table: means over runs."""
    blocks = np.mean([len(one) for one in runs])
    more = np.mean([(one["occupied"] > one["persons"]).mean() for one in runs])
    none = np.mean([((one["occupied"] == 0) & (one["persons"] > 0)).mean() for one in runs])
    print(f"| {name} | {blocks:,.0f} | {more:.2%} | {none:.2%} | {more + none:.2%} |")


def mean_error(truth: pd.DataFrame, found: pd.DataFrame, digits: int) -> float:
    """Mean absolute error of occupied units, of the geounits with any in either."""
    both = pd.DataFrame({"truth": truth["occupied"], "found": found["occupied"]}).fillna(0)
    sums = both.groupby(both.index.str[:digits]).sum()
    return float((sums["found"] - sums["truth"]).abs().mean())


if __name__ == "__main__":
    main()

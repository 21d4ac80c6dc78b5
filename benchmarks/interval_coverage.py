"""How often intervals hold the truth, over replicates of the noise on a generated county.

Run `.venv/bin/python -m benchmarks.interval_coverage [--replicates N] [--persons N] [--spine NAME]`
from the repository's root. Every replicate draws all noise of a run anew and computes the linear
estimates and the intervals of every geolevel, of the county's places and of districts, in memory.
Prints the table of benchmarks/results/intervals.md, and which shares leave their Bonferroni band.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pandas as pd


def main() -> None:
    """Print the table; see the module's docstring."""
    from benchmarks.coverage import coverage_table
    from tests.tasks.topdown.intervals.coverage_study import QUERIES, county, departures

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=500)
    parser.add_argument("--persons", type=int, default=20000)
    parser.add_argument("--spine", default="optimized")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        replicates, areas = county(Path(name), persons=asked.persons, spine=asked.spine)
        queries = replicates.queries(QUERIES)
        started = time.process_time()
        frame = pd.concat(
            replicates.coverage(seed, queries, (0.9, 0.95), areas)
            for seed in range(asked.replicates)
        )
        seconds = time.process_time() - started
    table = coverage_table(frame)
    print(_markdown(table))
    outside = departures(table)
    print(f"\n{len(outside)} of {len(table)} shares outside what they promise")
    if len(outside):
        print(outside.to_string())
    print(f"\n{asked.replicates} replicates, {seconds:.0f} s of processor time")


def _markdown(table: pd.DataFrame) -> str:
    """A row for each place and query: the coverage of each level and kind."""
    keys = ["where", "query", "answers"]
    wide = table.pivot_table(index=keys, columns=["level", "kind"], values="covered", sort=False)
    headers = [*keys, *(f"{level:.0%} {kind}" for level, kind in wide.columns)]
    lines = [f"| {' | '.join(headers)} |", "|---" * len(headers) + "|"]
    for key, row in zip(wide.index, wide.to_numpy(), strict=True):
        lines.append(f"| {' | '.join([*map(str, key), *(f'{share:.2%}' for share in row)])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

"""The redistricting criterion on a real state, and the smallest rho at which it holds.

Run `.venv/bin/python -m benchmarks.redistricting_criterion [--replicates N] [--estimator NAME]`
from the repository's root; it reads ../shared/data/ri2010. Of the entities that have 500 people or
more and are no geounits of the spine (places, county subdivisions, tabulation block groups, ...),
at least 95 percent must keep the share of their largest racial or ethnic group to within 5
percentage points. Budgets keep the shares of the 2020 production run; rho for persons is halved
until the criterion fails on average over the replicates, and then bisected. The noise is that of
the product under fixed seeds.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from spineflow.tasks.topdown.paths import geography_file, invariants_file, spine_folder

from benchmarks.public_persons import settings_of, state

PRODUCTION = Fraction(293764, 114921)
SHARE = 0.95
BISECTIONS = 4


def criterion(run, settings) -> pd.DataFrame:
    """By level, how many entities of 500 people or more are off the spine, and the share of them
    that keep their largest group's share."""
    from spineflow.tasks.answers.estimates import read_estimates
    from spineflow.tasks.census.histograms import read_histogram
    from spineflow.tasks.census.invariants import inhabitable, read_geography, read_invariants
    from spineflow.tasks.topdown.checks.accuracy.errors import criterion_of, largest_groups
    from spineflow.tasks.topdown.checks.accuracy.subjects import entity_levels
    from spineflow.tasks.topdown.spine.files import read_spine

    spine, schema = read_spine(spine_folder(run, "persons")), settings.schema_of("persons")
    geography = read_geography(geography_file(run))[
        inhabitable(read_invariants(invariants_file(run)))
    ]
    files = (run.root / "estimates" / "persons" / "Block").glob("*.parquet")
    blocks = spine.geolevel("Block").geocode
    released = read_estimates(files, blocks, schema.n_cells)
    truth = read_histogram(run.histogram("persons"), spine.block_geocode, n_cells=schema.n_cells)
    # Hispanics whatever their race, then the six races alone, then two or more races.
    race = 1 + np.minimum(schema.levels("cenrace"), 6)
    groups = np.eye(8, dtype=np.int64)[np.where(schema.levels("hispanic") == 1, 0, race)]
    rows = []
    for level in entity_levels(spine, geography.iloc[spine.block_row]):
        off_spine = ~is_geounit(spine, level.entity, level.n_entities)
        counts = [level.sums(of_blocks @ groups)[off_spine] for of_blocks in (truth, released)]
        rows.append({"level": level.name, **criterion_of(largest_groups(*counts))})
    return pd.DataFrame(rows).query("entities > 0")


def is_geounit(spine, entity: np.ndarray, n_entities: int) -> np.ndarray:
    """Whether each entity has exactly the blocks of a geounit of the spine; `entity` gives that of
    each block, -1 for none."""
    inside = entity >= 0
    size = np.bincount(entity[inside], minlength=n_entities)
    found = size == 0
    for level in spine.geolevels:
        pairs = np.stack([entity, spine.ancestors(level.name)])[:, inside]
        (of_entity, geounit), together = np.unique(pairs, axis=1, return_counts=True)
        same = (together == size[of_entity]) & (together == level.n_blocks[geounit])
        found[of_entity[same]] = True
    return found


def main() -> None:
    """Print the criterion by level for every rho tried; see the module's docstring."""
    from spineflow.tasks.topdown.checks.replicate import study
    from spineflow.tasks.topdown.product import TOPDOWN
    from spineflow.tasks.topdown.workload.sections import ESTIMATORS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=3)
    parser.add_argument("--estimator", choices=ESTIMATORS, default="topdown")
    asked = parser.parse_args()

    settings = TOPDOWN.load(settings_of(state(), universes=["persons"], estimator=asked.estimator))
    print("| times production | rho | all off-spine entities | by level: within 5 points |")
    print("|---|---|---|---|")

    def holds(times: Fraction) -> bool:
        started = time.perf_counter()
        persons = settings.budget["persons"].model_copy(update={"rho": PRODUCTION * times})
        tried = settings.model_copy(update={"budget": {**settings.budget, "persons": persons}})
        with tempfile.TemporaryDirectory() as made:
            seeds = range(asked.replicates)
            rows = pd.concat(study({"": tried}, seeds, Path(made), criterion))
        share = np.average(rows["share_within"], weights=rows["entities"])
        of_levels = "; ".join(
            f"{level} {of_level['share_within'].mean():.1%} of {of_level['entities'].iloc[0]}"
            for level, of_level in rows.groupby("level", sort=False)
        )
        print(
            f"| {float(times):.4g} | {float(PRODUCTION * times):.4g} | {share:.2%} of "
            f"{rows['entities'].sum() // asked.replicates} | {of_levels} |",
            flush=True,
        )
        print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)
        return share >= SHARE

    times = Fraction(1)
    while holds(times):
        times /= 2
    low, high = times, 2 * times
    for _ in range(BISECTIONS):
        middle = Fraction(round((low * high) ** 0.5 * 2**40), 2**40)
        low, high = (low, middle) if holds(middle) else (middle, high)
    print(f"\nsmallest rho tried at which it holds: {float(PRODUCTION * high):.3g}")


if __name__ == "__main__":
    main()

"""A designed budget against that of production: predicted margins, and errors over replicates.

Run `.venv/bin/python -m benchmarks.designed_budget [--replicates N] [--state | --generated PERSONS]
[--queries Q ...] [--figure FILE.svg]` from the repository's root. The county is that of
../shared/data/ri2010_bristol_fixed_width, or a generated one; --state takes ../shared/data/ri2010.
The persons budget of production is split anew, at the same rho, for the queries (totals, and race
by Hispanic origin) at tracts, block groups, county subdivisions and, where there are any, places.
Both budgets are then measured and estimated with full information under fixed seeds. `predicted`
is the root of the mean variance of best linear unbiased estimates, `realised` the root of the mean
squared error of the release, with its standard error over the replicates. Writes the tables that
benchmarks/results/designed_budget.md shows.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from functools import partial
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd

from benchmarks.public_persons import add_choice, chosen, root_of_mean, settings_of

LEVELS = ("tract", "block group", "county subdivision")
LEVELS_OF_STATE = (*LEVELS, "place")
QUERIES = ("total", "hispanic * cenrace")
NORMAL_95 = 1.959963984540054


def main() -> None:
    """Print the table; see the module's docstring."""
    from spineflow.tasks.pages.figures import bar_chart
    from spineflow.tasks.products.product import PRESETS
    from spineflow.tasks.runs.settings_files import load_settings
    from spineflow.tasks.topdown.checks.replicate import study
    from spineflow.tasks.topdown.design.design import design_universe, designed_settings
    from spineflow.tasks.topdown.design.settings import DesignSettings
    from spineflow.tasks.topdown.ingest.ingest import public_tables

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=20)
    add_choice(parser)
    parser.add_argument("--queries", nargs="+", default=QUERIES, metavar="Q")
    parser.add_argument("--figure", metavar="FILE.svg", help="also draw the predicted margins")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        targets = {
            f"{level}, {query}": {"query": query, "level": level}
            for level in (LEVELS_OF_STATE if asked.state else LEVELS)
            for query in asked.queries
        }
        tables = settings_of(
            chosen(asked, folder), universes=["persons"], estimator="full_information"
        )
        tables["design"] = {"persons": {"targets": targets}}
        settings = load_settings(DesignSettings, tables, presets=PRESETS)
        started = time.perf_counter()
        design = design_universe(settings, "persons", public_tables(settings))
        print(f"designed in {time.perf_counter() - started:.0f} s; {design.certificate}")
        needed = design.further["rho_for_the_margins_now"]
        print(f"rho {float(design.before):.3f}; margins of now at {needed:.3f}\n")
        choices = {
            "production": settings.topdown,
            "designed": designed_settings(settings, {"persons": design}),
        }
        started = time.perf_counter()
        seeds = range(1, asked.replicates + 1)
        measure = partial(squared_errors, queries=asked.queries)
        frames = list(study(choices, seeds, folder / "study", measure))
        seconds = time.perf_counter() - started
    print("| query | areas | | production | designed | ratio |")
    print("|---|---|---|---|---|---|")
    for target in design.targets:
        query, where = target["query"], target["where"]
        now, then = target["now"] / NORMAL_95, target["designed"] / NORMAL_95
        areas = f"{target['n_areas']} {where}s"
        print(f"| {query} | {areas} | predicted | {now:.3g} | {then:.3g} | {then / now:.2f} |")
        if frames:
            frame = pd.concat(frames)
            of_target = frame[(frame["query"] == query) & (frame["level"] == where)]
            of_choice = of_target.groupby("choice")["mean_squared_error"]
            realised = {choice: root_of_mean(of_choice.get_group(choice)) for choice in choices}
            shown = " | ".join(f"{mean:.3g} ± {error:.1g}" for mean, error in realised.values())
            ratio = realised["designed"][0] / realised["production"][0]
            print(f"| | | realised | {shown} | {ratio:.2f} |")
    if asked.figure:
        margins = {
            "as in 2020": [target["now"] for target in design.targets],
            "designed": [target["designed"] for target in design.targets],
        }
        words = {"hispanic * cenrace": "race"}
        names = [f"{words.get(t['query'], t['query'])}, {t['where']}s" for t in design.targets]
        title = "Margins of 95 % at the same budget"
        Path(asked.figure).write_text(
            bar_chart(names, margins, title=title, value_label="persons"), encoding="utf-8"
        )
    print(f"\n{asked.replicates} replicates in {seconds:.0f} s")


def squared_errors(run, settings, queries=QUERIES) -> pd.DataFrame:
    """query, level, mean_squared_error of a replicate, over the areas of each level."""
    from spineflow.tasks.census.histograms import read_histogram
    from spineflow.tasks.census.invariants import inhabitable, read_geography, read_invariants
    from spineflow.tasks.census.queries import marginal_query
    from spineflow.tasks.topdown.checks.accuracy.subjects import entity_levels
    from spineflow.tasks.topdown.paths import geography_file, invariants_file, spine_folder
    from spineflow.tasks.topdown.spine.files import read_spine, released_counts

    spine, schema = read_spine(spine_folder(run, "persons")), settings.schema_of("persons")
    geography = read_geography(geography_file(run))
    geography = geography[inhabitable(read_invariants(invariants_file(run)))]
    truth = read_histogram(
        run.histogram("persons"), spine.block_geocode, n_cells=schema.n_cells
    ).tocoo()
    released = released_counts(run, "persons", spine.geolevels[-1], schema.n_cells).tocoo()
    rows = []
    for level in entity_levels(spine, geography.iloc[spine.block_row]):
        if level.name not in LEVELS_OF_STATE:
            continue
        for name in queries:
            query = marginal_query(schema, name)
            error = np.zeros((level.n_entities + 1, query.n_rows))
            where = (level.entity[released.row], query.row_of_cell[released.col])
            np.add.at(error, where, released.data)
            np.add.at(error, (level.entity[truth.row], query.row_of_cell[truth.col]), -truth.data)
            # Blocks of no area were added to the last row.
            squared = float((error[: level.n_entities] ** 2).mean())
            rows.append({"query": name, "level": level.name, "mean_squared_error": squared})
    return pd.DataFrame(rows)


if __name__ == "__main__":
    main()

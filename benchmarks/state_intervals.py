"""Processor time and memory of a state's estimates and intervals, and of its two estimators.

Run `.venv/bin/python -m benchmarks.state_intervals [--districts N] [--estimators] [--data FOLDER]`
from the repository's root. The state is that of ../shared/data/ri2010 (25,181 blocks), measured
once in one process, persons and housing units. Timed are then, in turn: the estimates up and down
the spine; estimates and standard deviations of every cell of the redistricting tables (P1 to P5 and
H1) at all geolevels of the spine; the same at all summary levels; the totals and race counts of a
thousand districts of arbitrary blocks, chosen at random, and of a thousand that are stretches of
the block sequence; with --estimators also `topdown` and `full_information` on the measurements, and
the margins that a run writes.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from scipy import sparse

from benchmarks.public_persons import STATE, settings_of, state

QUERIES = ("total", "hispanic * cenrace")


def main() -> None:
    """Print a table; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--districts", type=int, default=1000)
    parser.add_argument("--estimators", action="store_true")
    parser.add_argument("--data", type=Path, default=STATE)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        _study(Path(name), asked)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{peak:.2f} GiB of memory at most")


def _study(folder: Path, asked: argparse.Namespace) -> None:
    from spineflow.tasks.census.invariants import read_geography
    from spineflow.tasks.census.queries import marginal_query
    from spineflow.tasks.runs.directory import RunDirectory
    from spineflow.tasks.topdown.checks.replicate import (
        estimate,
        lay_out,
        measure,
        read_dataset,
        with_estimator,
        with_seed,
    )
    from spineflow.tasks.topdown.intervals.answers import (
        ProductAnswers,
        covariances_of,
        estimates_of,
    )
    from spineflow.tasks.topdown.intervals.areas import BlockAreas, area_covariances, area_estimates
    from spineflow.tasks.topdown.intervals.intervals import PublishedCells
    from spineflow.tasks.topdown.intervals.run_posterior import RunPosterior
    from spineflow.tasks.topdown.paths import geography_file
    from spineflow.tasks.topdown.product import TOPDOWN
    from spineflow.tasks.topdown.release.tabulations.levels import (
        SUMMARY_LEVELS,
        entities_of,
        variable_matrix,
    )
    from spineflow.tasks.topdown.release.tabulations.run import write_margins

    settings = with_seed(TOPDOWN.load(settings_of(state(asked.data))), 1)
    layout = lay_out(read_dataset(settings, folder / "dataset"), settings, folder / "layout")
    run = measure(layout, settings, folder / "measured")
    found: dict[str, RunPosterior] = {}
    counted = {
        name: sparse.csr_array(variable_matrix(settings.schema_of(name)).T)
        for name in settings.run.universes
    }

    def combined() -> None:
        for name in settings.run.universes:
            found[name] = RunPosterior.read(run, settings, name)
            assert found[name].blocks is not None

    def at_geolevels() -> None:
        for name, posterior in found.items():
            answers = ProductAnswers.of(posterior.posterior.algebra, counted[name])
            for _, level in posterior.posterior.down():
                for start in range(0, len(level.type_is_possible), 1 << 13):
                    rows = np.arange(start, min(start + (1 << 13), len(level.type_is_possible)))
                    estimates_of(level, answers, rows)
                    np.sqrt(covariances_of(level, answers, rows).variances())

    def at_summary_levels() -> None:
        geography = read_geography(geography_file(run))
        index = pd.Index(geography["block_geocode"])
        for level in SUMMARY_LEVELS.values():
            entities = entities_of(geography, level)
            for name, posterior in found.items():
                of_block = entities.block_entity[index.get_indexer(posterior.spine.block_geocode)]
                areas = BlockAreas.of_pairs(len(entities), np.arange(len(of_block)), of_block)
                for _, answers in PublishedCells(posterior, counted[name]).of_areas(areas):
                    answers.intervals(0.9)

    def districts(*, arbitrary: bool) -> None:
        posterior = found["persons"]
        n_blocks = posterior.spine.n_blocks
        number = np.arange(n_blocks) * asked.districts // n_blocks
        if arbitrary:
            number = np.random.default_rng(1).permutation(number)
        areas = BlockAreas.of_pairs(asked.districts, np.arange(n_blocks), number)
        schema = settings.schema_of("persons")
        for name in QUERIES:
            counted_by = marginal_query(schema, name).matrix
            answers = ProductAnswers.of(posterior.posterior.algebra, counted_by)
            area_estimates(posterior.blocks, answers, areas)
            area_covariances(posterior.posterior, answers, areas).variances()

    print("| what | seconds of processor time |\n|---|---|")
    _timed("read, up and down the spine", combined)
    _timed("cells of the tables at all geolevels", at_geolevels)
    _timed("cells of the tables at all summary levels, with intervals", at_summary_levels)
    _timed(f"{asked.districts} districts of arbitrary blocks", lambda: districts(arbitrary=True))
    _timed(f"{asked.districts} districts of neighbours", lambda: districts(arbitrary=False))
    for name in ("topdown", "full_information") * bool(asked.estimators):
        chosen = with_estimator(settings, name)
        estimate(run, chosen, folder / f"warm-{name}")
        _timed(name, lambda chosen=chosen, name=name: estimate(run, chosen, folder / name))
        if name == "topdown":
            run_of = RunDirectory(folder / name)
            _timed("margins, as a run writes them", lambda of=run_of: write_margins(of, settings))


def _timed(what: str, step: Callable[[], object]) -> None:
    started = time.process_time()
    step()
    print(f"| {what} | {time.process_time() - started:.1f} |", flush=True)


if __name__ == "__main__":
    main()

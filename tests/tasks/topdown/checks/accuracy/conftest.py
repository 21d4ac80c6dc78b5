"""Runs whose estimates differ from the truth in a known way, made without Prefect and noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from spineflow.tasks.answers.estimates import write_estimates
from spineflow.tasks.census.histograms import read_histogram
from spineflow.tasks.census.invariants import read_geography, read_invariants
from spineflow.tasks.products.product import PRESETS
from spineflow.tasks.runs.directory import RunDirectory, start_run
from spineflow.tasks.runs.settings_files import dump_settings, load_settings
from spineflow.tasks.topdown.ingest.ingest import ingest_input
from spineflow.tasks.topdown.paths import geography_file, invariants_file, spine_folder
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.build import spines_of
from spineflow.tasks.topdown.spine.files import (
    cut_spine,
    read_shards,
    read_spine,
    write_shards,
    write_spine,
)


def perturbed(histogram: sparse.csr_array, seed: int) -> sparse.csr_array:
    """Counts with errors of a few, some cells emptied and some filled."""
    rng = np.random.default_rng(seed)
    changed = histogram.copy()
    changed.data = np.maximum(changed.data + rng.integers(-2, 3, size=changed.nnz), 0)
    n = histogram.shape[0] // 3
    where = rng.integers(histogram.shape[0], size=n), rng.integers(histogram.shape[1], size=n)
    extra = sparse.coo_array((np.ones(n, dtype=np.int64), where), shape=histogram.shape)
    changed = sparse.csr_array(changed + extra)
    changed.eliminate_zeros()
    return changed


def make_run(folder: Path, county: Path, *, seed: int, overrides=(), name: str = "run"):
    """A run directory up to estimates, and its settings."""
    folder.mkdir(exist_ok=True)
    file = folder / "settings.toml"
    tables = {"persons": "persons.parquet", "units": "units.parquet", "geography": "grfc.txt"}
    lines = [f'{key} = "{county / table}"' for key, table in tables.items()]
    text = 'preset = "pl94_2020_us"\n[input]\n' + "\n".join(lines)
    file.write_text(text + '\n[privacy]\ndataset = "county"\n')
    settings = load_settings(TopdownSettings, file, presets=PRESETS, overrides=overrides)
    run = RunDirectory(folder / name)
    with run.locked():
        text = dump_settings(settings)
        start_run(run, product="topdown", settings_text=text, stamp=settings.stamp)
    ingest_input(run, settings)
    geography = read_geography(geography_file(run))
    invariants = read_invariants(invariants_file(run))
    for universe in settings.run.universes:
        schema = settings.schema_of(universe)
        spine = spines_of(settings).spine(universe, (geography, invariants))
        write_spine(spine, spine_folder(run, universe))
        budget = settings.budget_of(universe)
        write_shards(cut_spine(spine, schema, budget), spine_folder(run, universe))
        spine = read_spine(spine_folder(run, universe))
        truth = read_histogram(run.histogram(universe), spine.block_geocode, n_cells=schema.n_cells)
        released = perturbed(truth, seed)
        for shard in read_shards(spine_folder(run, universe)):
            position = spine.ancestors(shard.geolevel)
            inside = np.flatnonzero((position >= shard.start) & (position < shard.stop))
            where = (position[inside] - shard.start, np.arange(inside.size))
            shape = (shard.stop - shard.start, inside.size)
            sums = sparse.csr_array((np.ones(inside.size, dtype=np.int64), where), shape=shape)
            write_estimates(
                run.estimates(universe, shard.geolevel, shard.name),
                spine.geolevel(shard.geolevel).geocode[shard.start : shard.stop],
                sparse.csr_array(sums @ released[inside]),
            )
    return run, settings


@pytest.fixture(scope="session")
def estimated_run():
    """Factory of run directories; see `make_run`."""
    return make_run


@pytest.fixture(scope="session")
def public_run(county: Path, tmp_path_factory: pytest.TempPathFactory):
    """A run on data that are not confidential, and its settings."""
    folder = tmp_path_factory.mktemp("public")
    return make_run(folder, county, seed=1, overrides=["input.confidential=false"], name="first")

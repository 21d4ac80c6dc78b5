"""The steps that estimate a shard of geounits, and that combine its measurements first."""

from __future__ import annotations

from collections import Counter

from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Made, made
from spineflow.tasks.runs.steps import step
from spineflow.tasks.topdown.estimation.estimators import estimator_of
from spineflow.tasks.topdown.estimation.kernels import wait_until_compiled
from spineflow.tasks.topdown.paths import combined_file, spine_folder
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import read_spine
from spineflow.tasks.topdown.spine.shards import shard_of


@step(
    "estimate",
    TopdownSettings,
    run_name="estimate-{universe}-{geolevel}-{shard}",
    made_at=lambda run, _settings, *shard: run.estimates(*shard),
)
def estimate(
    run: RunDirectory, settings: TopdownSettings, universe: str, geolevel: str, shard: str
) -> Made:
    """Estimate a shard by the estimator that the settings ask for."""
    spine = read_spine(spine_folder(run, universe))
    part = shard_of(spine_folder(run, universe), geolevel, shard)
    wait_until_compiled()
    records = estimator_of(settings).estimate(run, settings, universe, spine, part)
    solved = Counter(f"{record.stage}: {record.solver}" for record in records)
    return made(
        run.estimates(universe, geolevel, shard),
        {**solved, "relaxed": sum(record.relaxed for record in records)},
    )


@step(
    "combine",
    TopdownSettings,
    run_name="combine-{universe}-{geolevel}-{shard}",
    made_at=lambda run, _settings, *shard: combined_file(run, *shard),
)
def combine(
    run: RunDirectory, settings: TopdownSettings, universe: str, geolevel: str, shard: str
) -> Made:
    """Combine a shard's measurements with those below it, for estimators that need it."""
    spine = read_spine(spine_folder(run, universe))
    part = shard_of(spine_folder(run, universe), geolevel, shard)
    combine_shard = estimator_of(settings).combine
    if combine_shard is None:
        raise ValueError("this estimator combines no measurements")
    combine_shard(run, settings, universe, spine, part)
    return made(combined_file(run, universe, geolevel, shard))

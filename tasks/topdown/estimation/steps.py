"""The steps that estimate a shard of geounits, and that combine its measurements first."""

from __future__ import annotations

from collections import Counter

from ...runs.directory import RunDirectory
from ...runs.handles import Made, made
from ...runs.steps import step
from ..paths import combined_file
from ..settings import TopdownSettings
from ..spine.files import spine_of
from ..spine.shards import shard_of
from .estimate import ShardInput
from .estimators import estimator_of
from .kernels import wait_until_compiled


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
    wait_until_compiled()
    given = _input_of(run, settings, universe, geolevel, shard)
    records = estimator_of(settings).estimate(given)
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
    combine_shard = estimator_of(settings).combine
    if combine_shard is None:
        raise ValueError("this estimator combines no measurements")
    combine_shard(_input_of(run, settings, universe, geolevel, shard))
    return made(combined_file(run, universe, geolevel, shard))


def _input_of(
    run: RunDirectory, settings: TopdownSettings, universe: str, geolevel: str, shard: str
) -> ShardInput:
    part = shard_of(run, universe, geolevel, shard)
    return ShardInput.read(run, settings, universe, spine_of(run, universe), part)

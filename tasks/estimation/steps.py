"""The steps that estimate a shard of geounits, and that combine its measurements first."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tasks.estimation.estimators import estimator_of
from tasks.handles import Artifact
from tasks.run_directory import RunDirectory
from tasks.settings.load import frozen_settings
from tasks.settings.topdown import TopdownSettings
from tasks.spine.files import read_spine
from tasks.spine.shards import shard_of
from tasks.steps import step
from tasks.timing import stopwatch


@step("estimate", run_name="estimate-{universe}-{geolevel}-{shard}")
def estimate(run_root: str, universe: str, geolevel: str, shard: str) -> Artifact:
    """Estimate a shard by the estimator that the settings ask for."""
    run = RunDirectory(Path(run_root))
    path = run.estimates(universe, geolevel, shard)
    reused = path.exists()
    facts: Counter[str] = Counter()
    with stopwatch() as seconds:
        if not reused:
            settings = frozen_settings(TopdownSettings, run.settings)
            spine = read_spine(run.spine(universe))
            part = shard_of(run.spine(universe), geolevel, shard)
            records = estimator_of(settings).estimate(run, settings, universe, spine, part)
            facts.update(f"{record.stage}: {record.solver}" for record in records)
            facts["relaxed"] = sum(record.relaxed for record in records)
    return run.artifact(path, seconds=seconds(), reused=reused, facts=tuple(facts.items()))


@step("combine", run_name="combine-{universe}-{geolevel}-{shard}")
def combine(run_root: str, universe: str, geolevel: str, shard: str) -> Artifact:
    """Combine a shard's measurements with those below it, for estimators that need it."""
    run = RunDirectory(Path(run_root))
    path = run.combined(universe, geolevel, shard)
    reused = path.exists()
    with stopwatch() as seconds:
        if not reused:
            settings = frozen_settings(TopdownSettings, run.settings)
            spine = read_spine(run.spine(universe))
            part = shard_of(run.spine(universe), geolevel, shard)
            estimator_of(settings).combine(run, settings, universe, spine, part)
    return run.artifact(path, seconds=seconds(), reused=reused)

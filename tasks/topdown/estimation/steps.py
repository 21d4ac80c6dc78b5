"""The steps that estimate a shard of geounits, and that combine its measurements first."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from spineflow.tasks.runs.directory import RunDirectory
from spineflow.tasks.runs.handles import Artifact
from spineflow.tasks.runs.settings_files import frozen_settings
from spineflow.tasks.runs.steps import step
from spineflow.tasks.runs.timing import stopwatch
from spineflow.tasks.topdown.estimation.estimators import estimator_of
from spineflow.tasks.topdown.settings import TopdownSettings
from spineflow.tasks.topdown.spine.files import read_spine
from spineflow.tasks.topdown.spine.shards import shard_of


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

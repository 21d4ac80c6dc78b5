"""The step that estimates a shard of geounits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tasks.estimation.shard import estimate_shard
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
    """Least squares and rounding for the children of a run of parents."""
    run = RunDirectory(Path(run_root))
    path = run.estimates(universe, geolevel, shard)
    reused = path.exists()
    facts: Counter[str] = Counter()
    with stopwatch() as seconds:
        if not reused:
            settings = frozen_settings(TopdownSettings, run.settings)
            spine = read_spine(run.spine(universe))
            part = shard_of(run.spine(universe), geolevel, shard)
            records = estimate_shard(run, settings, universe, spine, part)
            facts.update(f"{record.stage}: {record.solver}" for record in records)
            facts["relaxed"] = sum(record.relaxed for record in records)
    return run.artifact(path, seconds=seconds(), reused=reused, facts=tuple(facts.items()))

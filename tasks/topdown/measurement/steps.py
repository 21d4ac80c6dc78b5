"""Steps that write constraints and draw the noise of a topdown run."""

from __future__ import annotations

from pathlib import Path

from ...runs.directory import RunDirectory
from ...runs.handles import Made, created, reused
from ...runs.steps import step
from ..settings import TopdownSettings
from ..spine.shards import RunUniverse, shard_of
from .measure import measure_once, measurement_file
from .public_answers import constrain_universe


@step("constrain", TopdownSettings, run_name="constraints-{universe}")
def constrain(run: RunDirectory, settings: TopdownSettings, universe: str) -> Made:
    """Write the constraints that the declared invariants put on every geounit."""
    written = constrain_universe(run, settings, universe)
    folder = run.root / "measurements" / universe
    return created(folder, {"constraint files": written}) if written else reused(folder)


def _measured_at(
    run: RunDirectory, settings: TopdownSettings, universe: str, geolevel: str, shard: str
) -> Path:
    part = shard_of(run, universe, geolevel, shard)
    return measurement_file(RunUniverse(run, settings, universe), part)


@step(
    "measure",
    TopdownSettings,
    run_name="measure-{universe}-{geolevel}-{shard}",
    retried=False,
    made_at=_measured_at,
)
def measure(
    run: RunDirectory, settings: TopdownSettings, universe: str, geolevel: str, shard: str
) -> Made:
    """Publish a shard's noisy measurements; published noise is never drawn again."""
    of, part = RunUniverse(run, settings, universe), shard_of(run, universe, geolevel, shard)
    measure_once(of, part)
    return created(measurement_file(of, part))

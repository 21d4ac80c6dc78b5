"""The steps that read published measurements into a run."""

from __future__ import annotations

from ...runs.directory import RunDirectory
from ...runs.handles import Made, created, once, reused
from ...runs.steps import step
from ..paths import geography_file, state_totals_file
from ..settings import TopdownSettings
from ..spine.shards import shards_of
from ..spine.steps import spine_once
from .read import folder_of, write_derived_invariants, write_measured_spine, write_public_geography
from .values import write_level


@step("read geography", TopdownSettings, run_name="geography")
def read_geography_file(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Read the geography file: public."""
    if geography_file(run).exists():
        return reused(geography_file(run))
    return created(geography_file(run), {"blocks": write_public_geography(run, settings)})


@step("read geounits", TopdownSettings, run_name="geounits-{universe}")
def read_geounits(run: RunDirectory, settings: TopdownSettings, universe: str) -> Made:
    """Derive a universe's spine from the geocodes and variances of its measurements."""
    return spine_once(run, settings, universe, write_measured_spine)


@step("read invariants", TopdownSettings, run_name="invariants")
def read_told_invariants(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Derive the invariants from the constraints, and check the constraints of all geounits."""
    path = state_totals_file(run)
    return once(path, write_derived_invariants, run, settings)


@step("read measurements", TopdownSettings, run_name="measurements-{universe}-{geolevel}")
def read_measurements(
    run: RunDirectory, settings: TopdownSettings, universe: str, geolevel: str
) -> Made:
    """Sort the noisy measurements of a geolevel in the order of the spine."""
    folder = run.measurements(universe, geolevel) / "dpqueries"
    shards = [s for s in shards_of(run, universe) if s.geolevel == geolevel]
    if all(run.dpqueries(universe, geolevel, shard.name).exists() for shard in shards):
        return reused(folder)
    return created(
        folder, {"files": write_level(run, settings, folder_of(settings), universe, geolevel)}
    )

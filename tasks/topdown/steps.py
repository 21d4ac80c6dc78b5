"""Steps of topdown and estimate from the spine to the measurements, of the release, and of its
checks."""

from __future__ import annotations

from pathlib import Path

from ..dissemination.formats import write_csvw, write_geoparquet, write_sdmx
from ..runs.directory import RunDirectory
from ..runs.handles import Made, created, once, reused
from ..runs.steps import step
from .checks.pieces import write_findings
from .measurement.measure import measure_once, measurement_file
from .measurement.public_answers import constrain_universe
from .paths import geography_file, spine_folder, state_totals_file
from .published.read import (
    folder_of,
    write_derived_invariants,
    write_level,
    write_measured_spine,
    write_public_geography,
)
from .release.microdata import write_part, write_universe
from .release.report import exact_losses, exact_losses_file
from .release.spine_summary import has_summary, summary_folder, write_summary
from .release.tabulations.levels import variable_labels
from .release.tabulations.run import RunTables, keep_estimates, missing_margins, write_margins
from .settings import TopdownSettings
from .spine.build import write_universe_spine
from .spine.files import SHARDS, RunUniverse, shard_of, shards_by_geolevel


@step("build spine", TopdownSettings, run_name="spine-{universe}")
def build_spine(run: RunDirectory, settings: TopdownSettings, universe: str) -> Made:
    """Build a universe's spine from the public geography and the declared invariants."""
    shards = spine_folder(run, universe) / SHARDS
    return once(shards, write_universe_spine, run, settings, universe)


@step("read geography", TopdownSettings, run_name="geography")
def read_geography_file(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Read the geography file: public."""
    return once(geography_file(run), write_public_geography, run, settings)


@step("read geounits", TopdownSettings, run_name="geounits-{universe}")
def read_geounits(run: RunDirectory, settings: TopdownSettings, universe: str) -> Made:
    """Derive a universe's spine from the geocodes and variances of its measurements."""
    shards = spine_folder(run, universe) / SHARDS
    return once(shards, write_measured_spine, run, settings, universe)


@step("read invariants", TopdownSettings, run_name="invariants")
def read_invariants(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Derive the invariants from the constraints, and check the constraints of all geounits."""
    return once(state_totals_file(run), write_derived_invariants, run, settings)


@step("constrain", TopdownSettings, run_name="constraints-{universe}")
def constrain(run: RunDirectory, settings: TopdownSettings, universe: str) -> Made:
    """Write the constraints that the declared invariants put on every geounit."""
    is_new = constrain_universe(run, settings, universe) > 0
    return Made(run.root / "measurements" / universe, reused=not is_new)


@step("read measurements", TopdownSettings, run_name="measurements-{universe}-{geolevel}")
def read_measurements(
    run: RunDirectory, settings: TopdownSettings, universe: str, geolevel: str
) -> Made:
    """Sort the noisy measurements of a geolevel in the order of the spine."""
    folder = run.measurements(universe, geolevel) / "dpqueries"
    shards = shards_by_geolevel(run, universe)[geolevel]
    if all(run.dpqueries(universe, geolevel, shard.name).exists() for shard in shards):
        return reused(folder)
    write_level(run, settings, folder_of(settings), universe, geolevel)
    return created(folder)


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
    measure_once(RunUniverse(run, settings, universe), shard_of(run, universe, geolevel, shard))
    return created(_measured_at(run, settings, universe, geolevel, shard))


def _microdata(run: RunDirectory, universe: str) -> Path | None:
    """The text of the microdata of a universe where it is written, released or not."""
    places = (folder / f"mdf_{universe}.csv" for folder in (run.release, run.unchecked_release))
    return next((path for path in places if path.exists()), None)


@step("write microdata part", TopdownSettings, run_name="microdata-{universe}-{number}")
def write_microdata_part(
    run: RunDirectory, settings: TopdownSettings, universe: str, number: int, of: int
) -> Made:
    """Write the microdata of some states, for `write_microdata`."""
    if (found := _microdata(run, universe)) is not None:
        return reused(found)
    return created(write_part(RunUniverse(run, settings, universe), number, of).with_suffix(".csv"))


@step("write microdata", TopdownSettings, run_name="microdata-{universe}")
def write_microdata(run: RunDirectory, settings: TopdownSettings, universe: str) -> Made:
    """Turn block estimates into one row a person, housing unit or facility."""
    if (found := _microdata(run, universe)) is not None:
        return reused(found)
    return created(write_universe(RunUniverse(run, settings, universe)))


def _release_of(run: RunDirectory, *_: object) -> Path:
    """The finished release, after which nothing is left to do for a step that makes it."""
    return run.release


@step("keep estimates", TopdownSettings, run_name="estimates of margins", made_at=_release_of)
def keep_margin_estimates(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Compute the unbiased estimates behind the margins, for `write_margin_piece`."""
    return Made(run.root / "intervals", reused=not keep_estimates(run, settings))


@step("write margin piece", TopdownSettings, run_name="margins {number}", made_at=_release_of)
def write_margin_piece(run: RunDirectory, settings: TopdownSettings, number: int, of: int) -> Made:
    """Write the margins of some tables of a large run, for `write_release_margins`."""
    is_new = write_margins(run, settings, (number, of)) > 0
    return Made(run.unchecked_release, reused=not is_new)


@step("write margins", TopdownSettings, run_name="margins", made_at=_release_of)
def write_release_margins(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Write the intervals of all other tables' counts, from the measurements alone."""
    is_new = bool(missing_margins(run, settings))
    write_margins(run, settings)
    return Made(run.unchecked_release, reused=not is_new)


@step("write formats", TopdownSettings, run_name="formats", made_at=_release_of)
def write_formats(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Write the tables and their margins in the formats of systems that load them."""
    release, asked = run.unchecked_release, settings.release
    labels = variable_labels(map(settings.schema_of, settings.run.universes))
    if asked.sdmx is not None:
        write_sdmx(release, asked.sdmx)
    if asked.csvw:
        write_csvw(release, labels)
    if asked.geoparquet and settings.input.geometry is not None:
        write_geoparquet(release, Path(settings.input.geometry), labels)
    return created(release)


@step("write table piece", TopdownSettings, run_name="tables {number}", made_at=_release_of)
def write_table_piece(run: RunDirectory, settings: TopdownSettings, number: int, of: int) -> Made:
    """Write the tables of some states, for `write_redistricting_tables`."""
    tables = RunTables(run, settings)
    if all(path.exists() for path in tables.files()):
        return reused(run.unchecked_release)
    return created(tables.write_piece(number, of))


@step("write tables", TopdownSettings, run_name="tables", made_at=_release_of)
def write_redistricting_tables(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Tabulate the block estimates at every summary level, as tables and in the P.L. 94-171
    format."""
    run.unchecked_release.mkdir(exist_ok=True)
    tables = RunTables(run, settings)
    files = tables.files()
    if files and all(path.exists() for path in files):
        return reused(files[-1])
    files = tables.write()
    return created(files[-1] if files else run.unchecked_release)


@step("summarise spine", TopdownSettings, run_name="spine-summary-{universe}")
def summarise_spine(run: RunDirectory, settings: TopdownSettings, universe: str) -> Made:
    """Compare a universe's spine with the AIAN spine: sizes, distances, predicted deviations."""
    folder = summary_folder(run, universe)
    if has_summary(run, universe):
        return reused(folder)
    write_summary(run, settings, universe)
    return created(folder)


@step(
    "exact losses",
    TopdownSettings,
    run_name="exact losses",
    made_at=lambda run, _settings: exact_losses_file(run),
)
def compute_exact_losses(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Compute what the noise guarantees exactly, for the certificate and the report."""
    exact_losses(run, settings)
    return created(exact_losses_file(run))


@step("check share", TopdownSettings, run_name="checks {number}", made_at=_release_of)
def check_share(run: RunDirectory, settings: TopdownSettings, number: int, of: int) -> Made:
    """Check some pieces of a large run, by code independent of the estimator, for
    `check_release`."""
    return Made(run.checks, reused=not write_findings(run, number, of))

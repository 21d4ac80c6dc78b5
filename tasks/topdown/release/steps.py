"""The steps that write microdata, margins, tables and the summary of the spine."""

from __future__ import annotations

from pathlib import Path

from ...dissemination.csvw import write_csvw
from ...dissemination.geoparquet import write_geoparquet
from ...dissemination.sdmx import write_sdmx
from ...runs.directory import RunDirectory
from ...runs.handles import Made, created, created_or_reused, once, reused
from ...runs.steps import step
from ..settings import TopdownSettings
from .certificate import keep_loss, loss_file
from .margins import (
    MarginPiece,
    has_all_margins,
    has_estimates,
    has_stored_posteriors,
    is_written,
    keep_posteriors,
    restore_figures,
    write_margins,
    write_piece,
)
from .microdata import write_part, write_universe
from .spine_summary import has_summary, summary_folder, write_summary
from .tabulations.levels import variable_labels
from .tabulations.run import tables_of_run


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
    return created(write_part(run, settings, universe, number, of).with_suffix(".csv"))


@step("write microdata", TopdownSettings, run_name="microdata-{universe}")
def write_microdata(run: RunDirectory, settings: TopdownSettings, universe: str) -> Made:
    """Turn block estimates into one row a person, housing unit or facility."""
    if (found := _microdata(run, universe)) is not None:
        return reused(found)
    written = write_universe(run, settings, universe)
    return created(written.csv, {"rows": written.n_rows})


@step("exact loss", TopdownSettings, run_name="exact loss of {universe}")
def work_out_loss(run: RunDirectory, settings: TopdownSettings, universe: str) -> Made:
    """Compute the exact guarantee of the noise, for the certificate and the report."""
    return once(loss_file(run, universe), keep_loss, run, settings, universe)


@step("keep estimates", TopdownSettings, run_name="estimates of margins")
def keep_estimates(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Compute the unbiased estimates behind the margins, for `write_margin_piece`."""
    folder = run.root / "intervals"
    if (
        run.release.exists()
        or has_stored_posteriors(run, settings)
        or has_all_margins(run, settings)
    ):
        return reused(folder)
    return created(keep_posteriors(run, settings))


@step("write margin piece", TopdownSettings, run_name="margins, {kind} of {subject}")
def write_margin_piece(
    run: RunDirectory, settings: TopdownSettings, kind: str, subject: str
) -> Made:
    """Write a piece of the margins of a large run, for `write_release_margins`."""
    place = run.release if run.release.exists() else run.unchecked_release
    piece = MarginPiece(kind, subject)
    if run.release.exists() or is_written(run, settings, piece):
        return reused(place)
    write_piece(run, settings, piece)
    return created(place)


@step("write margins", TopdownSettings, run_name="margins")
def write_release_margins(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Write the intervals of the tables' counts that no piece has written, from the measurements
    alone."""
    place = run.release if run.release.exists() else run.unchecked_release
    if run.release.exists():
        return created_or_reused(place, is_new=restore_figures(run, settings))
    if has_all_margins(run, settings) and not has_estimates(run, settings):
        return reused(place)
    files = write_margins(run, settings)
    return created(place, {"files": len(files)})


@step("write formats", TopdownSettings, run_name="formats")
def write_formats(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Write the tables and their margins in the formats of systems that load them."""
    if run.release.exists():
        return reused(run.release)
    release, asked, files = run.unchecked_release, settings.release, list[Path]()
    labels = variable_labels(map(settings.schema_of, settings.run.universes))
    if asked.sdmx is not None:
        files += write_sdmx(release, asked.sdmx)
    if asked.csvw:
        files.append(write_csvw(release, labels))
    if asked.geoparquet and settings.input.geometry is not None:
        files += write_geoparquet(release, Path(settings.input.geometry), labels)
    return created(release, {"files": len(files)})


@step("write table piece", TopdownSettings, run_name="tables {number}")
def write_table_piece(run: RunDirectory, settings: TopdownSettings, number: int, of: int) -> Made:
    """Write the tables of some states, for `write_redistricting_tables`."""
    place, tables = run.unchecked_release, tables_of_run(run, settings)
    if run.release.exists() or all(path.exists() for path in tables.files()):
        return reused(run.release if run.release.exists() else place)
    return created(tables.write_piece(number, of))


@step("write tables", TopdownSettings, run_name="tables")
def write_redistricting_tables(run: RunDirectory, settings: TopdownSettings) -> Made:
    """Tabulate the block estimates at every summary level, as tables and in the P.L. 94-171
    format."""
    if run.release.exists():
        return reused(run.release)
    run.unchecked_release.mkdir(exist_ok=True)
    tables = tables_of_run(run, settings)
    files = tables.files()
    if files and all(path.exists() for path in files):
        return reused(files[-1])
    files = tables.write()
    return created(files[-1] if files else run.unchecked_release, {"files": len(files)})


@step("summarise spine", TopdownSettings, run_name="spine-summary-{universe}")
def summarise_spine(run: RunDirectory, settings: TopdownSettings, universe: str) -> Made:
    """Compare a universe's spine with the AIAN spine: sizes, distances, predicted deviations."""
    folder = summary_folder(run, universe)
    if has_summary(run, universe):
        return reused(folder)
    write_summary(run, settings, universe)
    return created(folder)

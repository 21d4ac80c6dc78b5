"""Commands of topdown alone: intervals, measurements to publish, off-spine distances, the page."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import MutuallyExclusive

from ..tasks.detailed_groups.settings import DetailedGroupsSettings
from ..tasks.products.plan import read_plan, summarise_statement
from ..tasks.products.product import existing_run, product
from ..tasks.runs.directory import RunDirectory, refuse_altered
from ..tasks.runs.errors import InputRefused
from ..tasks.runs.files import write_page, write_text
from ..tasks.topdown.settings import TopdownSettings
from .console import Overrides, RunFolder, SettingsFile, print_block, print_work
from .console import page as wide_page

if TYPE_CHECKING:
    from ..tasks.topdown.release.spine_summary import SpineDistances

AREAS = Group("Areas", validator=MutuallyExclusive())
"""Options of which one may be given."""

FARTHEST = 5
"""Entities of every category that are printed."""

PUBLISHED = Path(__file__).parent / "demos" / "published.toml"
"""Settings for the input tables that are made from a published release."""


def _topdown_run(folder: Path, what: str) -> tuple[RunDirectory, TopdownSettings]:
    """An unaltered run of topdown, and its settings; raises InputRefused for other products, which
    do not support `what`.
    """
    found, _, settings = existing_run(folder)
    if not isinstance(settings, TopdownSettings):
        raise InputRefused(f"{found.root} is no run of topdown; only those have {what}.")
    refuse_altered(found)
    return found, settings


def intervals(
    run_directory: RunFolder,
    /,
    *,
    query: tuple[str, ...],
    universe: str | None = None,
    geolevel: Annotated[str | None, Parameter(group=AREAS)] = None,
    entities: Annotated[Path | None, Parameter(group=AREAS)] = None,
    share_of: str | None = None,
    compare: Path | None = None,
    level: float = 0.9,
    out: Path | None = None,
) -> None:
    """Make confidence intervals from a topdown run's noisy measurements.

    Make best linear unbiased estimates from all noisy measurements of a topdown run, with exact
    standard deviations and intervals, for every area of its geolevels or for areas that are
    lists of blocks; or, of detailed groups, add up totals over areas that are lists of regions.
    Reads nothing confidential, and spends nothing.

    Args:
        query: marginal query, such as total or 'sex * age'; may be given several times
        universe: universe that is counted (default: the first of the run)
        geolevel: geolevel of the declared areas, or "GEOLEVEL of the spine" for the spine's own
            geounits where these differ (default: all)
        entities: own areas instead: CSV or Parquet with the columns area and block, or, in
            place of block, the name of a declared census's last geolevel; for detailed groups the
            columns area and region
        share_of: also the share of each answer in the containing answer of this query
        compare: pairs whose differences and ratios are wanted instead: CSV or Parquet with the
            columns first and second, geocodes of --geolevel or areas of --entities
        level: probability that an interval contains the truth
        out: file to write, .parquet or .csv (default: in the run's intervals/)
    """
    from ..tasks.detailed_groups.release.areas import write_area_sums
    from ..tasks.topdown.intervals.report import write_run_intervals  # 1.0 s

    found, _, other = existing_run(run_directory)
    if isinstance(other, DetailedGroupsSettings):
        refuse_altered(found)
        areas = None if any((universe, geolevel, share_of, compare)) else entities
        print(f"sums over areas: {write_area_sums(found, other, query, areas, level, out)}")
        return
    found, settings = _topdown_run(run_directory, "intervals")
    with print_work() as listener:
        written = write_run_intervals(
            found,
            settings,
            query,
            geolevel or entities,
            universe=universe,
            share_of=share_of,
            compare=compare,
            level=level,
            out=out,
            listener=listener,
        )
        sentences = [one.sentence() for one in written]
    print(*sentences, sep="\n")


def measurements(action: Literal["export"], run_directory: RunFolder, directory: Path, /) -> None:
    """Write a topdown run's noisy measurements in the published layout.

    Write the noisy measurements and constraints of a topdown run as the U.S. Census Bureau has
    published its own, with the state totals and the queries. 'spineflow run
    estimate' reads them. Nothing confidential is read, and nothing spent.

    Args:
        action: export, which writes them
        directory: new folder to write to
    """
    from ..tasks.topdown.published.export import export_measurements  # 0.8 s

    found, settings = _topdown_run(run_directory, "such measurements")
    for path in export_measurements(found, settings, directory):
        print(path)


def explore(run_directory: RunFolder, /) -> None:
    """Write a page to look at a release of topdown: tables, map and margins, without a network.

    It is one file, explore.html, next to the run's report.
    """
    from ..tasks.dissemination.explorer import write_explorer  # 1.3 s
    from ..tasks.topdown.release.tabulations.levels import variable_labels

    run, settings = _topdown_run(run_directory, "such tables")
    if not run.release.exists():
        raise InputRefused(f"{run.root} has no release; finish it with 'spineflow resume'.")
    geometry = settings.input.geometry
    path = run.report.with_name("explore.html")
    write_explorer(
        run.release,
        path,
        title=f"Release of {settings.privacy.dataset}",
        guarantee=summarise_statement(read_plan(run).statement),
        labels=variable_labels(map(settings.schema_of, settings.run.universes)),
        geometry=None if geometry is None else Path(geometry),
    )
    print(path)


def show_spine(
    settings_file: SettingsFile,
    /,
    *,
    overrides: Overrides = (),
    entities: Path | None = None,
    page: Path | None = None,
    csv: Path | None = None,
) -> None:
    """Show how far named entities are from the spine, from public data alone.

    Work out the off-spine distance of every entity of the categories that a topdown spine targets,
    such as places: the fewest geounits that are added and subtracted to make it up. Reads the
    geography and declared invariants, no person and no ledger, and spends nothing.

    Args:
        entities: further areas of your own: CSV or Parquet with the columns area and block
        page: also write an HTML page
        csv: also write the distances of all entities
    """
    from ..tasks.topdown.ingest.ingest import public_geography
    from ..tasks.topdown.intervals.areas import read_areas
    from ..tasks.topdown.release.spine_summary import spine_distances, spine_document

    settings = product(TopdownSettings.PRODUCT).load(settings_file, overrides)
    assert isinstance(settings, TopdownSettings)
    listed = None if entities is None else read_areas(entities)
    found = spine_distances(settings, public_geography(settings), listed)
    print_distances(settings, found)
    if csv is not None:
        # A row for each entity and spine.
        write_text(csv, found.entities.to_csv(index=False, lineterminator="\n"))
        print(f"entities: {csv}")
    if page is not None:
        print(f"page: {write_page(page, spine_document(settings, found))}")


def print_distances(settings: TopdownSettings, found: SpineDistances) -> None:
    """Statistics of every category, predicted deviations, and the entities that are farthest."""
    from ..tasks.topdown.release.spine_summary import (
        entity_tables,
        statistics_table,
        tabulated_deviations,
    )

    for universe, summary in found.summaries.items():
        wide_page().print(f"\n[bold]{universe}[/bold]: off-spine distances (geounits)")
        print_block(statistics_table(summary.distances))
        for block in tabulated_deviations(settings, summary.tabulated, universe):
            print_block(block)
        for table, _ in entity_tables(settings, found, universe, FARTHEST):
            print_block(table)


def write_published_input(release: Path, folder: Path, /) -> None:
    """Turn a published P.L. 94-171 release into input tables for experiments.

    Read the geographic header and the three segments of a state's published redistricting files,
    and write fictional records that tabulate to their block counts, with settings. An existing
    settings file is kept.

    Args:
        release: folder of the state's .pl files
        folder: folder to write the tables to
    """
    from ..tasks.topdown.release.tabulations.published import (
        published_blocks,
        read_published,
        write_input_tables,
    )

    blocks = published_blocks(read_published(release))
    tables = write_input_tables(blocks, folder)
    settings = folder / "settings.toml"
    if not settings.exists():
        shutil.copyfile(PUBLISHED, settings)
    if tables.n_units_occupied:
        print(f"housing units made occupied for households: {tables.n_units_occupied}")
    if tables.n_minors_moved:
        print(f"minors moved out of nursing facilities: {tables.n_minors_moved}")
    print(f"Input tables are in {folder}/; run them with:")
    print(f"spineflow run topdown {settings}")

"""Work of the command `spine`: off-spine distances of named entities, as table, page and CSV."""

from __future__ import annotations

from pathlib import Path

from ..tasks.products.registry import product
from ..tasks.runs.files import write_page, write_text
from ..tasks.topdown.ingest.ingest import public_geography
from ..tasks.topdown.intervals.areas import read_areas
from ..tasks.topdown.release.spine_distances import SpineDistances, spine_distances
from ..tasks.topdown.release.spine_section import (
    category_statistics,
    entity_tables,
    spine_document,
    statistics_table,
    tabulated_deviations,
)
from ..tasks.topdown.settings import TopdownSettings
from .arguments import Overrides, SettingsFile
from .console import page as wide_page
from .console import print_block

FARTHEST = 5
"""Entities of every category that are printed."""


def show_spine(
    settings_file: SettingsFile,
    /,
    *,
    overrides: Overrides = (),
    entities: Path | None = None,
    page: Path | None = None,
    csv: Path | None = None,
) -> None:
    """Work out the distances of a settings file of topdown, print them, and write page and CSV.

    Reads the geography, and of the census of 2020 the units, whose numbers are public by
    declaration: no person, and no ledger.

    Args:
        entities: further areas of your own: CSV or Parquet with the columns area and block
        page: also write an HTML page with charts
        csv: also write the distances of all entities
    """
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
    for universe in settings.run.universes:
        wide_page().print(f"\n[bold]{universe}[/bold]: off-spine distances (geounits)")
        print_block(statistics_table(category_statistics(found, universe)))
        deviations = found.deviations[found.deviations["universe"] == universe]
        for block in tabulated_deviations(settings, deviations, universe):
            print_block(block)
        for table in entity_tables(settings, found, universe, FARTHEST):
            print_block(table)

"""A published P.L. 94-171 release as input for experiments: tables, and settings to run them."""

from __future__ import annotations

from pathlib import Path

from ..tasks.topdown.release.tabulations.published import (
    published_blocks,
    read_published,
    write_input_tables,
)

SETTINGS = """\
# Made from a published release: fictional records that tabulate to its block counts.
preset = "pl94_2020_us"

[input]
persons = "persons.parquet"
units = "units.parquet"
geography = "grfc.txt"
confidential = false

[privacy]
dataset = "published"
ledger = "ledger.db"
"""


def write_published_input(release: Path, folder: Path, /) -> None:
    """Write the input tables of a state's published files into a folder, with their settings.

    Reports differences from the published counts, and how the tables are run. An existing settings
    file is kept.

    Args:
        release: folder of the state's .pl files
        folder: folder to write the tables to
    """
    blocks = published_blocks(read_published(release))
    tables = write_input_tables(blocks, folder)
    settings = folder / "settings.toml"
    if not settings.exists():
        settings.write_text(SETTINGS, encoding="utf-8")
    if tables.n_units_occupied:
        print(f"housing units made occupied for households: {tables.n_units_occupied}")
    if tables.n_minors_moved:
        print(f"minors moved out of nursing facilities: {tables.n_minors_moved}")
    print(f"Input tables are in {folder}/; run them with:")
    print(f"spineflow run topdown {settings}")

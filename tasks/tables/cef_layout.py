"""The Census Edited File (CEF) layout: columns of the three input tables, and fixed-width places.

`presets/cef_layout.toml` declares them.

No other part of the tables knows their names; what persons and units are counted by is declared
in `tasks/census/presets/cef_2020.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..runs.declared import read_declared
from .layouts import Field, TableLayout

_DECLARED = read_declared(Path(__file__).parent / "presets" / "cef_layout.toml")

LAYOUTS: Mapping[str, TableLayout] = {
    table: TableLayout(
        table, tuple(Field(**field) for field in own["fields"]), own.get("line_length")
    )
    for table, own in _DECLARED.items()
}
"""Layout of each input table by its name in the settings."""

PERSONS_LAYOUT, UNITS_LAYOUT = LAYOUTS["persons"], LAYOUTS["units"]
GEOGRAPHY_LAYOUT = LAYOUTS["geography"]

BLOCK_KEY = "OIDTABBLK"
"""Column with the identifier of a block."""

AIAN_COLUMN, RACE_COLUMN = "AIANNHCE", "CENRACE"
"""Columns with a block's AIAN area, and with a person's combination of races."""

GEOCODE_FIELDS = ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK")
"""The parts of a 16-digit block geocode: state, county, tract, block group, block."""

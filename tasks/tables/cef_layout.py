"""The Census Edited File (CEF) layout: columns of the three input tables, and fixed-width places.

No other module of the tables knows their names; what persons and units are counted by is declared
in `tasks/census/presets/cef_2020.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping

from .layouts import Field, TableLayout

PERSONS_LAYOUT = TableLayout(
    "persons",
    (
        Field("RTYPE", "number", 0, 1),
        Field("MAFID", "key", 1, 10),
        Field("CUF_PNC", "number", 10, 15),
        Field("BCUSTATEFP", "code", 15, 17, width=2),
        Field("QSEX", "number", 22, 23),
        Field("QAGE", "number", 23, 26),
        Field("QSPAN", "code", 42, 46, width=4),
        Field("CENHISP", "number", 47, 48),
        *(Field(f"QRACE{i + 1}", "code", 48 + 4 * i, 52 + 4 * i, width=4) for i in range(8)),
        Field("CENRACE", "number", 81, 83),
        Field("RELSHIP", "number", 85, 87),
        Field("QGQTYP", "number", 87, 90),
    ),
    line_length=91,
)

UNITS_LAYOUT = TableLayout(
    "units",
    (
        Field("RTYPE", "number", 0, 1),
        Field("MAFID", "key", 1, 10),
        Field("BCUSTATEFP", "code", 10, 12, width=2),
        Field("FINAL_POP", "number", 17, 22),
        Field("HHLDRAGE", "number", 22, 25),
        Field("HHSPAN", "number", 25, 26),
        Field("HHRACE", "number", 27, 29),
        Field("TEN", "number", 29, 30),
        Field("VACS", "number", 32, 33),
        Field("QGQTYP", "number", 33, 36),
        Field("OIDTB", "key", 37, 59),
        Field("HHT", "number", 59, 60),
        Field("HHT2", "number", 60, 62),
        Field("CPLT", "number", 62, 63),
        Field("UPART", "number", 63, 64),
        Field("MULTG", "number", 64, 65),
        Field("PAOC", "number", 65, 66),
        Field("P18", "number", 66, 68),
        Field("P60", "number", 68, 70),
        Field("P65", "number", 70, 72),
        Field("P75", "number", 72, 74),
        Field("PAC", "number", 74, 75),
        Field("HHSEX", "number", 75, 76),
    ),
    line_length=76,
)

BLOCK_KEY = "OIDTABBLK"
"""Column with the identifier of a block."""

AIAN_COLUMN, RACE_COLUMN = "AIANNHCE", "CENRACE"
"""Columns with a block's AIAN area, and with a person's combination of races."""

GEOCODE_FIELDS = ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLKGRPCE", "TABBLK")
"""The parts of a 16-digit block geocode: state, county, tract, block group, block."""

GEOGRAPHY_LAYOUT = TableLayout(
    "geography",
    (
        Field(BLOCK_KEY, "key"),
        Field("TABBLKST", "code", width=2),
        Field("TABBLKCOU", "code", width=3),
        Field("TABTRACTCE", "code", width=6),
        Field("TABBLKGRPCE", "code", width=1),
        Field("TABBLK", "code", width=4),
        Field("AIANNHCE", "code", width=4),
        Field("COUSUBFP", "code", width=5),
        Field("PLACEFP", "code", width=5),
    ),
)

LAYOUTS: Mapping[str, TableLayout] = {
    layout.table: layout for layout in (PERSONS_LAYOUT, UNITS_LAYOUT, GEOGRAPHY_LAYOUT)
}
"""Layout of each input table by its name in the settings."""

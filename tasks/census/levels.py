"""Levels of the block geocode, and what else a geography table tells of the region of a block."""

from __future__ import annotations

import pandas as pd

from ..runs.errors import InputRefused
from ..runs.names import is_file_name

NATION = "US"
GEOCODE_DIGITS = {
    NATION: 0,
    "State": 2,
    "County": 5,
    "Tract": 11,
    "Block_Group": 12,
    "Block": 16,
}
"""Levels of the block geocode, by the digits of it that name a region."""


def codes_of_level(geography: pd.DataFrame, name: str, file: str = "geography") -> pd.Series:
    """The region of every block of a geography frame at a level, as text.

    A level is one of `GEOCODE_DIGITS`, where the nation's code is 0, or a column of the frame.
    Raises InputRefused, naming `file`, for a name that is neither.
    """
    if name in GEOCODE_DIGITS:
        digits = GEOCODE_DIGITS[name]
        geocode = geography["block_geocode"].astype(str)
        return geocode.str[:digits] if digits else pd.Series("0", index=geography.index)
    if name in geography.columns and is_file_name(name):
        return geography[name].astype(str)
    known = [*GEOCODE_DIGITS, *(c for c in geography.columns if c != "block_geocode")]
    raise InputRefused(
        f"{file}: geography.levels names {name!r}, but there are {', '.join(known)}."
    )

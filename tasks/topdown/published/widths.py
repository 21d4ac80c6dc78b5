"""Geocodes of an export, of the widths by which readers of the published files cut them.

    State 3, County 9, Tract 12, Block_Group 14, Block 30

A spine's own codes are as long as its data need. Those of an export begin with the parent's, too,
and go on with a running digit of a county, also where it is not split, three of a tract and two of
a block group, all from 1 on, and the 16 digits of the block. Where the digits of a tract do not
reach, as in Los Angeles, letters go on from 9. The codes of the conventional spine, which are
those of the tabulation, stay as they are.
"""

from __future__ import annotations

import numpy as np

from ....geography.levels import Spine
from ...runs.errors import InputRefused

STATE_WIDTH = 3
"""Of a state's code on a spine with an AIAN branch; others keep their codes."""

COUNTY = "10"
"""Stands between a state's code and the FIPS of its county."""

COUNTY_DIGITS = 3

RUNNING = {"County": 1, "Tract": 3, "Block_Group": 2}
"""Characters of the running numbers."""

CHARACTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def published_geocodes(spine: Spine) -> dict[str, np.ndarray]:
    """(n,) published geocode of every geounit of each geolevel, as bytes, in the spine's order.

    Raises InputRefused for a geounit with more children than its width has numbers.
    """
    codes: dict[str, np.ndarray] = {}
    above = np.empty(0, dtype="S0")
    has_branch = "State" in spine.names and len(spine.geolevel("State").geocode[0]) == STATE_WIDTH
    for level in spine.geolevels:
        own = np.asarray(level.geocode).astype("S")
        if not has_branch or level.name in ("US", "State"):
            codes[level.name] = own
        elif level.name == "Block":
            blocks = np.asarray(spine.block_geocode).astype("S")
            codes[level.name] = np.char.add(above[level.parent], blocks)
        else:
            start = above[level.parent]
            if level.name == "County":
                end = STATE_WIDTH + len(COUNTY) + COUNTY_DIGITS
                start = own.astype(f"S{end}")
            number = running(start, RUNNING[level.name], level.name)
            codes[level.name] = np.char.add(start, number)
        above = codes[level.name]
    return codes


def running(start: np.ndarray, width: int, geolevel: str) -> np.ndarray:
    """(n,) number of each geounit among those whose code begins alike and that stand together.

    Raises InputRefused where the width has too few numbers.
    """
    is_first = np.r_[True, start[1:] != start[:-1]]
    firsts = np.flatnonzero(is_first)
    number = np.arange(len(start)) - firsts[np.cumsum(is_first) - 1] + 1
    if len(number) and number.max() >= len(CHARACTERS) ** width:
        place = int(np.argmax(number))
        raise InputRefused(
            f"geounit {start[place].decode()} has more geounits of {geolevel} than the published "
            f"layout can number with {width} characters; export a spine that splits it less."
        )
    needs_letters = len(number) and number.max() >= 10**width
    texts = [
        numbered(int(n), width, letters=bool(needs_letters))
        for n in range(number.max(initial=0) + 1)
    ]
    return np.array(texts, dtype="S")[number]


def numbered(number: int, width: int, *, letters: bool) -> str:
    """A running number with so many characters, which sort as the numbers do.

    >>> numbered(7, 3, letters=False), numbered(1296, 3, letters=True)
    ('007', '100')
    """
    base, text = len(CHARACTERS) if letters else 10, ""
    for _ in range(width):
        number, digit = divmod(number, base)
        text = CHARACTERS[digit] + text
    return text

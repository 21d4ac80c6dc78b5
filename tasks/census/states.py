"""What a geographic header says of a state: public codes of the Census Bureau and of the GNIS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class State:
    """A state: FIPS code, postal abbreviation, census region and division, GNIS code, name."""

    fips: str
    abbreviation: str
    region: str
    division: str
    gnis: str
    name: str


_LINES = (Path(__file__).parent / "presets" / "states.txt").read_text(encoding="utf-8")

STATES: Mapping[str, State] = {line[:2]: State(*line.split(" ", 5)) for line in _LINES.splitlines()}
"""By FIPS code."""


def state_of(fips: str) -> State:
    """The state of a FIPS code; one that no state has stands for itself."""
    return STATES.get(fips) or State(fips, fips, "", "", "", fips)

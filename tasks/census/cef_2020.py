"""The 2020 universes on the Census Edited File layout, as products that read it know them.

Public facts about a state for a geographic header: codes of the Census Bureau and of the GNIS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .census import preset_census
from .recodes import Recode

CENSUS = preset_census("cef_2020")
"""The census declared in `presets/cef_2020.toml`."""

PERSONS = CENSUS.schema("persons")
"""Persons of the redistricting product: 2,016 cells."""

UNITS = CENSUS.schema("units")
"""Housing units of the redistricting product: vacant, occupied."""

IDENTITY_COLUMNS = ("block_geocode", *CENSUS.universes["persons"].declared.identity, "persons")
"""Canonical columns by which the ledger recognises persons, as integers: geocode of 16 digits,
levels, and the number of persons, one row for every combination that occurs."""

TYPE_COLUMN, AGE_COLUMN = "QGQTYP", "QAGE"

(TYPE,) = CENSUS.universes["facilities"].declared.attributes
N_TYPES = len(PERSONS.labels(TYPE))
"""Types of address: housing units and the types of group quarters."""


def recode_of(universe: str, attribute: str) -> Recode:
    """The recode of an attribute of a universe."""
    return CENSUS.universes[universe].recodes[attribute]


def type_of(qgqtyp: str | None) -> int:
    """Group-quarters type of a code, 1 to 7; 0 for a blank one, which a household has; negative for
    an unknown one.
    """
    return recode_of("facilities", TYPE).level_of(qgqtyp)


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
    """Return the state of a FIPS code; an unknown code names itself."""
    return STATES.get(fips) or State(fips, fips, "", "", "", fips)

"""Released persons as members of households, and back: levels of the declared attributes, and the
record codes that describe members.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from ...census.census import Universe, preset_census
from ...census.households import HOUSEHOLDER, MALE, Members
from ...census.recodes import CodeSet
from .household_types import FIRST_RELATIONSHIP, LAST_RELATIONSHIP

CENSUS, PERSONS = "dhc_persons_2020", "persons"
KIND, SEX, AGE, ORIGIN, RACE = range(5)
"""Places of the attributes in the schema of persons: relationship or group quarters, and so on."""

_FIRST = 1
"""First code of sexes, origins and races; levels begin with 0."""


@dataclass(frozen=True, eq=False)
class Relationships:
    """Which relationship each level of persons is: RELSHIP `(n_levels,)`, 0 in group quarters; and
    the level of each RELSHIP from 20 on, of a householder who is not alone. `labels` name the
    relationships, alone or not.
    """

    of_level: np.ndarray
    level: np.ndarray
    alone: int
    labels: tuple[str, ...]


def universe() -> Universe:
    """The declared universe of persons."""
    return preset_census(CENSUS).universes[PERSONS]


@cache
def relationships() -> Relationships:
    """The relationships of the declared levels."""
    declared = universe()
    recode = declared.recodes[declared.schema.attributes[KIND]]
    of_level = np.zeros(len(recode.levels), dtype=np.int64)
    level_of = np.zeros(1 + LAST_RELATIONSHIP - FIRST_RELATIONSHIP, dtype=np.int64)
    alone = -1
    for level, where in recode.rules:
        codes, size = where["RELSHIP"], where.get("units.FINAL_POP")
        if level < 0 or not isinstance(codes, CodeSet) or len(codes.texts) != 1:
            continue
        code = int(next(iter(codes.texts)))
        if not FIRST_RELATIONSHIP <= code <= LAST_RELATIONSHIP:
            continue
        of_level[level] = code
        if isinstance(size, CodeSet) and size.ranges == ((1, 1),):
            alone = level
        else:
            level_of[code - FIRST_RELATIONSHIP] = level
    labels = np.where(of_level == HOUSEHOLDER, "householder", np.array(recode.levels))
    return Relationships(of_level, level_of, alone, tuple(labels.tolist()))


def members_of(levels: np.ndarray) -> Members:
    """Persons `(5, n)` by levels as members without units; RELSHIP is 0 in group quarters."""
    return Members(
        np.full(levels.shape[1], -1),
        relationships().of_level[levels[KIND]],
        levels[AGE],
        levels[SEX] + MALE,
        levels[ORIGIN] + _FIRST,
        levels[RACE] + _FIRST,
    )


def levels_of(members: Members, size: np.ndarray) -> np.ndarray:
    """Levels `(5, n)` of members of households; `size` (n_units,) identifies persons living
    alone.
    """
    known = relationships()
    is_alone = (members.relationship == HOUSEHOLDER) & (size[members.unit] == 1)
    level = known.level[members.relationship - FIRST_RELATIONSHIP]
    kind = np.where(is_alone, known.alone, level)
    origin, race = members.hispanic - _FIRST, members.race - _FIRST
    return np.stack([kind, members.sex - MALE, members.age, origin, race])

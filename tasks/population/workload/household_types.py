"""The types of households that units are counted by, as constraints on their members.

A type is identified by its declared label. The structural zeros of the universe determine the types
possible with the householder's sex and age and the oldest member's age.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import numpy as np

from ...census.census import Universe, preset_census
from ...census.schema import Schema
from .places import SCHOOLCHILD, TEENAGER, YOUNG

CENSUS, HOUSEHOLDS, UNITS = "dhc_units_2020", "households", "units"
SEX, AGE, ORIGIN, RACE, ELDERLY, TENURE, TYPE = range(7)
"""Places of the attributes in the schema of households."""

COUPLES = (
    "married opposite",
    "married same",
    "cohabiting opposite",
    "cohabiting same",
    "no couple",
)
NO_COUPLE = 4
OPEN_SIZE = 7
"""The size that represents itself and all larger ones."""

_AGES = {
    "none": (),
    "under 6": (YOUNG,),
    "6 to 17": (SCHOOLCHILD,),
    "of both ages": (YOUNG, SCHOOLCHILD),
}

FIRST_AGES = (15, 25, 35, 45, 55, 60, 65, 75, 85)
"""First age of each level of a householder's age."""


def levels_of_age(age: np.ndarray) -> np.ndarray:
    """Level of a householder of each age; -1 for ages too young."""
    return np.searchsorted(FIRST_AGES, age, side="right") - 1


@dataclass(frozen=True)
class HouseholdType:
    """Attributes of a type: couple, whether relatives live there, bands of own children and of all
    children, whether anyone is a minor, whether three generations, size.
    """

    couple: int
    has_relatives: bool
    own: tuple[int, ...]
    children: tuple[int, ...]
    has_minors: bool
    is_multigenerational: bool
    size: int

    @property
    def is_married(self) -> bool:
        """Whether the householder has a spouse, who is a relative."""
        return self.couple < 2

    @property
    def is_couple(self) -> bool:
        """Whether the householder has a spouse or partner."""
        return self.couple != NO_COUPLE


def type_of_label(label: str) -> HouseholdType:
    """The type of a label.

    >>> label = "no couple; relatives; own under 6; children of both ages; minors; size 4"
    >>> type_of_label(label).own
    (0,)
    """
    size = re.search(r"; size (\d)\+?$", label)
    if size is None:
        raise ValueError(f"{label!r} has no size")
    couple, relatives, own, children, minors, *rest = label.split("; ")
    return HouseholdType(
        COUPLES.index(couple),
        relatives == "relatives",
        _AGES[own.removeprefix("own ")],
        _AGES[children.removeprefix("children ")],
        minors == "minors",
        "three generations" in rest,
        int(size[1]),
    )


def minor_bands(ages: tuple[int, ...]) -> tuple[int, ...]:
    """Bands of places of children under 6, of 6 to 17, or both."""
    return tuple(b for age in ages for b in ((YOUNG,) if age == YOUNG else (SCHOOLCHILD, TEENAGER)))


def universe() -> Universe:
    """The declared universe of households."""
    return preset_census(CENSUS).universes[HOUSEHOLDS]


def unit_kinds() -> Schema:
    """Attributes that units are counted by: tenure, kind of vacancy, or type of group quarters."""
    return preset_census(CENSUS).universes[UNITS].schema


@cache
def household_types() -> tuple[HouseholdType, ...]:
    """All types, in the order of their levels."""
    schema = universe().schema
    return tuple(type_of_label(label) for label in schema.labels(schema.attributes[TYPE]))


@cache
def parts_of_types() -> dict[str, np.ndarray]:
    """Parts that each type consists of, as levels `(n_types,)` by name of the part; own children
    and all children are 1 under 6, 2 from 6 to 17, 3 of both ages.
    """
    types = household_types()
    kin = [one.has_relatives or one.is_married for one in types]
    generations = [one.is_multigenerational for one in types]
    return {
        "couple": np.array([one.couple for one in types]),
        "own": np.array([sum(1 << age for age in one.own) for one in types]),
        "children": np.array([sum(1 << age for age in one.children) for one in types]),
        "kin": np.array(kin).astype(int),
        "minors": np.array([one.has_minors for one in types]).astype(int),
        "generations": np.array(generations).astype(int),
        "size": np.array([one.size for one in types]),
    }


@cache
def possible() -> np.ndarray:
    """Mask `(2, 9, 4, 522)` of the combinations of the householder's sex and age, the oldest
    member and the type that no structural zero excludes.
    """
    schema = universe().schema
    own = schema.of([schema.attributes[axis] for axis in (SEX, AGE, ELDERLY, TYPE)])
    mask = np.ones(own.shape, dtype=bool)
    for zero in universe().zeros:
        mask &= ~own.cells_where(zero.where).reshape(own.shape)
    return mask

"""Households and their members as the tables count them: areas, kinds, race and origin, cells.

Of persons there stays what the cells need; of units, the columns that the Census Edited File has of
households. Every count reads them through `cells_of` and `truncated`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ....geography.hierarchy import ranks_within
from ...census.cef_tables import UNIT_KEY
from ...census.households import ADULT, HOUSEHOLDER, OWN_CHILDREN, RELATIVES, Members
from ...census.members import read_units
from ...tables.columns import canonical_keys
from ...tables.sources import InputFile
from ..workload.measures import EVERYBODY, ITERATIONS, MEASURES, ORIGINS, PERSONS, RACES

NOWHERE = -1
"""The cell of a record outside the universe, and the iteration of one that is in none."""

FAMILY = 3
"""The last HHT of families, 1 married couples, 2 and 3 others; from 4 on households of none."""
SPOUSES = (21, 23)
GRANDCHILD = 30
WITH_OWN_CHILDREN = (1, 3, 10, 6)
"""HHT2 of families with own children under 18: married, cohabiting, male, female householder."""
AGES_OF_CHILDREN = (4, 6, 12, 18)
"""Ages at which a child leaves the groups under 4, 4 and 5, 6 to 11, 12 to 17."""
RENTERS = 3
"""The first TEN of renters; before are owners, with a mortgage and without."""
HISPANIC, WHITE, TWO_OR_MORE = 2, 1, 7
"""CENHISP and HHSPAN of Hispanics; the first race, and the first combination of several races."""
TENURES = 4

TENURE = "TEN"
UNIT_COLUMNS = (TENURE, "HHT", "HHT2", "CPLT", "HHRACE", "HHSPAN")
"""Of units, in the order of `Households`."""


@dataclass(frozen=True, eq=False)
class Households:
    """The columns of units, `(n_units,)` each, int; of units in which nobody lives 0 throughout.

    tenure, kind, detailed_kind, couple : TEN, HHT, HHT2 and CPLT.
    race, hispanic : HHRACE and HHSPAN.
    key : a hash of the identifier, uint64.
    """

    tenure: np.ndarray
    kind: np.ndarray
    detailed_kind: np.ndarray
    couple: np.ndarray
    race: np.ndarray
    hispanic: np.ndarray
    key: np.ndarray

    @property
    def n_of_unknown_tenure(self) -> int:
        """How many households have no tenure."""
        is_known = (self.tenure >= 1) & (self.tenure <= TENURES)
        return int(((self.kind > 0) & ~is_known).sum())


def read_households(units: Sequence[InputFile]) -> Households:
    """The units in the order of their files.

    Tables must have passed the rules on census tables, and units must have the columns that their
    members tell (`tasks.census.members`). Raises UnreadableInput.
    """
    keys, _, values_of = read_units(units, UNIT_COLUMNS, UNIT_KEY)
    hashes = [key_hashes(canonical_keys(part).to_pylist()) for part in keys.chunks()]
    columns = [*values_of.values(), np.concatenate(hashes)]
    return Households(*columns)


def key_hashes(keys: Sequence[object]) -> np.ndarray:
    """A hash of 64 bits of every identifier, which depends on nothing else, uint64."""
    texts = np.array([str(key) for key in keys], dtype=object)
    return pd.util.hash_array(texts, categorize=False)


def orders(households: Households, members: Members) -> np.ndarray:
    """A number of every member, by which the members of a household are put in order, uint64.

    It is a hash of the unit's identifier and of all that is known of the member, so that who else
    there is changes nothing about it; members with the same number are alike in every count.
    """
    packed = np.zeros(len(members.age), dtype=np.uint64)
    for column in (
        members.relationship,
        members.age,
        members.sex,
        members.hispanic,
        members.race,
    ):
        packed = packed * np.uint64(1 << 10) + column.astype(np.uint64)
    return _mixed(households.key[members.unit] ^ _mixed(packed))


def _mixed(values: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser, a one-to-one function of 64 bits."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def truncated(unit: np.ndarray, order: np.ndarray, tau: int) -> np.ndarray:
    """The persons that stay if of every unit only the first tau in order do, `(n_persons,)` bool.

    >>> truncated(np.array([0, 0, 0, 1]), np.array([5, 3, 4, 9], dtype=np.uint64), 2).tolist()
    [False, True, True, True]
    """
    by_unit = np.lexsort((order, unit))
    stays = np.empty(len(unit), dtype=bool)
    stays[by_unit] = ranks_within(unit[by_unit]) < tau
    return stays


def cells_of(measure: str, households: Households, members: Members) -> np.ndarray:
    """The cell of every person, or of every unit for a number of households; `NOWHERE` outside."""
    cells = _of_units(measure, households)
    return cells if cells is not None else _of_persons(measure, households, members)


def _of_units(measure: str, households: Households) -> np.ndarray | None:
    """Cells of units, None for a measure of persons."""
    is_household, kind = households.kind > 0, households.kind
    if measure == "PH1_denom":
        return np.where(is_household, 0, NOWHERE)
    if measure == "PH5_denom":
        return np.where(is_household & (kind <= FAMILY), 0, NOWHERE)
    if measure == "PH8_denom":
        return np.where(is_household, (households.tenure >= RENTERS).astype(int), NOWHERE)
    return None


def _of_persons(measure: str, households: Households, members: Members) -> np.ndarray:
    unit, age = members.unit, members.age
    is_adult = (age >= ADULT).astype(int)
    is_own = members.are(*OWN_CHILDREN) & (age < ADULT)
    family = pd.Index(WITH_OWN_CHILDREN).get_indexer(households.detailed_kind[unit])
    if measure == "PH1_num":
        return is_adult
    if measure == "PH2":
        return _couples(households)[unit]
    if measure == "PH3":
        cell = np.select(
            [members.are(*OWN_CHILDREN), members.are(GRANDCHILD), members.are(28, RELATIVES[1])],
            [1 + family, 5, 6],
            0,
        )
        return np.where(age < ADULT, cell, NOWHERE)
    if measure == "PH4":
        is_related = members.are(HOUSEHOLDER) | members.are(*RELATIVES)
        for relationship in SPOUSES:
            is_related |= members.are(relationship)
        kind = households.kind[unit]
        return np.where(is_related & (kind >= 1) & (kind <= FAMILY), is_adult, NOWHERE)
    if measure == "PH6":
        group = np.searchsorted(AGES_OF_CHILDREN, age, side="right")
        return np.where(is_own & (family >= 0), 4 * family + group, NOWHERE)
    if measure == "PH7":
        return np.minimum(households.tenure[unit], RENTERS) - 1
    raise ValueError(f"unknown measure {measure!r}")


def _couples(households: Households) -> np.ndarray:
    """Cells of PH2 by unit: couples by CPLT, else householders by sex, alone or with others."""
    kind, couple = households.detailed_kind, households.couple
    is_couple = (kind >= 1) & (kind <= 4)
    single = np.select([kind == 9, kind >= 10, kind == 5], [4, 5, 6], 7)
    return np.where(is_couple, couple - 1, single)


def iteration_of(key: str, race: np.ndarray, hispanic: np.ndarray) -> np.ndarray:
    """The place of every record's iteration among those of a key; `NOWHERE` for one in none.

    >>> iteration_of("A-G", np.array([1, 9]), np.array([1, 1])).tolist()
    [0, 6]
    >>> iteration_of("H,I", np.array([1, 1, 2]), np.array([2, 1, 1])).tolist()
    [0, 1, -1]
    """
    if key == EVERYBODY:
        return np.zeros(len(race), dtype=np.int64)
    if key == RACES:
        return np.minimum(race, TWO_OR_MORE) - 1
    if key == ORIGINS:
        is_hispanic = hispanic == HISPANIC
        return np.select([is_hispanic, race == WHITE], [0, 1], NOWHERE)
    raise ValueError(f"unknown iterations {key!r}; there are {', '.join(ITERATIONS)}")


def is_of_persons(measure: str) -> bool:
    """Whether a measure counts persons."""
    return MEASURES[measure].counted == PERSONS

"""The columns of a unit of the Census Edited File that follow from its members: type of household,
couple, children, and how many are young or old.

The 2020 file has them in the records of units, computed from the records of persons before any
product reads either. Where they are absent they are computed here from RELSHIP, age and sex of the
members; where present, they are compared with the computed values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

HOUSEHOLDER = 20
OWN_CHILDREN, RELATIVES, CHILDREN = (25, 27), (25, 33), (25, 36)
"""First and last RELSHIP of the householder's own children, of relatives other than spouses, and of
all who count as children while they are minors."""
OTHER_GENERATIONS = (29, 31)
"""Parents, grandchildren and parents-in-law, who make a third generation in addition to an own
child."""
MALE, FEMALE = 1, 2
YOUNGEST_HOUSEHOLDER, ADULT, SCHOOL = 15, 18, 6

UNIT_COLUMNS = (
    *("FINAL_POP", "HHLDRAGE", "HHSPAN", "HHRACE", "HHT", "HHT2", "CPLT", "UPART", "MULTG"),
    *("PAOC", "P18", "P60", "P65", "P75", "PAC", "HHSEX"),
)
"""Columns computed from members of a unit, in the order of the file."""


@dataclass(frozen=True, eq=False)
class Members:
    """Persons in households, `(n_persons,)` each: the number of their unit, RELSHIP, QAGE, QSEX,
    CENHISP, and the combination of races.
    """

    unit: np.ndarray
    relationship: np.ndarray
    age: np.ndarray
    sex: np.ndarray
    hispanic: np.ndarray
    race: np.ndarray

    def number(self, n_units: int, of: np.ndarray) -> np.ndarray:
        """Number of members of each unit `(n_units,)` within a mask."""
        return np.bincount(self.unit[of], minlength=n_units).astype(np.int64)

    def of_householder(self, n_units: int, values: np.ndarray) -> np.ndarray:
        """Value, among `(n_persons,)`, of the householder of each unit `(n_units,)`, the last one
        listed; 0 without one."""
        found, heads = np.zeros(n_units, dtype=np.int64), self.are(HOUSEHOLDER)
        found[self.unit[heads]] = values[heads]
        return found

    def are(self, first: int, last: int | None = None) -> np.ndarray:
        """Whether their RELSHIP is `first`, or from `first` to `last`."""
        last = first if last is None else last
        return (self.relationship >= first) & (self.relationship <= last)


def unit_columns(members: Members, n_units: int) -> dict[str, np.ndarray]:
    """`UNIT_COLUMNS` of every unit, `(n_units,)` int64; 0 throughout for units without members.

    In a household with several householders, spouses or partners, which `incoherent` counts, the
    last one listed counts.
    """
    number, of_householder = (
        partial(of, n_units) for of in (members.number, members.of_householder)
    )
    age = members.age
    size = number(np.ones(len(age), dtype=bool))
    is_occupied, is_alone = size > 0, size == 1
    sex = of_householder(members.sex)
    opposite_spouse, opposite_partner, same_spouse, same_partner = (
        number(members.are(relationship)) > 0 for relationship in (21, 22, 23, 24)
    )
    is_married = opposite_spouse | same_spouse
    is_cohabiting = (opposite_partner | same_partner) & ~is_married
    has_relatives = number(members.are(*RELATIVES)) > 0
    is_young, is_older = age < SCHOOL, (age >= SCHOOL) & (age < ADULT)
    own, others = members.are(*OWN_CHILDREN), members.are(*CHILDREN)
    own_ages = _presence(number(own & is_young), number(own & is_older))
    other_ages = _presence(number(others & is_young), number(others & is_older))
    has_own_minor = own_ages < 4
    three = (number(own) > 0) & (number(members.are(*OTHER_GENERATIONS)) > 0)
    is_woman = sex == FEMALE
    nonfamily = np.where(is_woman, 6, 4) + ~is_alone
    household_type = np.where(
        is_married, 1, np.where(has_relatives, np.where(is_woman, 3, 2), nonfamily)
    )
    lone = np.select([is_alone, has_own_minor, has_relatives], [0, 1, 2], 3)
    partnered = np.where(is_married, 1, 3) + ~has_own_minor
    couple = np.select(
        [opposite_spouse, same_spouse, opposite_partner, same_partner], [1, 2, 3, 4], 5
    )
    partners = np.where(same_partner, np.where(is_woman, 3, 1), np.where(is_woman, 4, 2))
    found = {
        "FINAL_POP": size,
        "HHLDRAGE": of_householder(age),
        "HHSPAN": of_householder(members.hispanic),
        "HHRACE": of_householder(members.race),
        "HHT": household_type,
        "HHT2": np.where(is_married | is_cohabiting, partnered, np.where(is_woman, 5, 9) + lone),
        "CPLT": np.where(is_alone, 0, couple),
        "UPART": np.where(is_alone, 0, np.where(is_cohabiting, partners, 5)),
        "MULTG": np.where(size <= 2, 0, 1 + three),
        "PAOC": own_ages,
        "P18": number(age < ADULT),
        "P60": number(age >= 60),
        "P65": number(age >= 65),
        "P75": number(age >= 75),
        "PAC": other_ages,
        "HHSEX": sex,
    }
    return {name: np.where(is_occupied, values, 0) for name, values in found.items()}


def _presence(young: np.ndarray, older: np.ndarray) -> np.ndarray:
    """Codes of PAOC and PAC: 1 only under 6, 2 only 6 to 17, 3 both, 4 none."""
    return np.select([(young > 0) & (older > 0), young > 0, older > 0], [3, 1, 2], 4)


def incoherent(members: Members, n_units: int) -> dict[str, int]:
    """How many households break each rule without which their columns have no meaning.

    The keys are the rules as clauses with "must"; only broken rules are included.
    """
    number = partial(members.number, n_units)
    heads, opposite, same = (members.are(*kinds) for kinds in ((HOUSEHOLDER,), (21, 22), (23, 24)))
    differs = members.sex != members.of_householder(n_units, members.sex)[members.unit]
    size = number(np.ones(len(heads), dtype=bool))
    too_young = heads & (members.age < YOUNGEST_HOUSEHOLDER)
    unfit = (opposite & ~differs) | (same & differs)
    spouses = "a household must have no more than one spouse or partner (RELSHIP 21 to 24)"
    broken = {
        "a household must have one householder (RELSHIP 20)": (size > 0) & (number(heads) != 1),
        spouses: number(opposite | same) > 1,
        "a householder must be 15 or older": number(too_young) > 0,
        "the sex of a spouse or partner must fit RELSHIP 21 to 24": number(unfit) > 0,
        "who lives in a household must have RELSHIP 20 to 36": number(~members.are(20, 36)) > 0,
    }
    return {rule: int(mask.sum()) for rule, mask in broken.items() if mask.any()}


def disagreements(
    columns: Mapping[str, np.ndarray], made: Mapping[str, np.ndarray]
) -> dict[str, int]:
    """In how many units `(n_units,)` each column of a table differs from the value computed from
    members; only columns with differences are included.
    """
    found = {name: int((columns[name] != made[name]).sum()) for name in made if name in columns}
    return {name: number for name, number in found.items() if number}

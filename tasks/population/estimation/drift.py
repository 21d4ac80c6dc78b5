"""What earlier blocks have changed on the way, by which later ones make up for it.

Changes that a block needs would add up over the blocks of a tract where they all go one way. So the
numbers of records that were made more or fewer are carried from block to block, within each block
group, tract, county and state, and changes that bring a number back cost less, changes that take it
further away more. All of it follows from released counts and from the order of the codes.

A price that is in proportion to a number holds it where it makes up for what drives it: at some
records in all, however many blocks there are. So the larger the area that it is carried through,
the less is the part of its records that was changed one way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np

from ...census.households import MALE
from ..workload.changes import LEAST
from ..workload.household_types import FIRST_AGES, parts_of_types
from ..workload.places import (
    FIRST_RELATIONSHIP,
    LAST_RELATIONSHIP,
    N_BANDS,
    N_PLACES,
    OLDEST,
    ROLES,
    distances,
    places_of,
)
from ..workload.tables import details
from .cells import Cells

_WEIGHTS = np.array([0.06, 0.02, 0.03, 0.03])
"""What a record too many in the state, county, tract and block group of a block adds to a cost."""
_MOST = 0.9
"""What drift adds or takes away at most, of a number."""

_OF_PART = {
    "couple": 4.0,
    "own": 1.5,
    "generations": 2.0,
    "kin": 1.0,
    "size": 0.15,
    "children": 0.01,
    "minors": 0.01,
}
"""How much each part of a type counts; less where the release tells it less well."""

_OF_FAMILY = 6.0
"""How much couple and own children count together, by sex of the householder and tenure."""

_OF_DETAIL = 1.5
"""How much the parts of a type that the finest query tells count together, by tenure."""

_OF_HEAD = 0.5
"""How much the householder's age counts, by sex and tenure."""

_OF_HOUSEHOLD = 5.0
"""How much the householder's age counts with what the finest query tells of the type, by sex and
tenure."""

_OF_ROLE = 2.0
"""How much the role of a person counts, and the relationship."""

_OF_PLACE = 1.5
"""How much role and band of ages of a person count together, and relationship and band."""

_OF_LARGER = 0.03
"""How much blocks with households beyond seven count."""
_LARGER = 0.45
"""How many of the households of seven or more are thought to have more than seven members: no
release tells it."""

N_LEVELS = len(_WEIGHTS)
_RACES, _N_FAMILIES = 7, 12
_N_AGES = len(FIRST_AGES)
_N_RELATIONSHIPS = 1 + LAST_RELATIONSHIP - FIRST_RELATIONSHIP


class Drift:
    """Records made more, or fewer if negative, by state, county, tract and block group: of persons
    by role and band, by sex and age, by sex and origin, by relationship; of households by parts of
    their type, by couple and own children at once, by origin and race, by sex and level of age,
    and by that with all that the finest query tells of the type; and blocks with households beyond
    seven.
    """

    def __init__(self, n_chains: int = 1) -> None:
        """Nothing has been changed yet.

        n_chains : the parts in which the state is made side by side, each of which hears of itself
            alone: what it hears counts as many times.
        """
        self._weights = _WEIGHTS * [n_chains, 1, 1, 1]
        self.prices = np.zeros(N_PLACES)
        """Prices of persons by place where they were last asked for, with which a block begins."""
        self.cells = Cells()
        """What was changed in the rows of the finest tables, which exchanges make up for."""
        self._areas: tuple[str, ...] = ("",) * N_LEVELS
        self._counts = {
            "role": np.zeros((N_LEVELS, len(ROLES))),
            "band": np.zeros((N_LEVELS, N_BANDS)),
            "age": np.zeros((N_LEVELS, 2 * (OLDEST + 1))),
            "sex": np.zeros((N_LEVELS, 4)),
            "race": np.zeros((N_LEVELS, 2 * _RACES)),
            "relationship": np.zeros((N_LEVELS, _N_RELATIONSHIPS)),
            "place": np.zeros((N_LEVELS, N_PLACES)),
            "member": np.zeros((N_LEVELS, _N_RELATIONSHIPS * N_BANDS)),
            "family": np.zeros((N_LEVELS, 4 * _N_FAMILIES)),
            "detail": np.zeros((N_LEVELS, 2 * _n_details())),
            "head": np.zeros((N_LEVELS, 4 * _N_AGES)),
            "household": np.zeros((N_LEVELS, 4 * _n_details() * _N_AGES)),
            "larger": np.zeros((N_LEVELS, 1)),
            **{name: np.zeros((N_LEVELS, n)) for name, n in _sizes().items()},
        }

    def enter(self, areas: Sequence[str]) -> None:
        """Go on with a block of a state, county, tract and block group; of others nothing is
        carried."""
        for level, area in enumerate(areas):
            if area != self._areas[level]:
                for counts in self._counts.values():
                    counts[level] = 0.0
        self._areas = tuple(areas)

    def of(self, name: str, weight: float = 1.0) -> np.ndarray:
        """What one more record of each kind adds to a cost."""
        most = _MOST * max(1.0, weight)
        return np.clip(weight * (self._weights @ self._counts[name]), -most, most)

    def of_heads(self, sex: np.ndarray, is_rented: np.ndarray) -> np.ndarray:
        """What making the householder of each household of each level of ages adds to a cost, by
        what the finest query tells of its type `(n, n_details, n_levels)`, given the householders'
        sex and whether they rent."""
        group = sex * 2 + is_rented
        of_head = self.of("head", _OF_HEAD).reshape(4, 1, _N_AGES)
        of_household = self.of("household", _OF_HOUSEHOLD).reshape(4, _n_details(), _N_AGES)
        return (of_head + of_household)[group]

    def add(self, before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> None:
        """Records were of the kinds `before`, and are made of the kinds `after`."""
        for name, made in after.items():
            counts = self._counts[name]
            counts += np.bincount(made, minlength=counts.shape[1])
            counts -= np.bincount(before[name], minlength=counts.shape[1])

    def add_larger(self, n_open: int, is_larger: bool) -> None:
        """A block in which some households now have seven members or more has one with more than
        seven, or none."""
        self._counts["larger"] += is_larger - (1 - (1 - _LARGER) ** n_open)

    def of_larger(self) -> float:
        """What the first member of a household beyond the seventh costs: more where there are more
        blocks with larger households than thought, less than nothing where there are fewer."""
        return _OF_LARGER * float(self.of("larger")[0])

    def to_json(self) -> str:
        """All that blocks that come go on with."""
        counts = {name: own.tolist() for name, own in self._counts.items()}
        return json.dumps(
            {
                "weights": self._weights.tolist(),
                "areas": self._areas,
                "prices": self.prices.tolist(),
                "counts": counts,
                "cells": self.cells.facts(),
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Drift:
        """What `to_json` wrote, to the last digit."""
        facts, drift = json.loads(text), cls()
        drift._weights = np.array(facts["weights"])
        drift._areas = tuple(facts["areas"])
        drift.prices = np.array(facts["prices"])
        drift._counts = {name: np.array(own) for name, own in facts["counts"].items()}
        drift.cells = Cells.of_facts(facts["cells"])
        return drift

    def of_types(self, sex: np.ndarray, is_rented: np.ndarray) -> np.ndarray:
        """What making each type of households adds to a cost `(n, n_types)`, given the sex of their
        householders and whether they rent."""
        parts = [self.of(name, _OF_PART[name])[level] for name, level in parts_of_types().items()]
        of_family = self.of("family", _OF_FAMILY)[
            _family(np.arange(len(parts[0])), sex[:, None], is_rented[:, None])
        ]
        detail = _detail(np.arange(len(parts[0])), is_rented[:, None])
        return np.sum(parts, axis=0) + of_family + self.of("detail", _OF_DETAIL)[detail]

    def of_members(self) -> np.ndarray:
        """What one more person of each RELSHIP adds to a cost, by band of ages `(7, 17)`."""
        of_member = self.of("member", _OF_PLACE).reshape(_N_RELATIONSHIPS, N_BANDS)
        return self.of("relationship", _OF_ROLE) + of_member.T

    def distances(self) -> np.ndarray:
        """What it costs to move a person from a place to another `(N_PLACES, N_PLACES)`."""
        role, band = np.divmod(np.arange(N_PLACES), N_BANDS)
        of_place = (
            self.of("role", _OF_ROLE)[role] + self.of("band")[band] + self.of("place", _OF_PLACE)
        )
        moved = np.maximum(distances() + of_place - of_place[:, None], LEAST)
        np.fill_diagonal(moved, np.diag(distances()))
        return moved


def kinds_of_persons(
    relationship: np.ndarray,
    sex: np.ndarray,
    age: np.ndarray,
    hispanic: np.ndarray,
    is_alone: np.ndarray,
) -> dict[str, np.ndarray]:
    """The kinds of persons that are carried on, as levels `(n,)` by name."""
    place = places_of(relationship, age, is_alone)
    role, band = np.divmod(place, N_BANDS)
    code = relationship - FIRST_RELATIONSHIP
    return {
        "role": role,
        "band": band,
        "place": place,
        "relationship": code,
        "member": code * N_BANDS + band,
        "age": sex_and_age(sex, age),
        "sex": origin_and_sex(hispanic - 1, sex - MALE),
    }


def kinds_of_households(
    sex: np.ndarray,
    level: np.ndarray,
    origin: np.ndarray,
    race: np.ndarray,
    kind: np.ndarray,
    is_rented: np.ndarray,
) -> dict[str, np.ndarray]:
    """The kinds of households that are carried on, as levels `(n,)` by name: of householders by
    sex, level of age, origin and race, of a type, and of who rents."""
    group = sex * 2 + is_rented
    return {
        "race": origin_and_race(origin, race),
        "head": group * _N_AGES + level,
        "household": (group * _n_details() + details()[kind]) * _N_AGES + level,
        "family": _family(kind, sex, is_rented),
        "detail": _detail(kind, is_rented),
        **{name: part[kind] for name, part in parts_of_types().items()},
    }


def sex_and_age(sex: np.ndarray, age: np.ndarray) -> np.ndarray:
    """Kinds of persons by sex and age."""
    return (sex - MALE) * (OLDEST + 1) + age


def origin_and_sex(origin: np.ndarray, sex: np.ndarray) -> np.ndarray:
    """Kinds of persons by origin and sex, as levels."""
    return origin * 2 + sex


def origin_and_race(origin: np.ndarray, race: np.ndarray) -> np.ndarray:
    """Kinds of households by origin and race of the householder, as levels."""
    return origin * _RACES + race


def _family(kind: np.ndarray, sex: np.ndarray, is_rented: np.ndarray) -> np.ndarray:
    """Couple, married or not, and own children of a type, by householder's sex and tenure."""
    parts = parts_of_types()
    family = (parts["couple"] // 2 * 4 + parts["own"])[kind]
    return (family * 2 + sex) * 2 + is_rented


def _detail(kind: np.ndarray, is_rented: np.ndarray) -> np.ndarray:
    """What the finest query tells of a type, by tenure."""
    return details()[kind] * 2 + is_rented


def _n_details() -> int:
    return 1 + int(details().max())


def _sizes() -> dict[str, int]:
    return {name: int(level.max()) + 1 for name, level in parts_of_types().items()}

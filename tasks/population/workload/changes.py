"""What it costs to make a household of another type than the released one.

Costs are weighted numbers of marginal counts that change: size, couple, children and generations,
oldest member, age of the householder.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np

from .household_types import household_types, possible
from .patterns import YOUNGEST, book

_OTHER_COUPLE, _OTHER_KIND_OF_COUPLE = 2.0, 1.5
_OTHER_KIN, _OTHER_OWN, _OTHER_CHILDREN, _OTHER_MINORS = 0.7, 0.7, 0.4, 0.4
_OTHER_GENERATIONS, _PER_PERSON, _PER_LEVEL_OF_AGE = 0.7, 0.6, 0.5
_MINOR_FOR_ADULT = 2.0
PER_FURTHER_PERSON = 0.3
"""For each member beyond seven, of whom the released type says nothing."""


@cache
def between_types() -> np.ndarray:
    """What it costs to make one type of another `(n_types, n_types)`."""
    types = household_types()

    def told(what: str) -> np.ndarray:
        return np.array([getattr(one, what) for one in types])

    def differ(values: np.ndarray) -> np.ndarray:
        return values[:, None] != values

    def bands(what: str) -> np.ndarray:
        return np.array([[band in getattr(one, what) for band in (0, 1)] for one in types])

    def apart(masks: np.ndarray) -> np.ndarray:
        return (masks[:, None] != masks).sum(axis=2)

    size = told("size")
    cost = _PER_PERSON * abs(size[:, None] - size)
    cost = cost + _OTHER_COUPLE * differ(told("is_couple"))
    same = ~differ(told("is_couple"))
    cost = cost + np.where(same & differ(told("couple")), _OTHER_KIND_OF_COUPLE, 0.0)
    married = told("is_married")
    kin = told("has_relatives") | married
    cost = cost + _OTHER_KIN * differ(kin) + _OTHER_MINORS * differ(told("has_minors"))
    cost = cost + _OTHER_OWN * apart(bands("own")) + _OTHER_CHILDREN * apart(bands("children"))
    return cost + _OTHER_GENERATIONS * differ(told("is_multigenerational"))


@lru_cache(maxsize=20_000)
def pattern_costs(sex: int, age: int, elderly: int, kind: int) -> np.ndarray:
    """What it costs to make a household after each pattern of its householder's age.

    `(n_patterns,)`, infinite where a structural zero excludes what the pattern makes.
    """
    patterns = book().patterns(age)
    head = patterns.head(age)
    cost = between_types()[kind, patterns.kind]
    cost = cost + _PER_LEVEL_OF_AGE * abs(patterns.elderly - elderly)
    cost = cost + patterns.is_minor * (0.0 if age == YOUNGEST else _MINOR_FOR_ADULT)
    fits = possible()[sex, head, patterns.elderly, patterns.kind]
    return np.where(fits, cost, np.inf)

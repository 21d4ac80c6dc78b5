"""Households that are always possible, from who lives in a block and how many units are occupied.

Needed are only as many persons as units, and a unit where there are persons. Everybody beside the
householder is a nonrelative: then no structural zero of persons or households excludes anything,
whatever the ages, but for ages of householders, which are 15 or more.
"""

from __future__ import annotations

import numpy as np

from ...census.households import ADULT, HOUSEHOLDER, YOUNGEST_HOUSEHOLDER, Members
from .placing import Persons

_NONRELATIVE = 36


def simple_households(persons: Persons, n_units: int) -> Members:
    """Members of `n_units` households: first householders, who are adults while there are any, then
    all others, spread evenly.

    Among adults, who is a householder already comes first, then the older. Where householders must
    be minors, the oldest are, from 15 on. Raises ValueError unless 1 <= n_units <= persons.
    """
    n = len(persons.age)
    if not 1 <= n_units <= n:
        raise ValueError(f"{n} persons cannot live in {n_units} units")
    is_head = persons.relationship == HOUSEHOLDER
    order = np.lexsort((-persons.age, ~is_head, persons.age < ADULT))
    unit = np.empty(n, dtype=np.int64)
    unit[order] = np.arange(n) % n_units
    relationship = np.full(n, _NONRELATIVE)
    heads = order[:n_units]
    relationship[heads] = HOUSEHOLDER
    age = persons.age.copy()
    age[heads] = np.maximum(age[heads], YOUNGEST_HOUSEHOLDER)
    return Members(unit, relationship, age, persons.sex, persons.hispanic, persons.race)

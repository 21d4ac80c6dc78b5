"""What it costs to make a household of another type than the released one.

Costs are weighted numbers of marginal counts that change: size, couple, children and generations,
oldest member, age of the householder.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from .household_types import HEAD_BANDS, NO_COUPLE, parts_of_types
from .patterns import book
from .places import GROWN, TEENAGER
from .tables import details

_OTHER_COUPLE, _OTHER_KIND_OF_COUPLE = 4.0, 3.0
_OTHER_KIN, _OTHER_OWN, _OTHER_CHILDREN, _OTHER_MINORS = 0.6, 2.0, 0.1, 0.1
_OTHER_GENERATIONS, _PER_PERSON, _PER_LEVEL_OF_OLDEST = 1.2, 0.25, 0.08
_PER_LEVEL_OLDER = 1.0
"""For each level by which somebody is older than the householder and the released oldest member.

In a small block the partners who are released need not fit the householders. That the oldest is
younger than was released costs little: noise finds someone old in too many homes.
"""
_PER_LEVEL_OF_AGE, _MINOR = 0.1, 1.0
PER_LATER_PERSON = 0.4
"""For each member of a household beyond seven but the first, of whom no released type tells.

It is above `_PER_PERSON`: else the largest households would take whoever the released sizes leave
over.
"""
PER_TOLD_PERSON = (0.02, 0.2)
"""For the first member beyond seven, and each later one, where a block fits as it is released but
for these members: what fits is to stay as it is."""
LEAST = 0.02
"""What a change costs at least, whatever it makes up for."""


@cache
def between_types() -> np.ndarray:
    """What it costs to make one type of another `(n_types, n_types)`."""
    parts = parts_of_types()
    size, is_couple = parts["size"], parts["couple"] != NO_COUPLE
    is_other = is_couple[:, None] != is_couple

    def differ(part: str) -> np.ndarray:
        return parts[part][:, None] != parts[part]

    def apart(part: str) -> np.ndarray:
        return np.bitwise_count(parts[part][:, None] ^ parts[part])

    cost = _PER_PERSON * abs(size[:, None] - size) + _OTHER_COUPLE * is_other
    cost = cost + np.where(~is_other & differ("couple"), _OTHER_KIND_OF_COUPLE, 0.0)
    cost = cost + _OTHER_KIN * differ("kin") + _OTHER_MINORS * differ("minors")
    cost = cost + _OTHER_OWN * apart("own") + _OTHER_CHILDREN * apart("children")
    return cost + _OTHER_GENERATIONS * differ("generations")


@cache
def _beside_types() -> np.ndarray:
    """What it costs to give each outcome to a household, but for its type, by sex and age of the
    householder and oldest member `(2, n_ages, n_elderly, n_outcomes)`.

    Infinite where structural zeros exclude what the outcome is.
    """
    outcomes = book().outcomes
    n_ages, n_elderly = len(HEAD_BANDS), int(outcomes.elderly.max()) + 1
    age, elderly = np.arange(n_ages)[:, None], np.arange(n_elderly)[:, None]
    first, last = outcomes.first[:, None], outcomes.last[:, None]
    of_age = _PER_LEVEL_OF_AGE * np.maximum(np.maximum(first - age, age - last), 0)
    of_age = of_age + _MINOR * ((outcomes.band == TEENAGER) & (age != last))
    of_age = np.where(first <= last, of_age, np.inf)
    of_oldest = _PER_LEVEL_OF_OLDEST * abs(outcomes.elderly - elderly)
    of_householder = np.maximum(outcomes.band - GROWN, 0)
    older = np.maximum(outcomes.elderly - np.maximum(elderly, of_householder), 0)
    return of_age[:, :, None] + of_oldest + _PER_LEVEL_OLDER * older


def outcome_costs(
    sex: np.ndarray,
    age: np.ndarray,
    elderly: np.ndarray,
    kind: np.ndarray,
    drift: np.ndarray,
    of_heads: np.ndarray,
) -> np.ndarray:
    """What it costs to make of households each outcome of patterns `(n, n_outcomes)`.

    Infinite where structural zeros exclude it. `drift` (n, n_types) is added for the type that is
    made, and taken away for the released one; so is `of_heads` (n, n_details, n_ages) of what the
    finest query tells of the type and of the householder's age.
    """
    rows = np.arange(len(kind))
    moved = np.maximum(between_types()[kind] + drift - drift[rows, kind][:, None], LEAST)
    moved[rows, kind] = 0.0
    outcomes = book().outcomes
    # Where structural zeros exclude every age, the cost is infinite whatever is added.
    new = np.minimum(np.maximum(age[:, None], outcomes.first[sex]), outcomes.last[sex])
    apart = _PER_LEVEL_OF_AGE * abs(new - age[:, None])
    before, after = details()[kind], details()[outcomes.kind]
    more = of_heads[rows[:, None], after, new] - of_heads[rows, before, age][:, None]
    changed = moved[:, outcomes.kind] + apart + more
    is_changed = (outcomes.kind != kind[:, None]) | (apart > 0)
    # `apart` is in what stands beside the type as well.
    changed = np.where(is_changed, np.maximum(changed, LEAST) - apart, 0.0)
    return changed + _beside_types()[sex, age, elderly]

"""Places in a household: relationship to the householder and band of ages.

The type of a household depends on persons only through their places. Places are numbered
`role * N_BANDS + band`, and a set of them is a row of a Boolean matrix.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ...census.households import ADULT, SCHOOL, YOUNGEST_HOUSEHOLDER

ROLES = (
    "householder",
    "opposite-sex spouse",
    "same-sex spouse",
    "opposite-sex partner",
    "same-sex partner",
    "own child",
    "parent or grandchild",
    "other relative",
    "nonrelative",
    "householder who lives alone",
)
HOUSEHOLDER, OWN_CHILD, GENERATION, RELATIVE, NONRELATIVE, ALONE = 0, 5, 6, 7, 8, 9
HOUSEHOLDERS = (HOUSEHOLDER, ALONE)
PARTNERS = (1, 2, 3, 4)
"""Spouses and partners, in the order of CPLT."""
FIRST_PARTNER, LAST_PARTNER = PARTNERS[0], PARTNERS[-1]

FIRST_RELATIONSHIP, LAST_RELATIONSHIP = 20, 36
ROLE_OF_RELATIONSHIP = np.array([0, 1, 3, 2, 4, 5, 5, 5, 7, 6, 6, 6, 7, 7, 8, 8, 8])
"""Role of RELSHIP 20 to 36."""

BAND_STARTS = (0, SCHOOL, YOUNGEST_HOUSEHOLDER, ADULT, 60, 65, 75)
OLDEST = 115
N_BANDS, N_PLACES = len(BAND_STARTS), len(ROLES) * len(BAND_STARTS)
YOUNG, SCHOOLCHILD, TEENAGER, GROWN = 0, 1, 2, 3
"""Bands below 18, and the first one from 18 on."""
ADULT_BANDS = (3, 4, 5, 6)

AGES_OF_RELATIONSHIP = {
    **dict.fromkeys((20, 21, 22, 23, 24), (YOUNGEST_HOUSEHOLDER, OLDEST)),
    **dict.fromkeys((25, 26, 27), (0, 89)),
    **dict.fromkeys((29, 31), (30, OLDEST)),
    30: (0, 74),
    32: (15, 89),
    35: (0, 20),
    **dict.fromkeys((28, 33, 34, 36), (0, OLDEST)),
}
"""First and last age of each RELSHIP allowed by the persons' structural zeros."""

_RANK = (20, 21, 23, 22, 24, 25, 26, 27, 28, 33, 32, 29, 31, 30, 34, 36, 35)
"""Relationships in the order of choice for persons who change into a role."""

_CHANGED_ROLE, _CHANGED_KIND, _OTHER_HOUSEHOLDER = 1.0, 0.9, 0.8
_BETWEEN_BANDS = (0.6, 0.1, 0.0, 0.5, 0.4, 0.4)
"""Cost of crossing each border of bands; the border between minors and adults is never crossed."""


def place(role: int, band: int) -> int:
    """Number of a place."""
    return role * N_BANDS + band


def bands_of(age: np.ndarray) -> np.ndarray:
    """Band of each age."""
    return np.searchsorted(BAND_STARTS, age, side="right") - 1


def places_of(relationship: np.ndarray, age: np.ndarray, is_alone: np.ndarray) -> np.ndarray:
    """Place of each person in a household; `is_alone` (n,) marks householders who live alone."""
    role = ROLE_OF_RELATIONSHIP[relationship - FIRST_RELATIONSHIP]
    return np.where(is_alone, ALONE, role) * N_BANDS + bands_of(age)


def place_set(roles: tuple[int, ...], bands: tuple[int, ...]) -> np.ndarray:
    """Mask `(N_PLACES,)` of the places of some roles in some bands."""
    mask = np.zeros(N_PLACES, dtype=bool)
    mask[[place(role, band) for role in roles for band in bands]] = True
    return mask


@cache
def distances() -> np.ndarray:
    """Cost of moving a person from a place to another `(N_PLACES, N_PLACES)`.

    Infinite between minors and adults, whose numbers a redistricting release states, and to
    impossible places. Relatives differ less from each other than from others.
    """
    role, band = np.divmod(np.arange(N_PLACES), N_BANDS)
    is_head = np.isin(role, HOUSEHOLDERS)
    kin = np.select([is_head, role <= PARTNERS[-1], role <= RELATIVE], [0, 1, 2], 3)
    roles = np.where(kin[:, None] == kin, _CHANGED_KIND, _CHANGED_ROLE)
    roles[is_head[:, None] & is_head] = _OTHER_HOUSEHOLDER
    roles[role[:, None] == role] = 0.0
    at = np.append(0.0, np.cumsum(_BETWEEN_BANDS))[band]
    cost = roles + abs(at[:, None] - at)
    is_minor = band < GROWN
    cost[is_minor[:, None] != is_minor] = np.inf
    too_young = (is_head | (role <= PARTNERS[-1])) & (band < TEENAGER)
    cost[:, too_young] = np.inf
    return cost


def fit_to_places(
    relationship: np.ndarray, age: np.ndarray, place_of: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """RELSHIP and age of persons in places `(n,)`, changed as little as the places need.

    Sorted by age, then the person's relationship, then the order of a list. Raises
    ValueError for a place that has no relationship.
    """
    role, band = np.divmod(place_of, N_BANDS)
    role = np.where(role == ALONE, HOUSEHOLDER, role)
    codes = np.array(_RANK)
    youngest, oldest = np.array([AGES_OF_RELATIONSHIP[code] for code in _RANK]).T
    ends = np.append(BAND_STARTS[1:], OLDEST + 1)
    lowest = np.maximum(np.array(BAND_STARTS)[band][:, None], youngest)
    highest = np.minimum(ends[band][:, None] - 1, oldest)
    is_role = ROLE_OF_RELATIONSHIP[codes - FIRST_RELATIONSHIP] == role[:, None]
    is_possible = is_role & (lowest <= highest)
    if not is_possible.any(axis=1).all():
        raise ValueError("a place has no relationship at its ages")
    new_age = np.clip(age[:, None], lowest, highest)
    cost = 100 * abs(new_age - age[:, None]) + 50 * (codes != relationship[:, None])
    cost = np.where(is_possible, cost + np.arange(len(codes)), np.inf)
    chosen, rows = cost.argmin(axis=1), np.arange(len(age))
    return codes[chosen], new_age[rows, chosen]

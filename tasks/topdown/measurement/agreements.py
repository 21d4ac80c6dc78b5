"""Between which numbers records must be, so that they agree with the released ones of another
universe in every finest area.

Let an area b have N(b) released records of the earlier universe (persons in households), T(b)
records of this one (housing units), which is exact, and O(b) that agree (occupied). They agree if

    O(b) <= N(b)    and    N(b) <= m O(b),

m being the most that one can have; so N(b) = 0 exactly where O(b) = 0. As O(b) is a whole number
from 0 to T(b), this is one interval,

    L(b) = ceil(N(b) / m)  <=  O(b)  <=  min(N(b), T(b)) = U(b).

It is not empty: the release holds N(b) <= m T(b), so that L(b) <= T(b), and L(b) <= N(b) as m >= 1.

What must be carried up is the two sums: every geounit g is held to L(g) <= O(g) <= U(g), with L(g)
and U(g) the sums of L(b) and U(b) over its areas. That is enough, and no less is: the sums of
children are those of the parent, whole numbers within [L(c), U(c)] add up to every whole number
from the sum of L(c) to the sum of U(c), so a parent within its interval leaves its children a
solution, and one outside has none. The inequalities between O(g) and N(g) themselves would not do:
a county with N = O leaves no solution if one of its blocks has more persons than units. The others
of the universe are T(c) - O(c) >= 0, because U(c) <= T(c), and add up as T and O do. By
induction from the root every area has a solution, whatever the noise.

Householders and sizes hold people to dwellings that are released before them. An area b has

    H_r(b)  =  R_r(b)                                  householders with the answer r,
    l(b)    =  sum_s least_s D_s(b)  <=  N(b)  <=  sum_s most_s D_s(b)  =  u(b),

R_r(b) being the released dwellings with the answer r (of their householder's sex, say), and D_s(b)
those of size s, for which least_s to most_s people are declared. As all on the right is released,
each area has numbers that are fixed, H_r(b), and one interval, that of the people N(b) beside their
householders H(b), the sum of all H_r(b):

    max(l(b), H(b)) - H(b)  <=  N(b) - H(b)  <=  u(b) - H(b).

It is not empty: least_s <= most_s, and where a dwelling is counted for a householder, most_s is at
least 1, so that H(b) <= u(b). The types (householders by answer, other people, everybody else) are
disjoint, and each may have every whole number in an interval of its own whatever the others have.
Sums are therefore carried up type by type, as above: a parent within the sums of its areas' limits
leaves its children a solution, one outside has none. A row of coefficients has become bounds on
types of cells: families remain network flows, and no integer program is needed.

The other way round, with people released first, D would have to follow N, and no limits on sums do:
two areas of three people each allow (in sum) three dwellings of two, and no area can be made up of
them. Which sums of D have a solution is a question of packing; sizes are therefore declared on the
people, and householders on either.

Where dwellings are held to householders, T(b) - H(b) others are left, and H(b) <= T(b) by the bound
that the people's release is held to.
"""

from __future__ import annotations

import numpy as np


def agreement(
    released: np.ndarray, total: np.ndarray, at_most: int, agrees: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Least and most of the answers to a query, each `(n_areas, n_rows)`, of records that agree.

    released : (n_areas,) records of the earlier universe. total : (n_areas,) exact number of this
    one's. agrees : (n_rows,) mask of the one answer of records
    that agree. The others are free below the total.

    >>> low, high = agreement(np.array([0, 3, 9]), np.array([2, 2, 2]), 5, np.array([False, True]))
    >>> low[:, 1].tolist(), high[:, 1].tolist()
    ([0, 1, 2], [0, 2, 2])
    """
    low = np.zeros((len(total), agrees.size), dtype=np.int64)
    high = np.repeat(np.asarray(total, dtype=np.int64)[:, None], agrees.size, axis=1)
    low[:, agrees] = -(-released // at_most)[:, None]
    high[:, agrees] = np.minimum(released, total)[:, None]
    return low, high


def household_limits(
    householders: np.ndarray | None, least: np.ndarray, most: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Least and most people of areas, `(n_areas,)` each, beside their householders `(n_areas, R)`.

    >>> household_limits(np.array([[1], [2]]), np.array([0, 5]), np.array([4, 9]))
    (array([1, 5]), array([4, 9]))
    """
    if householders is None:
        return least, most
    return np.maximum(least, householders.sum(axis=1)), most

"""Record swapping: pairs of like households exchange their places, and all tables count the rest.

Everything that a household is stays together; only where it is changes, with all finer areas.
Attributes on which the two of a pair must agree (size, number of adults) are therefore unchanged in
every area.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...census.counting import People

PARTNERS = 10
"""From how many of the nearest possible partners one is drawn."""
_NOBODY = np.empty(0, dtype=np.int64)
_CLASS_CHANCES = (1.0, 0.6, 0.3, 0.1)
"""Chance of being aimed at of households of the four classes of rarity, rarest first."""


@dataclass(frozen=True, eq=False)
class Households:
    """The households that may be swapped.

    area : (n,) area of the last geolevel of each.
    alike : (n, k) values on which partners must agree, such as size and number of adults; the first
        column matters most, and the last is given up first.
    counts : (n, m) members with each value of the risk variables.
    """

    area: np.ndarray
    alike: np.ndarray
    counts: np.ndarray

    def __len__(self) -> int:
        return len(self.area)


def households_of(
    people: People, risk: np.ndarray, n_risk: int, agreed: Sequence[np.ndarray] = ()
) -> Households:
    """Households by number, with their size and the counts of their members.

    risk : (n,) value of the risk variables of every person, below `n_risk`.
    agreed : masks `(n,)` of the persons, such as adults, on whose numbers partners must agree too.
    """
    inside = people.household >= 0
    number, n = people.household[inside], people.n_households
    area = np.zeros(n, dtype=np.int64)
    area[number] = people.area[inside]
    alike = [np.bincount(number, minlength=n)]
    alike += [np.bincount(number, mask[inside], minlength=n).astype(np.int64) for mask in agreed]
    at = number * n_risk + risk[inside]
    counts = np.bincount(at, minlength=n * n_risk).reshape(n, n_risk)
    return Households(area, np.stack(alike, axis=1), counts)


def swapped_people(people: People, pairs: np.ndarray) -> People:
    """The people after pairs `(p, 2)` of households have exchanged their areas."""
    inside = people.household >= 0
    place = np.zeros(people.n_households, dtype=np.int64)
    place[people.household[inside]] = people.area[inside]
    place[pairs] = place[pairs[:, ::-1]]
    area = people.area.copy()
    area[inside] = place[people.household[inside]]
    return replace(people, area=area)


def american_pairs(
    households: Households,
    levels: Sequence[np.ndarray],
    rate: float,
    generator: np.random.Generator,
) -> np.ndarray:
    """Pairs `(p, 2)` of households by targeted swapping as reported for the United States.

    levels : (n_areas,) entities of the areas at the level of rarity and at the one that partners
        must not share (county, tract).
    rate : share of households that are swapped, both partners counted.

    Rarity is how many households have the same members by risk variables in the same entities; the
    rarest `rate / (q4 + q3)` of them, then twice and three times as many make three classes, the
    rest the fourth, aimed at with the chances q = 1, 0.6, 0.3, 0.1. Households are visited by class
    and at random within it; a targeted one is swapped with one of the ten nearest in another entity
    of the finer level that agree on everything, and stays in place if there is no such household
    (after arXiv 2502.01320). Nearness is along the order of the areas, such as that of geocodes.
    """
    n = len(households)
    place = np.column_stack([households.counts, *(level[households.area] for level in levels)])
    _, kind, frequency = np.unique(place, axis=0, return_inverse=True, return_counts=True)
    _, in_area = np.unique(households.area, return_inverse=True)
    size_of_area = np.bincount(in_area)[in_area]
    by_rarity = np.lexsort((size_of_area, frequency[kind.ravel()]))
    part = rate / (_CLASS_CHANCES[0] + _CLASS_CHANCES[1])
    ends = np.minimum(np.array([part, 3 * part, 6 * part, 1.0]), 1.0)
    class_of = np.empty(n, dtype=np.int64)
    class_of[by_rarity] = np.searchsorted(ends, (np.arange(n) + 0.5) / n)
    visits = np.argsort(class_of - generator.random(n))
    aimed = generator.random(n) < np.array(_CLASS_CHANCES)[class_of]
    near = _Nearest(households, levels[-1])
    pairs, wanted = list[tuple[int, int]](), rate * n
    for one in visits[aimed[visits]]:
        if 2 * len(pairs) + 1 >= wanted:
            break
        if near.is_free[one]:
            partners = near.partners(one)
            if len(partners):
                other = int(generator.choice(partners))
                near.is_free[[one, other]] = False
                pairs.append((int(one), other))
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _by_profile(alike: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """The profile of every household by values `(n, k)`; households by profile, in an order."""
    _, profile = np.unique(alike, axis=0, return_inverse=True)
    profile = profile.ravel()
    ordered = order[np.argsort(profile[order], kind="stable")]
    return profile, np.split(ordered, np.cumsum(np.bincount(profile))[:-1])


class _Nearest:
    """The free households that agree with one and are not in its entity, nearest first."""

    def __init__(self, households: Households, apart: np.ndarray) -> None:
        self._entity, self._area = apart[households.area], households.area
        order = np.argsort(households.area, kind="stable")
        self._profile, self._members = _by_profile(households.alike, order)
        self._at = np.empty(len(order), dtype=np.int64)
        for members in self._members:
            self._at[members] = np.arange(len(members))
        self.is_free = np.ones(len(order), dtype=bool)

    def partners(self, one: int) -> np.ndarray:
        """At most `PARTNERS` of them, by distance in the order of areas."""
        members, at = self._members[self._profile[one]], self._at[one]
        before = self._side(members[:at][::-1], one)
        after = self._side(members[at + 1 :], one)
        both = np.concatenate([before, after])
        distance = np.abs(self._area[both] - self._area[one])
        return both[np.argsort(distance, kind="stable")[:PARTNERS]]

    def _side(self, members: np.ndarray, one: int) -> np.ndarray:
        """The first on one side, searched among ever more of them."""
        length = 64
        while True:
            first = members[:length]
            possible = self.is_free[first] & (self._entity[first] != self._entity[one])
            if length >= len(members) or possible.sum() >= PARTNERS:
                return first[possible][:PARTNERS]
            length *= 4


def european_pairs(
    households: Households,
    levels: Sequence[np.ndarray],
    members: np.ndarray,
    risk: np.ndarray,
    rate: float,
    smallest: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """Pairs `(p, 2)` of households by targeted record swapping as in Eurostat's methods.

    levels : (n_areas,) entities of the areas at each level, from large to small.
    members, risk : (k,) household and value of the risk variables of every person.
    rate : share of households that are swapped at least, both partners counted.
    smallest : k of k-anonymity; a person among fewer than k of its kind in an entity is at risk. 0
        and 1 leave no person at risk.

    A person's risk at a level is one over the number of persons of its kind in its entity, a
    household's that of its riskiest member. From the largest level down, each household that is at
    risk there, and at no larger one, is swapped with one in another entity of the level. At the
    smallest level more households are drawn, by their risk and without replacement, until each
    entity has sent half the rate of its households. Partners must agree on `alike`, or on fewer of
    its columns where there are no such partners, the last given up first; they are taken in the
    order of risk over an exponential number, and no household is swapped twice (R package sdcMicro,
    `recordSwap`).
    """
    n = len(households)
    is_free = np.ones(n, dtype=bool)
    pairs = list[tuple[int, int]]()
    sent = np.zeros(int(levels[-1].max(initial=-1)) + 1, dtype=np.int64)
    for depth, level in enumerate(levels):
        entity = level[households.area]
        kind = np.column_stack([entity[members], risk])
        _, number, alike = np.unique(kind, axis=0, return_inverse=True, return_counts=True)
        fewest = np.full(n, np.iinfo(np.int64).max)
        np.minimum.at(fewest, members, alike[number.ravel()])
        donors = np.argsort(generator.exponential(size=n) * fewest, kind="stable")
        search = _Donors(households, entity, donors, is_free)
        at_risk = np.flatnonzero(is_free & (fewest < smallest))
        found = search.pairs(at_risk[np.argsort(fewest[at_risk], kind="stable")])
        last = levels[-1][households.area]
        np.add.at(sent, last[[one for one, _ in found]], 1)
        pairs += found
        if depth == len(levels) - 1:
            drawn = _draw_households(entity, is_free, fewest, sent, rate, generator)
            pairs += search.pairs(drawn, spared=drawn)
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _draw_households(
    entity: np.ndarray,
    is_free: np.ndarray,
    fewest: np.ndarray,
    sent: np.ndarray,
    rate: float,
    generator: np.random.Generator,
) -> np.ndarray:
    """Additional households, in random order: for each entity half the rate of its households less
    those that it has sent, remainders spread at random so that the total meets the rate.
    """
    n_of = np.bincount(entity, minlength=len(sent))
    exact = n_of * rate / 2
    wanted = np.floor(exact).astype(np.int64)
    rest = round(exact.sum()) - wanted.sum()
    more = generator.choice(len(wanted), size=rest, replace=False, p=_shares(exact - wanted))
    wanted[more] += 1
    wanted = np.maximum(wanted - sent, 0)
    # Keys whose smallest are a sample without replacement in proportion to risk.
    keys = generator.exponential(size=len(entity)) * fewest
    order = np.lexsort((keys, entity))
    order = order[is_free[order]]
    own = entity[order]
    rank = np.arange(len(own)) - np.searchsorted(own, own)
    chosen = order[rank < wanted[own]]
    return generator.permutation(chosen)


def _shares(weights: np.ndarray) -> np.ndarray | None:
    total = weights.sum()
    # As many as are drawn must have a chance; rounding may leave weights of zero.
    return (weights + 1e-12) / (weights + 1e-12).sum() if total > 0 else None


class _Donors:
    """Free households in a fixed order, found by the values on which partners must agree."""

    def __init__(
        self, households: Households, entity: np.ndarray, order: np.ndarray, is_free: np.ndarray
    ) -> None:
        self._entity, self._is_free = entity, is_free
        self._is_donor = np.ones(len(entity), dtype=bool)
        widths = range(households.alike.shape[1], 0, -1)
        self._profiles = [_by_profile(households.alike[:, :width], order) for width in widths]

    def pairs(self, asked: np.ndarray, spared: np.ndarray = _NOBODY) -> list[tuple[int, int]]:
        """Pairs of the given households that are still free, in order, with their donors; the
        spared are no donors, so that each of them gets a turn.
        """
        found = []
        self._is_donor[:] = True
        self._is_donor[spared] = False
        for one in asked:
            if self._is_free[one] and (other := self._donor(one)) is not None:
                self._is_free[[one, other]] = False
                found.append((int(one), other))
        return found

    def _donor(self, one: int) -> int | None:
        for profile, members in self._profiles:
            own = members[profile[one]]
            for start in range(0, len(own), 256):
                some = own[start : start + 256]
                is_possible = self._is_free[some] & self._is_donor[some]
                is_possible &= self._entity[some] != self._entity[one]
                if is_possible.any():
                    return int(some[int(np.argmax(is_possible))])
        return None

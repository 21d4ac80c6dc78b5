"""Dependants with companions in every finest area, such as minors with an adult.

Let a geounit g have D(g) dependants, P(g) companions and t(g) = D(g) + P(g). Every finest area is
to have at most K dependants for each companion, D <= K P, and so none without one. For a geounit
without several units of exact totals below it the same condition is necessary and sufficient,

    D(g)  <=  K P(g),    or equally    P(g)  >=  ceil(t(g) / (K + 1)),

as docs/coherent_households.md proves. Units of exact totals, such as states, exchange records but
one for one: a geounit with n(g) geounits below it, down to the units, must have

    P(g)  >=  min(t(g), ceil((t(g) + K n(g)) / (K + 1))).

The least squares and the rounder do not know the condition, which is almost inert; moves of records
meet it afterwards. At the root, dependants become companions. Elsewhere the parent has enough:

1. a child that lacks a companion swaps one of its dependants for one of a sibling that has more
   than it needs, so that the distance F of `siblings` from the noisy answers rises least;
2. before that, while all children together need more companions than there are, records of two
   children are put together, so that fewer suffice.

A swap keeps the answers to all constraints, which do not distinguish the two. In step 2 the sum
over children of ceil(t(c) / (K + 1)) exceeds the parent's companions, which are at least the sum
over units of ceil(t / (K + 1)); so two children of one unit have a t(c) that is no multiple of
K + 1. A record that moves from the one with the lesser remainder to the other ends the remainder of
either, or widens the difference: the step ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...runs.errors import SolveFailed
from .siblings import Siblings


@dataclass(frozen=True, eq=False)
class Companions:
    """The condition on a shard's geounits or, cut by `of_family`, on a family's children.

    dependants, companions : (n_cells,) masks of the cells, or on the family's support.
    at_most : K, dependants for each companion. n_below : (n,) geounits down to units with exact
    totals, 0 for units and below.
    """

    dependants: np.ndarray
    companions: np.ndarray
    at_most: int
    n_below: np.ndarray

    def of_family(self, start: int, stop: int, cells: np.ndarray) -> Companions:
        """The condition on the geounits `start` to `stop`, on some cells."""
        return Companions(
            self.dependants[cells], self.companions[cells], self.at_most, self.n_below[start:stop]
        )

    def least(self, people: np.ndarray) -> np.ndarray:
        """The least companions among so many dependants and companions, `(c,)`."""
        most = self.at_most
        return np.minimum(people, -(-(people + most * self.n_below) // (most + 1)))

    def missing(self, x: np.ndarray) -> np.ndarray:
        """Companions that the children lack, `(c,)`; negative where they have more than needed."""
        has = x[:, self.companions].sum(axis=1)
        return self.least(has + x[:, self.dependants].sum(axis=1)) - has


def accompany(siblings: Siblings, rule: Companions, parent: str) -> None:
    """Give every child its companions by the module's steps, in place.

    Raises SolveFailed if the parent's counts allow it not.
    """
    is_root = siblings.problem.parent_counts is None
    while True:
        missing = rule.missing(siblings.x)
        lacking = np.flatnonzero(missing > 0)
        if not lacking.size:
            return
        if is_root or missing.sum() <= 0:
            _give_companion(siblings, rule, int(lacking[0]), None if is_root else missing < 0)
        elif not _put_together(siblings, rule):
            raise SolveFailed(
                f"The children of geounit {parent} cannot all have companions; report the run's "
                "declaration of agree."
            )


def _give_companion(
    siblings: Siblings, rule: Companions, child: int, has_more: np.ndarray | None
) -> None:
    """Swap a dependant of a child for a companion of a sibling that has more than it needs, as is
    cheapest; at the root, without siblings, turn one into the other."""
    x, gradient = siblings.x, siblings.gradient()
    sibling, companion = np.nonzero((np.arange(len(x)) == child)[:, None] & rule.companions)
    if has_more is not None:
        sibling, companion = np.nonzero((x > 0) & rule.companions & has_more[:, None])
    best = (np.inf, -1, -1, -1)
    for cell in np.flatnonzero(rule.dependants & (x[child] > 0)).tolist():
        across = siblings.across(cell)
        cost = gradient[child, companion] - gradient[child, cell] + across[child, companion]
        if has_more is not None:
            cost += gradient[sibling, cell] - gradient[sibling, companion]
            cost += across[sibling, companion]
        place = int(np.argmin(cost))
        found = float(cost[place]), cell, int(companion[place]), int(sibling[place])
        best = min(best, found)
    _, own, other, at = best
    if has_more is not None:
        siblings.move(own, child, at)
        siblings.move(other, at, child)
    else:
        x[child, [own, other]] += [-1, 1]
        siblings.moves += 1


def _put_together(siblings: Siblings, rule: Companions) -> bool:
    """Move the cheapest record between two children whose people are no multiples of K + 1, from
    one with the fewest beyond a multiple; False if there are no two that can exchange records."""
    either = rule.dependants | rule.companions
    people = siblings.x[:, either].sum(axis=1)
    beyond = np.where(rule.n_below == 0, people % (rule.at_most + 1), 0)
    children = np.arange(beyond.size)
    return any(
        siblings.move_cheapest((children == source)[:, None] & either, beyond >= beyond[source])
        for source in np.argsort(beyond, kind="stable").tolist()
        if beyond[source]
    )

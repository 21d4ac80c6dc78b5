"""Histograms of siblings whose records move among them, cell by cell, after rounding.

Every move keeps the parent's counts, since a record that leaves one child enters another in the
same cell, and every constraint of the problem. What a move costs is the increase of

    F(x)  =  sum over children i and measured queries q of  w[i, q] |Q_q x[i] - M[i, q]|^2,

the squared distance from the noisy answers in units of their variances, 1 / w. Only noisy answers
and public facts enter; equal costs are decided by position.

**Companions**: dependants with companions in every finest area, such as minors with an adult. Let
a geounit g have D(g) dependants, P(g) companions and t(g) = D(g) + P(g). Every finest area is
to have at most K dependants for each companion, D <= K P, and so none without one. For a geounit
without several units of exact totals below it the same condition is necessary and sufficient,

    D(g)  <=  K P(g),    or equally    P(g)  >=  ceil(t(g) / (K + 1)),

as docs/coherent_households.md proves. Units of exact totals, such as states, exchange records but
one for one: a geounit with n(g) geounits below it, down to the units, must have

    P(g)  >=  min(t(g), ceil((t(g) + K n(g)) / (K + 1))).

The least squares and the rounder do not know the condition, which is almost inert; moves of records
meet it afterwards. At the root, dependants become companions. Elsewhere the parent has enough:

1. a child that lacks a companion swaps one of its dependants for one of a sibling that has more
   than it needs, so that the distance F from the noisy answers rises least;
2. before that, while all children together need more companions than there are, records of two
   children are put together, so that fewer suffice.

A swap keeps the answers to all constraints, which do not distinguish the two. In step 2 the sum
over children of ceil(t(c) / (K + 1)) exceeds the parent's companions, which are at least the sum
over units of ceil(t / (K + 1)); so two children of one unit have a t(c) that is no multiple of
K + 1. A record that moves from the one with the lesser remainder to the other ends the remainder of
either, or widens the difference: the step ends.

**Empty areas**: what noisy answers and public facts say, and moves that follow it. Few noisy
answers tell an empty area from a small one, and rounding fills most empty ones. With `ghosts =
"avoid"` they decide together with public facts. Let the parent of an area i have N[j] records in
cell j, and bounds allow i at most u[i, T] of j's type T, such as 99,999 for every housing unit.
Then i would have

    e[i, j] = N[j] u[i, T] / sum_i u[i, T],    m[i] = sum_j e[i, j]

records, an equal share where there is no bound. If they are composed as e is, the answers M_q[i] to
the measured queries Q_q give the best linear estimate of their number,

    n^[i] = v[i] sum_q w[i, q] p_q' M_q[i],    1 / v[i] = sum_q w[i, q] |p_q|^2,

p_q being Q_q e[i] / m[i], and 1 / w the variances. With a Poisson number of mean m[i], and n^[i]
normal about it,

    P(n)  ~  exp(-m[i]) m[i]^n / n!  exp(-(n^[i] - n)^2 / (2 v[i])),    n = 0, 1, 2, ...

Where P(0) is at least `LEAST` the area is emptied: its records move, each to the sibling where the
distance F rises least. Where it is less and the estimate left the area empty, the
record enters for which F rises least. Areas that must have records, or where `MOST` or more are
expected, stay as they are; so do records that cannot move. Unlike a constraint this is a
preference.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from scipy.special import gammaln

from ...runs.errors import SolveFailed
from .problem import NO_BOUND, Measurements, SiblingProblem, rows_on_support, sum_rows


class Siblings:
    """The children of one parent, with counts `x` (c, k) that moves change.

    moves : the number of records that have moved.
    """

    def __init__(self, problem: SiblingProblem, x: np.ndarray, measurements: Measurements) -> None:
        self.problem, self.x, self.moves = problem, x.astype(np.int64), 0
        self._measured = measurements.values()

    @cached_property
    def _queries(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Rows of the cells (k,), noisy answers (c, n_rows) and weights (c,) of every query."""
        found = []
        for own in self._measured:
            label = rows_on_support(own.query, self.problem.cells)
            first = np.zeros(int(label.max(initial=-1)) + 1, dtype=np.int64)
            first[label] = np.arange(label.size)
            answers = own.answers(self.problem.cells[first])
            found.append((label, answers, own.precision))
        return found

    @cached_property
    def weight(self) -> np.ndarray:
        """The increase of F by a record for its own sake, `(c,)`: the sum of the weights."""
        return np.sum([np.zeros(self.problem.n_children), *(w for _, _, w in self._queries)], 0)

    def gradient(self) -> np.ndarray:
        """Derivative `(c, k)` of F by every count."""
        found = np.zeros(self.x.shape)
        for label, answers, weight in self._queries:
            residual = sum_rows(self.x, label, answers.shape[1]) - answers
            found += 2.0 * weight[:, None] * residual[:, label]
        return found

    def across(self, cell: int) -> np.ndarray:
        """Increase `(c, k)` of F, beyond its derivatives, where a record of a child changes from
        one cell to each other one: twice the weights of the queries that distinguish them."""
        found = np.zeros(self.x.shape)
        for label, _, weight in self._queries:
            found += 2.0 * weight[:, None] * (label != label[cell])
        return found

    def totals(self, children: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The best linear estimates of some children's numbers of records from their noisy answers,
        and the variances, `(n,)` each, if a record is in every cell with probability `share`
        (n, k); infinite variances where nothing was measured.
        """
        sums, information = np.zeros((2, children.size))
        for label, answers, weight in self._queries:
            rows = sum_rows(share, label, answers.shape[1])
            sums += weight[children] * (rows * answers[children]).sum(axis=1)
            information += weight[children] * (rows**2).sum(axis=1)
        is_known = information > 0
        variance = np.full(is_known.size, np.inf)
        variance[is_known] = 1.0 / information[is_known]
        return np.where(is_known, sums / np.where(is_known, information, 1.0), 0.0), variance

    def destinations(self, child: int, cell: int) -> np.ndarray:
        """Mask `(c,)` of the children that a record of a child's cell can move to."""
        problem, kind = self.problem, int(self.problem.type_of_cell[cell])
        of_type = self.x[:, problem.type_of_cell == kind].sum(axis=1)
        found = of_type < problem.upper[:, kind]
        found &= of_type[child] > problem.lower[child, kind]
        if problem.grouped_totals is not None:
            group = problem.grouped_totals[0]
            found &= group == group[child]
        for rows in problem.rows:
            weight = rows.matrix[:, [cell]].toarray()[:, 0]
            if weight.any():
                sums, group = rows.sums(self.x), rows.group_of_child
                leaves, enters = (
                    ((sums + sign * weight >= rows.lower) & (sums + sign * weight <= rows.upper))
                    for sign in (-1, 1)
                )
                can_leave = group[child] < 0 or leaves.all(axis=1)[group[child]]
                can_enter = (group < 0) | enters.all(axis=1)[group]
                found &= (group == group[child]) | (can_enter & can_leave)
        found[child] = False
        return found

    def move(self, cell: int, source: int, target: int) -> None:
        """Move a record of a cell from one child to another."""
        self.x[source, cell] -= 1
        self.x[target, cell] += 1
        self.moves += 1

    def move_cheapest(self, sources: np.ndarray, targets: np.ndarray) -> bool:
        """Move a record of one of the cells `sources` (c, k) to one of the children `targets` (c,),
        as is cheapest; False if none can move."""
        child, cell = np.nonzero(sources & (self.x > 0))
        to, gradient = np.flatnonzero(targets), self.gradient()
        cost = gradient[to[None, :], cell[:, None]] + self.weight[to]
        cost += (self.weight[child] - gradient[child, cell])[:, None]
        destinations = cache(self.destinations)
        for place in np.argsort(cost, axis=None, kind="stable").tolist():
            number, target = divmod(place, to.size)
            record = int(child[number]), int(cell[number])
            if destinations(*record)[to[target]]:
                self.move(record[1], record[0], int(to[target]))
                return True
        return False

    def empty(self, child: int, allowed: np.ndarray) -> None:
        """Move all records of a child to the `allowed` siblings (c,), each as is cheapest; none if
        they cannot all move."""
        before, own = self.x.copy(), np.zeros(self.x.shape, dtype=bool)
        own[child] = True
        while self.x[child].any():
            if not self.move_cheapest(own, allowed):
                self.moves -= int(before[child].sum() - self.x[child].sum())
                self.x = before
                return

    def fill(self, child: int) -> None:
        """Move a record into a child, as is cheapest, from a sibling that has several; none if none
        can move."""
        has_several = np.broadcast_to(self.x.sum(axis=1, keepdims=True) > 1, self.x.shape)
        self.move_cheapest(has_several, np.arange(len(self.x)) == child)


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


LEAST = 0.2
"""Probability from which an area is taken to be empty. A larger one leaves fewer inhabited areas
empty, and more empty ones filled; on the sample state this one has fewer of both than rounding."""

MOST = 8.0
"""Expected records from which areas stay as they are; without measurements P(0) is 1/3,000."""


def expected_counts(problem: SiblingProblem) -> np.ndarray:
    """Counts `(c, k)` that the children would have by their parent's and by their bounds."""
    upper = problem.upper.astype(np.float64)
    upper[:, (problem.upper >= NO_BOUND).any(axis=0)] = 1.0
    share = upper / np.maximum(upper.sum(axis=0), 1.0)
    return share[:, problem.type_of_cell] * problem.parent_counts


def probability_of_none(mean: np.ndarray, noisy: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """P(0) of the module's docstring, `(n,)`, by m, n^ and v, which may be infinite."""
    n = np.arange(int(mean.max(initial=0.0)) + 60)
    logs = n * np.log(mean)[:, None] - gammaln(n + 1)
    logs -= (noisy[:, None] - n) ** 2 / (2 * variance[:, None])
    return 1.0 / np.exp(np.minimum(logs - logs[:, :1], 700.0)).sum(axis=1)


def avoid_ghosts(siblings: Siblings, scale: float = 1.0) -> None:
    """Empty and fill areas by the rule of the module's docstring, in place; the measurements'
    precisions, times `scale`, are the inverses of the variances.
    """
    problem = siblings.problem
    grouped = problem.grouped_totals
    is_fixed = grouped is not None and np.unique(grouped[0]).size == grouped[0].size
    if problem.parent_counts is None or is_fixed:
        return
    expected = expected_counts(problem)
    mean = expected.sum(axis=1)
    can_be_empty = (mean > 0) & (mean < MOST) & ~problem.lower.any(axis=1)
    is_empty, rows = np.zeros(len(mean), dtype=bool), np.flatnonzero(can_be_empty)
    if not rows.size:
        return
    noisy, variance = siblings.totals(rows, expected[rows] / mean[rows, None])
    chance = probability_of_none(mean[rows], noisy, variance / scale)
    is_empty[rows] = chance >= LEAST
    for child in rows[np.argsort(-chance, kind="stable")].tolist():
        if is_empty[child]:
            siblings.empty(child, ~is_empty)
    for child in np.flatnonzero(can_be_empty & ~is_empty & ~siblings.x.any(axis=1)).tolist():
        siblings.fill(child)

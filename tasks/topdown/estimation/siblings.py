"""Histograms of siblings whose records move among them, cell by cell, after rounding.

Every move keeps the parent's counts, since a record that leaves one child enters another in the
same cell, and every constraint of the problem. What a move costs is the increase of

    F(x)  =  sum over children i and measured queries q of  w[i, q] |Q_q x[i] - M[i, q]|^2,

the squared distance from the noisy answers in units of their variances, 1 / w. Only noisy answers
and public facts enter; equal costs are decided by position.
"""

from __future__ import annotations

from functools import cache, cached_property

import numpy as np

from .problem import Measurements, SiblingProblem, rows_on_support, sum_rows


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

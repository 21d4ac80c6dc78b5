"""The program of a block's households over the patterns that it has so far.

Unknown is how often each class of households is made after each pattern, `z` (class, pattern), how
many persons go from each place that they have to each slot, `f` (place, slot), and how many further
members each open slot takes, `m` (slot), the first ones of households and later ones:

    minimise    sum C z + sum c f + `per_first` m + `per_later` m'
    subject to  sum over patterns of z    = households of the class,
                sum over slots of f       = persons of the place,
                sum over places of f      = slots of the patterns taken + m + m',
                m                        <= 1 for each household with that open slot,
                m'                       <= `most` - 1 for each of these.

Persons without a slot and slots without a person cost `MISSING` while columns are generated. With
prices u of persons a slot is worth v = min (c - u) over all places, at most `MISSING`; so the
cheapest pattern of a class costs w = min C + sum v + min(v + `per_first`, 0) + (`most` - 1)
min(v + `per_later`, 0), and

    sum u persons + sum w households

bounds the cost of any composition from below, of all patterns, whatever the prices.
"""

from __future__ import annotations

import numpy as np

from ...solvers.growing import GrowingProgram
from .few import FEW, MOST, nearest_of_few
from .pricing import EXACT, Problem, Taken, cheapest, nearest, priced, slot_prices, slots

_FIRST, _WITHIN = 10, 2.0
"""Patterns of a class to begin with, at most, and by how much they cost more than its cheapest."""
_PER_ROUND, _ROUNDS = 3, 25
"""Patterns of a class to add in a round; rounds at most."""
_NEAR_FILL = 0.5
"""Ways to fill a slot that are added with it: up to this above its price."""
_NEAR, _MOST = 0.8, 20
"""Reduced cost of the columns of the integer program, and how many of a class at most."""
_FAR = 1000
"""Columns of the integer program where these have no solution."""
_NEARLY_WHOLE = 0.8
"""A fraction that is taken up at once when a linear program is rounded."""
_SHARES, _LESS_NEAR = (1 / 6, 0.0), 2
"""Shares of the patterns that are taken up at once, one after the other until a solution is good
enough; and by how many times the gap it may be above the bound, if none is, before the integer
program is solved."""
_NODES, _MORE_NODES, _ITERATIONS = 20, 500, 50_000
"""Limits of the integer program: nodes, and where these find nothing; of a linear program:
iterations."""
_GAP, _ENOUGH = 0.01, 0.2
"""The share of the cost, and the cost, within which a solution is good enough."""
MISSING = 30.0
"""Cost of a person without a slot, and of a slot without a person, while columns are generated."""


class _Prices:
    """Prices of persons `(n_places,)`, and what follows: of slots `(n_slots,)`, of the slots of
    patterns `(n_patterns,)`; the cheapest patterns of every class and what they cost
    `(n_classes, n)`, ascending; the bound.
    """

    def __init__(self, problem: Problem, of_person: np.ndarray, most: int) -> None:
        """What follows from prices of persons, with so many patterns of each class."""
        self.of_person = of_person
        self.of_slot = slot_prices(problem.fill, of_person, MISSING)
        gain = np.minimum(self.of_slot + problem.per_first, 0.0)
        gain = gain + np.minimum(self.of_slot + problem.per_later, 0.0) * (problem.most - 1)
        self.of_pattern = priced(slots(), self.of_slot, gain)
        self.cheapest, self.cost = cheapest(slots(), problem.costs, self.of_pattern, most)
        of_classes = problem.n_of_class @ self.cost[:, 0]
        self.bound = float(of_classes + problem.n_of_place @ of_person)


class Program:
    """The program over some columns, to which more are added where they are worth it."""

    def __init__(self, problem: Problem, of_person: np.ndarray) -> None:
        """Begin with the patterns that are cheapest at some prices of persons `(n_places,)`."""
        self.problem = problem
        n_classes, n_places, n_slots = len(problem.costs), *problem.fill.shape
        self._place_row, self._slot_row = n_classes, n_classes + n_places
        self._open_row = self._slot_row + n_slots
        exact = np.concatenate([problem.n_of_class, problem.n_of_place, np.zeros(n_slots)])
        self._more_row = self._open_row + n_slots
        lower = np.concatenate([exact, np.full(2 * n_slots, -np.inf)])
        self._lp = GrowingProgram(lower, np.concatenate([exact, np.zeros(2 * n_slots)]))
        none = np.empty(0, dtype=np.int64)
        self._key = self._owner = self._pattern = self._z = self._opens = self._more = none
        self._has_fill = np.zeros(problem.fill.shape, dtype=bool)
        self._has_slot = np.zeros(n_slots, dtype=bool)
        self._missing = self._add(
            np.full(n_places, MISSING), self._place_row + np.arange(n_places)[:, None]
        )
        self._x, self._objective = np.empty(0), np.nan
        self._prices = _Prices(problem, of_person, _FIRST)
        self._bound = self._prices.bound

    @property
    def of_person(self) -> np.ndarray:
        """Prices of persons by place, after the last program."""
        return self._prices.of_person

    def solved(self) -> bool:
        """Solve the linear program over all patterns, by columns; whether HiGHS does."""
        now = self._prices
        owner, at = np.nonzero(now.cost <= now.cost[:, :1] + _WITHIN)
        for _ in range(_ROUNDS):
            n_new = self._add_patterns(owner, now.cheapest[owner, at])
            if n_new + self._add_fill(now, _NEAR_FILL) == 0:
                break
            solution = self._lp.solved(_ITERATIONS)
            if solution is None:
                return False
            self._x, self._objective = solution.x, solution.objective
            of_person = solution.duals[self._place_row : self._slot_row]
            now = self._prices = _Prices(self.problem, np.minimum(of_person, MISSING), _PER_ROUND)
            self._bound = max(self._bound, now.bound)
            if self._objective <= self._bound + EXACT:
                break
            of_class = solution.duals[: self._place_row]
            owner, at = np.nonzero(now.cost < of_class[:, None] - EXACT)
        return True

    def whole(self) -> Taken | None:
        """The solution of the linear program, if it is of whole numbers; else one that is nearly as
        good by rounding it step by step; else the best that HiGHS finds within limits, if any."""
        columns = np.concatenate([self._z, self._more])
        own = self._x[columns]
        if not self._misses(self._x) and (abs(own - np.rint(own)) < EXACT).all():
            return self._taken(self._x, self._bound, self._objective)
        if self.problem.n_of_class.sum() <= FEW:
            few = self._of_few()
            if few is not None:
                return few
        left_out = self._add_near()
        columns = np.concatenate([self._z, self._more])
        self._allow_nobody_missing()
        x, cost = self._x, np.inf
        for share in _SHARES:
            now, now_cost = self._rounded(columns, share)
            if now_cost < cost:
                x, cost = now, now_cost
            if self._is_near(cost, 1):
                return self._taken(x, self._bound, cost)
        if self._is_near(cost, _LESS_NEAR):
            return self._taken(x, self._bound, cost)
        is_known = np.isfinite(cost)
        self._lp.bound(columns, np.zeros(len(columns)), np.full(len(columns), np.inf))
        known = x if is_known else None
        gap = (_GAP, _ENOUGH)
        found = self._lp.solved_in_integers(columns, self._at_most(), _NODES, gap, known)
        if found is None and FEW < self.problem.n_of_class.sum() <= MOST:
            few = self._of_few()
            if few is not None:
                return few
        if found is None:
            # Of a few households no pattern nearby may have as many members as there are.
            self._add_far()
            columns = np.concatenate([self._z, self._more])
            self._allow_nobody_missing()
            found = self._lp.solved_in_integers(columns, self._at_most(), _MORE_NODES, gap, None)
        if found is not None:
            # Best among its columns, and better than any solution with another one.
            bound = min(found.bound, self._bound + left_out)
            return self._taken(found.x, bound, found.objective)
        return self._taken(x, self._bound, cost) if is_known else None

    def _of_few(self) -> Taken | None:
        """The best solution for a few households, by trying patterns."""
        return nearest_of_few(self.problem, self._prices.of_person, self._prices.of_pattern)

    def _add(self, cost: np.ndarray, rows: np.ndarray, signs: tuple[float, ...] = ()) -> np.ndarray:
        """Add columns with entries 1, or `signs`, in some rows each `(n, n_entries)`."""
        n, k = rows.shape
        values = np.tile(signs or np.ones(k), n)
        return self._lp.add(cost, np.arange(n) * k, rows.reshape(-1), values)

    def _add_patterns(self, owner: np.ndarray, pattern: np.ndarray) -> int:
        """Add patterns of classes, unless they are there, and the slots that they have; returns how
        many are new."""
        table = slots()
        key = owner * len(table.outcome) + pattern
        is_new = ~np.isin(key, self._key)
        owner, pattern = owner[is_new], pattern[is_new]
        n_new = len(owner)
        if n_new == 0:
            return 0
        start, n = table.start[pattern], table.start[pattern + 1] - table.start[pattern]
        column = np.repeat(np.arange(n_new), n)
        at = np.arange(len(column)) + np.repeat(start - np.append(0, np.cumsum(n)[:-1]), n)
        slot, opened = table.slot[at], table.open_slot[pattern]
        has_open = np.flatnonzero(opened >= 0)
        self._add_slots(slot, opened[has_open])
        opens, one = opened[has_open], np.ones(len(has_open))
        row = np.concatenate(
            [owner, self._slot_row + slot, self._open_row + opens, self._more_row + opens]
        )
        value = np.concatenate(
            [np.ones(n_new), -table.number[at], -one, (1 - self.problem.most) * one]
        )
        order = np.argsort(
            np.concatenate([np.arange(n_new), column, has_open, has_open]), kind="stable"
        )
        starts = np.append(0, np.cumsum(1 + n + 2 * (opened >= 0)))[:-1]
        cost = self.problem.costs[owner, table.outcome[pattern]]
        z = self._lp.add(cost, starts, row[order], value[order])
        self._key = np.append(self._key, key[is_new])
        self._owner = np.append(self._owner, owner)
        self._pattern = np.append(self._pattern, pattern)
        self._z = np.append(self._z, z)
        return n_new

    def _add_slots(self, slot: np.ndarray, opened: np.ndarray) -> None:
        """Let slots miss persons, and open ones take further members, that could not so far."""
        every = np.unique(np.concatenate([slot, opened]))
        every = every[~self._has_slot[every]]
        self._has_slot[every] = True
        missing = self._add(np.full(len(every), MISSING), self._slot_row + every[:, None])
        self._missing = np.append(self._missing, missing)
        opens = np.setdiff1d(opened, self._opens)
        for limit, cost in (
            (self._open_row, self.problem.per_first),
            (self._more_row, self.problem.per_later),
        ):
            rows = np.stack([self._slot_row + opens, limit + opens], axis=1)
            more = self._add(np.full(len(opens), cost), rows, (-1.0, 1.0))
            self._opens, self._more = np.append(self._opens, opens), np.append(self._more, more)

    def _add_fill(self, prices: _Prices, near: float) -> int:
        """Add the ways to fill slots of the program that are near by some prices; returns how many
        are new."""
        reduced = self._reduced_fill(prices)
        is_new = np.isfinite(reduced) & (reduced <= near) & self._has_slot & ~self._has_fill
        self._has_fill |= is_new
        place, slot = np.nonzero(is_new)
        rows = np.stack([self._place_row + place, self._slot_row + slot], axis=1)
        self._add(self.problem.fill[place, slot], rows)
        return len(place)

    def _reduced_fill(self, prices: _Prices) -> np.ndarray:
        return self.problem.fill - prices.of_person[:, None] - prices.of_slot

    def _add_near(self) -> float:
        """Add the patterns, and ways to fill their slots, that are near by the last prices; returns
        by how much all others are above theirs."""
        limit = self._prices.cost[:, 0] + _NEAR
        owner, pattern, left_out = nearest(
            slots(), self.problem.costs, self._prices.of_pattern, limit, _MOST
        )
        self._add_patterns(owner, pattern)
        self._add_fill(self._prices, _NEAR)
        # A slot that no column has, only columns left out have.
        far = self._reduced_fill(self._prices)[~self._has_fill & self._has_slot]
        return min(left_out, float(far.min(initial=np.inf)))

    def _add_far(self) -> None:
        """Add as many patterns as a program of a few households can have, and all ways to fill
        their slots."""
        n_classes = len(self.problem.costs)
        most = max(_MOST, _FAR // n_classes)
        limit = np.full(n_classes, np.finfo(float).max)
        owner, pattern, _ = nearest(
            slots(), self.problem.costs, self._prices.of_pattern, limit, most
        )
        self._add_patterns(owner, pattern)
        self._add_fill(self._prices, np.inf)

    def _is_near(self, cost: float, times: float) -> bool:
        """Whether a solution costs no more than so many times the gap above the bound."""
        return cost <= self._bound + times * max(_GAP * self._bound, _ENOUGH)

    def _rounded(self, columns: np.ndarray, share: float) -> tuple[np.ndarray, float]:
        """A solution of whole numbers near that of the linear program, and its cost; infinite where
        there is none.

        Of every class the pattern whose number has the largest fraction is taken once more; of
        these the ones that are nearly whole, and a share of the others, at a time; or one, where
        the share is 0. Then all is solved anew for the rest. From the beginning on nobody may be
        missing.
        """
        lower = np.zeros(len(columns))
        self._lp.bound(columns, lower, np.full(len(columns), np.inf))
        n_patterns = len(self._z)
        owner = np.append(self._owner, len(self.problem.costs) + np.arange(len(self._more)))
        while True:
            solution = self._lp.solved(_ITERATIONS)
            if solution is None:
                return self._x, np.inf
            own = solution.x[columns]
            part = own - np.floor(own + EXACT)
            part[part < EXACT] = 0.0
            if part[:n_patterns].any():
                part[n_patterns:] = 0.0
            order = np.lexsort((-part, owner))
            order = order[part[order] > 0]
            if len(order) == 0:
                return solution.x, solution.objective
            first = order[np.append(True, owner[order][1:] != owner[order][:-1])]
            first = first[np.argsort(-part[first], kind="stable")]
            n_nearly = int((part[first] > _NEARLY_WHOLE).sum())
            up = first[: max(1, int(len(first) * share), n_nearly if share > 0 else 0)]
            lower[up] = np.floor(own[up] + EXACT) + 1
            self._lp.bound(columns[up], lower[up], np.full(len(up), np.inf))

    def _at_most(self) -> np.ndarray:
        """How often each pattern, and each further member, can be there at most."""
        own, everybody = self.problem.n_of_class[self._owner], self.problem.n_of_place.sum()
        return np.append(own, np.full(len(self._more), everybody))

    def _allow_nobody_missing(self) -> None:
        none = np.zeros(len(self._missing))
        self._lp.bound(self._missing, none, none)

    def _misses(self, x: np.ndarray) -> bool:
        return bool((x[self._missing] > EXACT).any())

    def _taken(self, x: np.ndarray, bound: float, cost: float) -> Taken:
        further = np.zeros(self.problem.fill.shape[1], dtype=np.int64)
        np.add.at(further, self._opens, np.rint(x[self._more]).astype(np.int64))
        z = np.rint(x[self._z]).astype(np.int64)
        return Taken(self._owner, self._pattern, z, further, cost, bound)

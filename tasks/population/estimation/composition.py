"""The households nearest to a block's that its persons can fill: an integer program by columns.

Households of equal sex and age of the householder, oldest member and type are one class. There are
some 20,000 patterns; columns are generated: the linear program over some of them gives a price for
every person, thus for every slot the price of the cheapest person, thus the reduced cost of every
pattern. Prices begin with those of the block before. Most linear programs of larger blocks have a
solution of whole numbers, or nearly, and it is rounded step by step. Where that costs more than a
share above the bound, the integer program is solved over all columns that are near by these prices.
Its solution is optimal among all patterns if it costs no more than the linear program and the
smallest reduced cost that was left out. Given z, f is a transportation problem.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..workload.changes import PER_LATER_PERSON, PER_TOLD_PERSON, outcome_costs
from ..workload.household_types import OPEN_SIZE, RENTED, parts_of_types
from ..workload.patterns import book
from .columns import Program
from .drift import Drift
from .pricing import EXACT, Problem, Taken, filled, slots


@dataclass(frozen=True, eq=False)
class Households:
    """Released households of a block, `(n,)` each, as levels of their attributes."""

    sex: np.ndarray
    age: np.ndarray
    origin: np.ndarray
    race: np.ndarray
    elderly: np.ndarray
    tenure: np.ndarray
    kind: np.ndarray

    @property
    def size(self) -> np.ndarray:
        """Members that were released of each `(n,)`, `OPEN_SIZE` for as many and more."""
        return parts_of_types()["size"][self.kind]

    @property
    def is_rented(self) -> np.ndarray:
        """Whether they rent, or live there without payment `(n,)`."""
        return self.tenure == RENTED


@dataclass(frozen=True, eq=False)
class Composition:
    """The pattern of each household `(n,)`, its members beyond the pattern's `(n,)`, whether no
    other patterns cost less for sure, and the cost.
    """

    pattern: np.ndarray
    further: np.ndarray
    is_optimal: bool
    cost: float


def nearest_composition(
    households: Households, places: np.ndarray, drift: Drift
) -> Composition | None:
    """Patterns for the households of a block, given how many persons have each place
    `(N_PLACES,)`; None where the program found none within its limits.
    """
    own = households
    rows = np.stack([own.sex, own.age, own.elderly, own.kind, own.is_rented])
    classes, owner, number = np.unique(rows, axis=1, return_inverse=True, return_counts=True)
    present = np.flatnonzero(places)
    sex, age, elderly, kind, is_rented = classes
    of_types, of_heads = drift.of_types(sex, is_rented), drift.of_heads(sex, is_rented)
    costs = outcome_costs(sex, age, elderly, kind, of_types, of_heads)
    fill = filled(slots(), present, drift.distances())
    problem = Problem(costs, number, places[present], fill, drift.of_larger(), PER_LATER_PERSON)
    size = households.size
    left_over, n_open = int(places.sum() - size.sum()), int((size == OPEN_SIZE).sum())
    if n_open > 0 and left_over >= 0:
        per_first, per_later = PER_TOLD_PERSON
        solution = _solved(
            replace(problem, per_first=per_first, per_later=per_later), drift, present
        )
        first = min(left_over, n_open)
        most = per_first * first + per_later * (left_over - first)
        if solution is not None and solution.cost <= most + EXACT:
            # Nothing else has to change: then nothing else shall.
            return _dealt(solution, owner.reshape(-1))
    taken = _solved(problem, drift, present)
    return None if taken is None else _dealt(taken, owner.reshape(-1))


def _solved(problem: Problem, drift: Drift, present: np.ndarray) -> Taken | None:
    """A solution, from the prices of the block before; leaves its own for the next one."""
    program = Program(problem, drift.prices[present])
    if not program.solved():
        return None
    drift.prices[present] = program.of_person
    return program.whole()


def _dealt(taken: Taken, owner: np.ndarray) -> Composition:
    """The patterns of the single households; further members spread evenly over open ones."""
    n = len(owner)
    pattern, more = np.empty(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    # Columns in the order of their classes, and so are households here.
    columns = np.lexsort((taken.pattern, taken.owner))
    pattern[np.argsort(owner, kind="stable")] = np.repeat(taken.pattern[columns], taken.z[columns])
    opened = book().open_slot[pattern]
    for slot in np.flatnonzero(taken.further):
        takers = np.flatnonzero(opened == slot)
        more[takers] = taken.further[slot] // len(takers)
        more[takers[: taken.further[slot] % len(takers)]] += 1
    return Composition(pattern, more, taken.is_optimal, taken.cost)

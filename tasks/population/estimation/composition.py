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

from dataclasses import dataclass

import numpy as np

from ..workload.changes import outcome_costs
from ..workload.patterns import book
from .columns import Problem, Program, Taken
from .drift import Drift
from .pricing import filled, slots


@dataclass(frozen=True, eq=False)
class Households:
    """Released households of a block, `(n,)` each, as levels of their attributes."""

    sex: np.ndarray
    age: np.ndarray
    origin: np.ndarray
    race: np.ndarray
    elderly: np.ndarray
    kind: np.ndarray


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
    rows = np.stack([households.sex, households.age, households.elderly, households.kind])
    classes, owner, number = np.unique(rows, axis=1, return_inverse=True, return_counts=True)
    present = np.flatnonzero(places)
    sex, age, elderly, kind = classes
    costs = outcome_costs(sex, age, elderly, kind, drift.of_types())
    fill = filled(slots(), present, drift.distances())
    program = Program(Problem(costs, number, places[present], fill), drift.prices[present])
    if not program.solved():
        return None
    drift.prices[present] = program.of_person
    taken = program.whole()
    return None if taken is None else _dealt(taken, owner.reshape(-1))


def _dealt(taken: Taken, owner: np.ndarray) -> Composition:
    """The patterns of the single households; further members spread evenly over open ones."""
    n = len(owner)
    pattern, more = np.empty(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    # Columns in the order of their classes, and so are households here.
    columns = np.lexsort((taken.pattern, taken.owner))
    pattern[np.argsort(owner, kind="stable")] = np.repeat(taken.pattern[columns], taken.z[columns])
    opened = book().patterns.open_slot[pattern]
    for slot in np.flatnonzero(taken.further):
        takers = np.flatnonzero(opened == slot)
        more[takers] = taken.further[slot] // len(takers)
        more[takers[: taken.further[slot] % len(takers)]] += 1
    return Composition(pattern, more, taken.is_optimal, taken.cost)

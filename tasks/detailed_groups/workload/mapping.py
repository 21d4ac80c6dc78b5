"""From race and ethnicity codes to iterations: the universe of one granularity and level.

A person with race codes R and ethnicity code q is in

    (the intersection of alone(c) over c in R)  U  (the union of combination(c))  U  ethnicity(q),

where alone, combination and ethnicity give the iterations of a code; the specification lets each be
one at most. A code without an 'alone' iteration thus leaves nobody alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .iterations import CharacteristicIteration
from .specification import Specification

NONE = -1
"""No code, or no iteration."""


@dataclass(frozen=True, eq=False)
class IterationUniverse:
    """The iterations of one granularity and level, and the codes that lead to them.

    `iterations` are sorted by code. `alone`, `combination` and `ethnicity`, of shape (n_codes,),
    hold for each code the position of its iteration of that kind, or `NONE`; codes are numbered as
    `code_positions` does.
    """

    iterations: tuple[CharacteristicIteration, ...]
    alone: np.ndarray
    combination: np.ndarray
    ethnicity: np.ndarray

    def __len__(self) -> int:
        return len(self.iterations)

    @property
    def codes(self) -> np.ndarray:
        """Iteration codes, shape (n_iterations,), object."""
        return np.array([item.code for item in self.iterations], dtype=object)

    @property
    def total_only(self) -> np.ndarray:
        """Mask of the iterations that are measured by a total only, shape (n_iterations,)."""
        return np.array([item.detailed_only for item in self.iterations], dtype=bool)


def code_positions(specification: Specification) -> dict[str, int]:
    """Number of every race or ethnicity code, in the order of the codes."""
    return {code: position for position, code in enumerate(sorted(specification.names))}


@lru_cache(maxsize=8)
def iteration_universe(
    specification: Specification, granularity: str, level: int
) -> IterationUniverse:
    """The iterations that a granularity and level tabulate, and how codes lead to them."""
    iterations = sorted(
        (
            item
            for item in specification.iterations.values()
            if item.is_tabulated(granularity, level)
        ),
        key=lambda item: item.code,
    )
    position = {item.code: place for place, item in enumerate(iterations)}
    code_position = code_positions(specification)
    by_kind = {
        kind: np.full(len(code_position), NONE, dtype=np.int32) for kind in (True, False, None)
    }
    for iteration, code in specification.pairs:
        if iteration in position:
            kind = specification.iterations[iteration].is_alone
            by_kind[kind][code_position[code]] = position[iteration]
    return IterationUniverse(tuple(iterations), by_kind[True], by_kind[False], by_kind[None])


def iterations_of(
    universe: IterationUniverse, race_codes: np.ndarray, ethnicity_code: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Iterations of persons by their codes, as a compressed sparse list.

    Args:
        universe: iterations of one granularity and level.
        race_codes: numbers of the race codes, shape (n, n_codes), `NONE` where there are fewer.
        ethnicity_code: number of the ethnicity code, shape (n,).

    Returns:
        The positions in `universe.iterations` one person after the other, each once, int32; and
        where each person's begin, shape (n + 1,), int64.
    """
    n, width = race_codes.shape
    found = np.full((n, width + 2), NONE, dtype=np.int32)
    has_code = race_codes != NONE
    combination = np.where(has_code, universe.combination[race_codes], NONE)
    combination.sort(axis=1)
    combination[:, 1:][combination[:, 1:] == combination[:, :-1]] = NONE
    found[:, :width] = combination
    alone = universe.alone[race_codes]
    is_alone = has_code[:, 0] & ((alone == alone[:, :1]) | ~has_code).all(axis=1)
    found[:, width] = np.where(is_alone, alone[:, 0], NONE)
    found[:, width + 1] = universe.ethnicity[ethnicity_code]
    is_found = found != NONE
    start = np.concatenate([[0], np.cumsum(is_found.sum(axis=1))])
    return found[is_found], start


def exact_stability(universe: IterationUniverse, max_race_codes: int) -> int:
    """The most iterations of the universe that any possible person is in.

    Of m different codes that share an 'alone' iteration a, a person gets a and at most
    min(m, D_a) iterations in combination, D_a being those that codes of a lead to; of other codes,
    at most min(m, D). An ethnicity adds one, if there is any.

    >>> codes = np.arange(3)
    >>> exact_stability(IterationUniverse((), codes * 0, codes + 1, codes * 0 - 1), 2)
    3
    """
    combination, alone = universe.combination, universe.alone

    def reachable(members: np.ndarray) -> int:
        n_combinations = np.unique(combination[members & (combination != NONE)]).size
        return min(max_race_codes, n_combinations)

    everybody = np.ones(combination.size, dtype=bool)
    shared = [1 + reachable(alone == item) for item in np.unique(alone[alone != NONE])]
    return max([reachable(everybody), *shared]) + int((universe.ethnicity != NONE).any())


def stability(universe: IterationUniverse, max_race_codes: int) -> int:
    """The number of groups of a level that the noise protects a person in, at least 1.

    It is that of the production program, so that the same files give the same noise, and the
    exact one where a specification lets persons be in more groups; there the production program
    drops the groups that are too many.
    """
    exact = exact_stability(universe, max_race_codes)
    return max(1, exact, production_stability(universe, max_race_codes))


def production_stability(universe: IterationUniverse, max_race_codes: int) -> int:
    """The stability that the production program computes: h_r max(2, max_race_codes) + h_e.

    h_r and h_e are the most 'alone' and ethnicity iterations of one code, here 0 or 1. With the
    2020 specification this is the exact stability at every granularity and level.
    """
    has_race = int((universe.alone != NONE).any())
    has_ethnicity = int((universe.ethnicity != NONE).any())
    return has_race * max(2, max_race_codes) + has_ethnicity


def alone_counterparts(specification: Specification) -> Mapping[str, str]:
    """For 'alone' iterations, the 'in any combination' iteration of the same level that holds them.

    That is the one which every code of the first is also in, if there is one: then nobody is in the
    first without being in the second.
    """
    codes: dict[str, set[str]] = {}
    for iteration, code in specification.pairs:
        codes.setdefault(iteration, set()).add(code)
    races = [item for item in specification.iterations.values() if item.code in codes]
    combined: dict[tuple[int, str], list[str]] = {}
    for item in races:
        if item.is_alone is False:
            for code in codes[item.code]:
                combined.setdefault((item.level, code), []).append(item.code)
    found = {}
    for item in races:
        if item.is_alone:
            common = set.intersection(
                *(set(combined.get((item.level, code), [])) for code in codes[item.code])
            )
            # The smallest group that holds the first, by its number of codes.
            smallest = sorted(common, key=lambda other: (len(codes[other]), other))
            if smallest:
                found[item.code] = smallest[0]
    return found

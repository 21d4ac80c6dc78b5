"""The specification of characteristic iterations: which race and ethnicity codes make which group.

An iteration is a race or ethnicity group with 'alone' or 'in any combination'. Those of level 0 are
the major groups, which other products tabulate; of the others, level 1 is regional and level 2
detailed. A `DETAILED_ONLY` iteration exists for the nation and the states alone, where it is
measured by a total only; a `COARSE_ONLY` iteration below them alone.

Four pipe-delimited files in the layout of the production program, checked more strictly than it
does: whatever would be dropped, counted twice or truncated later is refused here. The files hold no
records, so that messages quote them.

A person with race codes R and ethnicity code q is in

    (the intersection of alone(c) over c in R)  U  (the union of combination(c))  U  ethnicity(q),

where alone, combination and ethnicity give the iterations of a code; the specification lets each be
one at most. So no person is alone in a code without an 'alone' iteration.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from .regions import COARSE, DETAILED

LEVELS = (1, 2)
"""Iteration levels that are tabulated: regional and detailed."""


@dataclass(frozen=True)
class CharacteristicIteration:
    """A row of the race or the ethnicity characteristic iterations.

    `is_alone` is None for an ethnicity, since every person has exactly one.
    """

    code: str
    name: str
    level: int
    is_alone: bool | None
    detailed_only: bool = False
    coarse_only: bool = False

    def is_tabulated(self, granularity: str, level: int) -> bool:
        """Whether the iteration belongs to a granularity and level."""
        is_left_out = self.coarse_only if granularity == DETAILED else self.detailed_only
        return self.level == level and not is_left_out


CODES_FILE = "race-and-ethnicity-codes.txt"
RACE_FILE = "race-characteristic-iterations.txt"
ETHNICITY_FILE = "ethnicity-characteristic-iterations.txt"
MAPPING_FILE = "race-and-ethnicity-code-to-iteration.txt"
SPECIFICATION_FILES = (CODES_FILE, RACE_FILE, ETHNICITY_FILE, MAPPING_FILE)


class SpecificationError(ValueError):
    """The specification files or `config.json` contradict themselves; they hold no records."""


MAJOR_LEVEL = 0
"""Level of the iterations that are not tabulated here."""

CODE_PATTERN = "[1-9][0-9]{3}"

_NAMED = {"ITERATION_CODE": "[0-9]{4}", "ITERATION_NAME": ".*", "LEVEL": "[0-9]"}
_FLAGGED = dict.fromkeys(("DETAILED_ONLY", "COARSE_ONLY"), "True|False|Null")
_COLUMNS: Mapping[str, Mapping[str, str]] = {
    CODES_FILE: {"RACE_ETH_CODE": CODE_PATTERN, "RACE_ETH_NAME": ".*"},
    RACE_FILE: {**_NAMED, "ALONE": "True|False", **_FLAGGED},
    ETHNICITY_FILE: {**_NAMED, **_FLAGGED},
    MAPPING_FILE: {"ITERATION_CODE": "[0-9]{4}", "RACE_ETH_CODE": CODE_PATTERN},
}
"""Columns of each file in their order, and the pattern that whole values must match."""


@dataclass(frozen=True, eq=False)
class Specification:
    """Iterations, codes, and the pairs of iteration and code that assign codes to groups.

    `names` maps race and ethnicity codes to their names; `iterations` has all levels' iterations,
    by code; `pairs` holds (iteration code, race or ethnicity code).
    """

    names: Mapping[str, str]
    iterations: Mapping[str, CharacteristicIteration]
    pairs: tuple[tuple[str, str], ...]


def parse_specification(texts: Mapping[str, str]) -> Specification:
    """The specification in the texts of the files `SPECIFICATION_FILES`.

    Raises SpecificationError for a missing, extra or misplaced column; a field that does not match
    its form; a code or iteration that is listed twice; an iteration that is both a race's and an
    ethnicity's; one that is both detailed-only and coarse-only; one whose level is not 0, 1 or 2,
    or whose flags are Null at level 1 or 2, or not Null at level 0; a pair of unknown code or
    iteration, or one that is listed twice; or a code that is in two groups of the same kind, level
    and granularity.
    """
    rows = {name: _rows(name, texts[name]) for name in SPECIFICATION_FILES}
    _refuse_repeated(CODES_FILE, "RACE_ETH_CODE", (row[0] for row in rows[CODES_FILE]))
    for name in (RACE_FILE, ETHNICITY_FILE):
        _refuse_repeated(name, "ITERATION_CODE", (row[0] for row in rows[name]))
    races = [_iteration(RACE_FILE, row) for row in rows[RACE_FILE]]
    ethnicities = [_iteration(ETHNICITY_FILE, row) for row in rows[ETHNICITY_FILE]]
    in_both = {item.code for item in races} & {item.code for item in ethnicities}
    if in_both:
        raise SpecificationError(
            f"{ETHNICITY_FILE}: iteration {min(in_both)} is also in {RACE_FILE}; give it a code "
            "of its own"
        )
    iterations = {item.code: item for item in (*races, *ethnicities)}
    if not any(item.level in LEVELS for item in iterations.values()):
        raise SpecificationError(
            f"{RACE_FILE}: no iteration has level 1 or 2, so there is nothing to tabulate; "
            "add the iterations"
        )
    pairs = tuple((iteration, code) for iteration, code in rows[MAPPING_FILE])
    _check_pairs(pairs, iterations, {row[0] for row in rows[CODES_FILE]})
    return Specification(dict(rows[CODES_FILE]), iterations, pairs)


def _rows(name: str, text: str) -> list[list[str]]:
    columns = _COLUMNS[name]
    header, *lines = (line.rstrip("\r") for line in text.removeprefix("\ufeff").split("\n"))
    if header.split("|") != list(columns):
        raise SpecificationError(
            f"{name}: the first line must be {'|'.join(columns)}; correct the columns and "
            "their order"
        )
    numbered = [(number, line.split("|")) for number, line in enumerate(lines, start=2) if line]
    patterns = [re.compile(pattern) for pattern in columns.values()]
    for number, row in numbered:
        if len(row) != len(columns):
            raise SpecificationError(
                f"{name}: line {number} has {len(row)} fields instead of {len(columns)}; correct it"
            )
        for column, pattern, value in zip(columns, patterns, row, strict=True):
            if not pattern.fullmatch(value):
                raise SpecificationError(
                    f"{name}: {column} is {value!r} on line {number} and must match "
                    f"{pattern.pattern}; correct it"
                )
    if not numbered:
        raise SpecificationError(f"{name}: the file has no rows under its header; add them")
    return [row for _, row in numbered]


def _iteration(name: str, row: Sequence[str]) -> CharacteristicIteration:
    fields = dict(zip(_COLUMNS[name], row, strict=True))
    code, level = fields["ITERATION_CODE"], int(fields["LEVEL"])
    flags = (fields["DETAILED_ONLY"], fields["COARSE_ONLY"])
    needed, allowed = "True or False", {"True", "False"}
    if level == MAJOR_LEVEL:
        needed, allowed = "Null", {"Null"}
    fault = None
    if level not in (MAJOR_LEVEL, *LEVELS):
        fault = f"has level {level}; use 0, 1 or 2, since no other is tabulated"
    elif flags == ("True", "True"):
        fault = "is both DETAILED_ONLY and COARSE_ONLY; make one False"
    elif not allowed.issuperset(flags):
        fault = (
            f"has level {level} and must have {needed} in DETAILED_ONLY and COARSE_ONLY; correct "
            "its level or these columns"
        )
    if fault is not None:
        raise SpecificationError(f"{name}: iteration {code} {fault}")
    return CharacteristicIteration(
        code=code,
        name=fields["ITERATION_NAME"],
        level=level,
        is_alone=fields["ALONE"] == "True" if "ALONE" in fields else None,
        detailed_only=flags[0] == "True",
        coarse_only=flags[1] == "True",
    )


def _check_pairs(
    pairs: Sequence[tuple[str, str]],
    iterations: Mapping[str, CharacteristicIteration],
    codes: set[str],
) -> None:
    for what, values, known, files in (
        ("iteration", (pair[0] for pair in pairs), iterations, f"{RACE_FILE} or {ETHNICITY_FILE}"),
        ("code", (pair[1] for pair in pairs), codes, CODES_FILE),
    ):
        unknown = set(values) - set(known)
        if unknown:
            raise SpecificationError(
                f"{MAPPING_FILE}: {what} {min(unknown)} is not in {files}; add it or remove its "
                "rows"
            )
    _refuse_repeated(MAPPING_FILE, "pair of ITERATION_CODE and RACE_ETH_CODE", pairs)
    for granularity, level in product((DETAILED, COARSE), LEVELS):
        first: dict[tuple[str, bool | None], str] = {}
        for iteration, code in pairs:
            own = iterations[iteration]
            if own.is_tabulated(granularity, level):
                other = first.setdefault((code, own.is_alone), iteration)
                if other != iteration:
                    raise SpecificationError(
                        f"{MAPPING_FILE}: code {code} is mapped to both iteration {other} and "
                        f"{iteration}, which are of the same kind, level and granularity; keep one"
                    )


def _refuse_repeated(name: str, what: str, values: Iterable[str | tuple[str, str]]) -> None:
    repeated = [value for value, times in Counter(values).items() if times > 1]
    if repeated:
        first = repeated[0]
        shown = " and ".join(first) if isinstance(first, tuple) else first
        raise SpecificationError(f"{name}: {what} {shown} is listed more than once; keep one row")


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
        race_codes: numbers of the race codes, shape (n, n_codes), `NONE` beyond a person's number
        of codes. ethnicity_code: number of the ethnicity code, shape (n,).

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

    For m different codes that share an 'alone' iteration a, a person gets a and at most min(m, D_a)
    iterations in combination, D_a being the number that codes of a lead to; for other codes, at
    most min(m, D). An ethnicity adds one, if there is any.

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

    It agrees with the production program, so that the same files give the same noise, and is the
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

    It contains every code of the first, if it exists: then every person in the first is also in the
    second.
    """
    codes: dict[str, set[str]] = {}
    for iteration, code in specification.pairs:
        codes.setdefault(iteration, set()).add(code)
    races = [item for item in specification.iterations.values() if item.code in codes]
    # The smallest first, by its number of codes.
    combined = sorted(
        (item for item in races if item.is_alone is False),
        key=lambda item: (len(codes[item.code]), item.code),
    )
    found = {}
    for item in races:
        if item.is_alone:
            holding = (
                other.code
                for other in combined
                if other.level == item.level and codes[item.code] <= codes[other.code]
            )
            if (smallest := next(holding, None)) is not None:
                found[item.code] = smallest
    return found

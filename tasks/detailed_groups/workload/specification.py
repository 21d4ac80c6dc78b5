"""The specification of characteristic iterations: which race and ethnicity codes make which group.

Four pipe-delimited files in the layout of the production program, checked more strictly than it
does: whatever would be dropped, counted twice or truncated later is refused here. The files hold no
records, so that messages quote them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .iterations import LEVELS, CharacteristicIteration
from .regions import COARSE, DETAILED

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
"""Columns of each file in their order, and what a value must match as a whole."""


@dataclass(frozen=True, eq=False)
class Specification:
    """Iterations, codes, and the pairs of iteration and code that say which code is in which group.

    `names` maps race and ethnicity codes to their names; `iterations` are those of all levels,
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
    if level not in (MAJOR_LEVEL, *LEVELS):
        raise SpecificationError(
            f"{name}: iteration {code} has level {level}; use 0, 1 or 2, since no other "
            "is tabulated"
        )
    if flags == ("True", "True"):
        raise SpecificationError(
            f"{name}: iteration {code} is both DETAILED_ONLY and COARSE_ONLY; make one False"
        )
    if level == MAJOR_LEVEL and flags != ("Null", "Null"):
        raise SpecificationError(
            f"{name}: iteration {code} has level 0 and must have Null in DETAILED_ONLY and "
            "COARSE_ONLY; correct its level or these columns"
        )
    if level != MAJOR_LEVEL and "Null" in flags:
        raise SpecificationError(
            f"{name}: iteration {code} has level {level} and must have True or False in "
            "DETAILED_ONLY and COARSE_ONLY; correct its level or these columns"
        )
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
    unknown = {iteration for iteration, _ in pairs} - set(iterations)
    if unknown:
        raise SpecificationError(
            f"{MAPPING_FILE}: iteration {min(unknown)} is in neither {RACE_FILE} nor "
            f"{ETHNICITY_FILE}; add it or remove its rows"
        )
    unknown = {code for _, code in pairs} - codes
    if unknown:
        raise SpecificationError(
            f"{MAPPING_FILE}: code {min(unknown)} is not in {CODES_FILE}; add it or remove its rows"
        )
    _refuse_repeated(MAPPING_FILE, "pair of ITERATION_CODE and RACE_ETH_CODE", pairs)
    for granularity in (DETAILED, COARSE):
        for level in LEVELS:
            _refuse_mapped_twice(
                (code, iterations[iteration])
                for iteration, code in pairs
                if iterations[iteration].is_tabulated(granularity, level)
            )


def _refuse_mapped_twice(pairs: Iterable[tuple[str, CharacteristicIteration]]) -> None:
    first: dict[tuple[str, bool | None], str] = {}
    for code, iteration in pairs:
        other = first.setdefault((code, iteration.is_alone), iteration.code)
        if other != iteration.code:
            raise SpecificationError(
                f"{MAPPING_FILE}: code {code} is mapped to both iteration {other} and "
                f"{iteration.code}, which are of the same kind, level and granularity; keep one"
            )


def _refuse_repeated(name: str, what: str, values: Iterable[str | tuple[str, str]]) -> None:
    repeated = [value for value, times in Counter(values).items() if times > 1]
    if repeated:
        first = repeated[0]
        shown = " and ".join(first) if isinstance(first, tuple) else first
        raise SpecificationError(f"{name}: {what} {shown} is listed more than once; keep one row")

"""Rules on the input of every product, declared in `declared_rules`.

They are rules of `validation.rules`, on the distinct values of evidence columns. Those of detailed
groups apply to the rows of the tabulated states; rows of other states are removed before.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .rules import Evidence, Rule, RuleFile


def _declared(name: str) -> RuleFile:
    return RuleFile.read(Path(__file__).parent / "declared_rules" / f"{name}.toml")


_CENSUS = _declared("census")

GROUP_QUARTERS_CODES: Mapping[int, tuple[str, ...]] = {
    int(kind): tuple(codes) for kind, codes in _CENSUS.tables["group_quarters"].items()
}
"""Codes of group quarters by type: correctional (1), juvenile (2), nursing (3), other
institutional (4), college (5), military (6), other noninstitutional (7)."""

NURSING_FACILITY = 3
"""Group-quarters type without residents younger than `ADULT_AGE`."""

ADULT_AGE = 18

CENSUS_RULES = _CENSUS.of(
    "rules", group_quarters=[code for codes in GROUP_QUARTERS_CODES.values() for code in codes]
)
"""All rules on census tables (persons, units, geography), in the order of reporting."""


def applicable_rules(evidence: Evidence) -> tuple[Rule, ...]:
    """The rules on census tables whose column is in the evidence; a schema may not need every
    persons column."""
    return tuple(rule for rule in CENSUS_RULES if rule.evidence in evidence.get(rule.suite, {}))


TENURE_RULE = _declared("supplemental_dhc").one("units")
"""Households by tenure need it."""

_DETAILED = _declared("detailed_groups")

NO_CODE = "Null"
"""Word in QRACE2 to QRACE8 where a person has fewer race codes, in the production layout."""

RACE_COLUMNS = tuple(f"QRACE{number}" for number in range(1, 9))
ETHNICITY_COLUMN = "QSPAN"
CODES_FILE = "race-and-ethnicity-codes.txt"

GEOGRAPHY_WIDTHS: Mapping[str, int] = _DETAILED.tables["widths"]["geography"]
PERSON_WIDTHS: Mapping[str, int] = _DETAILED.tables["widths"]["persons"]

HOUSEHOLD_RULES = _DETAILED.of("units")
"""The rules on the units of households; the first is on TEN of those that have a household."""


def production_rules() -> tuple[Rule, ...]:
    """The rules on `person-records.txt` and `GRF-C.txt`, in the order of reporting."""
    digits = (
        _DETAILED.one("digits", table=table, column=name, lower=name.lower(), width=width)
        for table, widths in _DETAILED.tables["widths"].items()
        for name, width in widths.items()
    )
    persons, blocks = _DETAILED.of("persons"), _DETAILED.of("blocks")
    return (*digits, *persons, *code_rules(no_code=NO_CODE), *blocks)


def code_rules(*, no_code: str | None) -> tuple[Rule, ...]:
    """The rules on race and ethnicity codes.

    `no_code` is the word in QRACE2 to QRACE8 for a missing code; None for a blank.
    """
    optional = "code_or_blank" if no_code is None else "code_or_word"
    columns = (*RACE_COLUMNS, ETHNICITY_COLUMN)
    valid = (
        _DETAILED.one(
            optional if name in RACE_COLUMNS[1:] else "code",
            column=name,
            lower=name.lower(),
            word=no_code,
        )
        for name in columns
    )
    known = (
        _DETAILED.one("known_code", column=name, unknown_code=unknown_code(name), file=CODES_FILE)
        for name in columns
    )
    return (*valid, *known, _DETAILED.one("codes_first", none=no_code or "blank"))


def unknown_code(column: str) -> str:
    """Name of the evidence that a code of a column is not in the specification."""
    return f"unknown_code_in_{column.lower()}"


SIZE_RULES = _declared("group_sizes")
"""Rules of group sizes: of the hierarchy `regions`, in the order of checking; and `total`, that the
number of groups is the declared one."""

_TOP_CODE = (
    "set mechanism.top_coded = true, which counts larger ones with the largest size at no more "
    "noise; a largest size taken from confidential data would reveal them"
)


def size_rules(smallest: int, largest: int, *, is_top_coded: bool = False) -> tuple[Rule, ...]:
    """Rules of the table of sizes; with a top code no size is too large."""
    known = SIZE_RULES.one("known_region", table="sizes")
    return (known, *SIZE_RULES.of("sizes", **_size_words(smallest, largest, is_top_coded)))


def record_rules(
    smallest: int, largest: int, quantity: int, *, is_top_coded: bool = False
) -> tuple[Rule, ...]:
    """Rules of the table of persons; the last is about groups."""
    amount = "1, 0 or empty" if quantity == 1 else f"a whole number from 0 to {quantity}"
    words = _size_words(smallest, largest, is_top_coded)
    once, named, *others = SIZE_RULES.of("records", quantity=quantity, amount=amount, **words)
    return (once, named, SIZE_RULES.one("known_region", table="records"), *others)


def unit_size_rule(largest: int) -> Rule:
    """The rule that a unit of census tables is not larger than the largest size."""
    return SIZE_RULES.one("census", largest=largest, top_code=_TOP_CODE)


def _size_words(smallest: int, largest: int, is_top_coded: bool) -> dict[str, Any]:
    """Words in the rules on sizes for the possible sizes."""
    remedy = "correct the column" if is_top_coded else f"correct the column, or {_TOP_CODE}"
    if smallest != 0:
        remedy += "; mechanism.smallest_size = 0 admits empty groups"
    return {
        "smallest": smallest,
        "largest": None if is_top_coded else largest,
        "range": f"of at least {smallest}" if is_top_coded else f"from {smallest} to {largest}",
        "remedy_for_sizes": remedy,
    }


AREA_RULES = _declared("areas")
"""On lists of `areas`: they are named, stand once and have one parent, each; their parents are
known, their levels form a chain, and every branch reaches the finest."""

TRIP_RULES = _declared("trips")
"""Rules of trips, on yes/no evidence. On a list of areas `columns`, that its levels are those
columns of a table; on a table `place`, that a column holds known areas or values, `counts` that are
whole numbers and not negative, `person`, that every trip is somebody's, and `contribution`, that a
person makes at most, and at least, so many trips, and none twice; and `depth`, that origins and
destinations have hierarchies of one depth."""

LARGEST_COUNT = 1 << 40
"""A count beyond this is refused as a slip, as text that is no number is."""


def place_rule(table: str, column: str, role: str, where: str) -> Rule:
    """The rule that a column of a table holds known areas or values."""
    return TRIP_RULES.one("place", table=table, column=column, role=role, where=where)

"""Rules on persons and geography for detailed race and ethnicity groups, declared in
`input_rules.toml`.

The rules are of the kind of `validation.rules`, on the distinct values of evidence columns. They
apply to the rows of the tabulated states; rows of other states are removed before.
"""

from __future__ import annotations

from pathlib import Path

from ..rules import Rule, RuleFile

_FILE = RuleFile.read(Path(__file__).with_suffix(".toml"))

NO_CODE = "Null"
"""Word in QRACE2 to QRACE8 where a person has fewer race codes, in the production layout."""

RACE_COLUMNS = tuple(f"QRACE{number}" for number in range(1, 9))
ETHNICITY_COLUMN = "QSPAN"
CODES_FILE = "race-and-ethnicity-codes.txt"

GEOGRAPHY_WIDTHS = {
    "TABBLKST": 2,
    "TABBLKCOU": 3,
    "TABTRACTCE": 6,
    "TABBLK": 4,
    "PLACEFP": 5,
    "AIANNHCE": 4,
}
PERSON_WIDTHS = {
    name: GEOGRAPHY_WIDTHS[name] for name in ("TABBLKST", "TABBLKCOU", "TABTRACTCE", "TABBLK")
}


def production_rules() -> tuple[Rule, ...]:
    """The rules on `person-records.txt` and `GRF-C.txt`, in the order of reporting."""
    return (
        *(_digits("geography", name, width) for name, width in GEOGRAPHY_WIDTHS.items()),
        *(_digits("persons", name, width) for name, width in PERSON_WIDTHS.items()),
        *_FILE.of("persons"),
        *code_rules(no_code=NO_CODE),
        *_FILE.of("blocks"),
    )


def code_rules(*, no_code: str | None) -> tuple[Rule, ...]:
    """The rules on race and ethnicity codes.

    `no_code` is the word in QRACE2 to QRACE8 for a missing code; None for a blank.
    """
    optional = "code_or_blank" if no_code is None else "code_or_word"
    columns = (*RACE_COLUMNS, ETHNICITY_COLUMN)
    valid = (
        _FILE.one(
            optional if name in RACE_COLUMNS[1:] else "code",
            column=name,
            lower=name.lower(),
            word=no_code,
        )
        for name in columns
    )
    known = (
        _FILE.one("known_code", column=name, unknown_code=unknown_code(name), file=CODES_FILE)
        for name in columns
    )
    return (*valid, *known, _FILE.one("codes_first", none=no_code or "blank"))


def household_rules() -> tuple[Rule, ...]:
    """The rules on the units of households."""
    return _FILE.of("units")


HOUSEHOLD_TENURE = household_rules()[0].evidence
"""Name of the evidence of TEN of the units that have a household."""


def unknown_code(column: str) -> str:
    """Name of the evidence that a code of a column is not in the specification."""
    return f"unknown_code_in_{column.lower()}"


def _digits(table: str, column: str, width: int) -> Rule:
    return _FILE.one("digits", table=table, column=column, lower=column.lower(), width=width)

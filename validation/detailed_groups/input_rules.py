"""What persons and geography must satisfy for detailed race and ethnicity groups, declared once.

The rules are of the kind of `validation.rules`, on the distinct values of evidence columns.
They hold for the rows of the states that are tabulated; rows of other states are left out before.
"""

from __future__ import annotations

from ..census.input_rules import OLDEST_AGE
from ..rules import Rule

NO_CODE = "Null"
"""What stands in QRACE2 to QRACE8 where a person has fewer race codes, in the production layout."""

RACE_COLUMNS = tuple(f"QRACE{number}" for number in range(1, 9))
ETHNICITY_COLUMN = "QSPAN"
CODES_FILE = "race-and-ethnicity-codes.txt"

SEXES = ("1", "2")
CENRACE_CODES = tuple(str(code) for code in range(1, 64))
AGES = tuple(str(age) for age in range(OLDEST_AGE + 1))

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
        _in_set("QAGE", AGES, f"a whole number from 0 to {OLDEST_AGE}"),
        _in_set("QSEX", SEXES, "1 or 2"),
        _in_set("CENRACE", CENRACE_CODES, "a code from 01 to 63"),
        _in_set("HOUSEHOLDER", ("True", "False"), "True or False"),
        *code_rules(no_code=NO_CODE),
        _never(
            "geography",
            "TABBLK",
            "repeated_block",
            "every block (state, county, tract, block) must occur once",
            "remove the duplicate blocks",
        ),
        _never(
            "persons",
            "TABBLK",
            "person_in_unknown_block",
            "the block of every person must be in the geography",
            "add the blocks to the geography, or correct the persons",
        ),
    )


def code_rules(*, no_code: str | None) -> tuple[Rule, ...]:
    """The rules on race and ethnicity codes.

    `no_code` is what stands in QRACE2 to QRACE8 where there is none; None for a blank.
    """
    columns = (*RACE_COLUMNS, ETHNICITY_COLUMN)
    unless = "blank" if no_code is None else no_code
    return (
        *(_code(name, no_code, may_be_none=name in RACE_COLUMNS[1:]) for name in columns),
        *(
            _never(
                "persons",
                name,
                unknown_code(name),
                f"every code in {name} must be one of {CODES_FILE}",
                "correct the column, or add the codes to the specification",
            )
            for name in columns
        ),
        _never(
            "persons",
            "QRACE2",
            "race_code_after_none",
            f"no race code may follow a {unless} one in QRACE1 to QRACE8",
            "move the codes of each person to the first columns",
        ),
    )


HOUSEHOLD_TENURE = "tenure_of_household"
"""Name of the evidence of TEN of the units that have a household."""


def household_rules() -> tuple[Rule, ...]:
    """The rules on the units of households."""
    return (
        Rule(
            name="ten_is_valid",
            suite="units",
            table="units",
            column="TEN",
            evidence=HOUSEHOLD_TENURE,
            statement="TEN must be 1, 2, 3 or 4 in every unit with a household",
            remedy="correct the column",
            allowed=("1", "2", "3", "4"),
        ),
    )


def unknown_code(column: str) -> str:
    """Name of the evidence that a code of a column is not in the specification."""
    return f"unknown_code_in_{column.lower()}"


def _code(column: str, no_code: str | None, *, may_be_none: bool) -> Rule:
    what = "a code of four digits, the first not 0"
    pattern = "[1-9][0-9]{3}"
    if may_be_none:
        what = f"{'blank' if no_code is None else no_code} or {what}"
        pattern = pattern if no_code is None else f"{pattern}|{no_code}"
    return Rule(
        name=f"{column.lower()}_is_valid",
        suite="persons",
        table="persons",
        column=column,
        evidence=column,
        statement=f"{column} must be {what}, in every row",
        remedy="correct the column",
        pattern=pattern,
        may_be_blank=may_be_none and no_code is None,
    )


def _in_set(column: str, allowed: tuple[str, ...], what: str) -> Rule:
    return Rule(
        name=f"{column.lower()}_is_valid",
        suite="persons",
        table="persons",
        column=column,
        evidence=column,
        statement=f"{column} must be {what} in every row",
        remedy="correct the column",
        allowed=allowed,
    )


def _digits(table: str, column: str, width: int) -> Rule:
    return Rule(
        name=f"{column.lower()}_is_valid",
        suite=table,
        table=table,
        column=column,
        evidence=column,
        statement=f"{column} must be {width} digits in every row",
        remedy="fill the column, with leading zeros",
        pattern=f"[0-9]{{{width}}}",
    )


def _never(table: str, column: str, evidence: str, statement: str, remedy: str) -> Rule:
    return Rule(
        name=f"no_{evidence}",
        suite="cross_table",
        table=table,
        column=column,
        evidence=evidence,
        statement=statement,
        remedy=remedy,
        allowed=(False,),
    )

"""Rules on the input of the trips flow, declared in `input_rules.toml`.

Every rule is a yes/no column: whether something is wrong with a row, or with an area. It is
counted by the code that reads the input, and evaluated by Great Expectations as a public pass or
fail (`validation.expectations`).
"""

from __future__ import annotations

from pathlib import Path

from ..rules import Rule, RuleFile

RULES = RuleFile.read(Path(__file__).with_suffix(".toml"))
"""On a file of areas (level, area, parent) `areas`, and with `columns`, that its levels are those
columns of a table; on a table `place`, that a column holds known areas or values, `counts` that are
whole numbers and not negative, `person`, that every trip is somebody's, and `contribution`, that a
person makes at most, and at least, so many trips, and none twice; and `depth`, that origins and
destinations have hierarchies of one depth."""

LARGEST_COUNT = 1 << 40
"""A count beyond this is refused as a slip, as text that is no number is."""


def place_rule(table: str, column: str, role: str, where: str) -> Rule:
    """The rule that a column of a table holds known areas or values."""
    return RULES.one("place", table=table, column=column, role=role, where=where)


def column_rules(table: str) -> tuple[Rule, ...]:
    """Rules on a file of areas that holds the values of a table's level columns."""
    named, once, one_parent, known, _, depths = RULES.of("areas", table=table)
    return named, once, one_parent, known, RULES.one("columns", table=table), depths

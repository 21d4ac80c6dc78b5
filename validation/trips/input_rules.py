"""What the input of the trips flow must satisfy, as `input_rules.toml` declares it.

Every rule is a yes/no column: whether something is wrong with a row, or with an area. It is
counted by the code that reads the input, and evaluated by Great Expectations as a public pass or
fail (`validation.expectations`).
"""

from __future__ import annotations

from pathlib import Path

from ..rule_files import RuleFile
from ..rules import Rule

_FILE = RuleFile.read(Path(__file__).with_suffix(".toml"))

LARGEST_COUNT = 1 << 40
"""A count beyond this is refused as a slip, as text that is no number is."""


def area_rules(table: str) -> tuple[Rule, ...]:
    """Rules on a file of areas (level, area, parent); `table` is its key in the settings."""
    return _FILE.of("areas", table=table)


def column_rules(table: str) -> tuple[Rule, ...]:
    """Rules on a file of areas that holds the values of a table's level columns."""
    named, once, one_parent, known, _, depths = area_rules(table)
    return named, once, one_parent, known, _FILE.one("columns", table=table), depths


def depth_rule(table: str) -> Rule:
    """The rule that origins and destinations have hierarchies of one depth."""
    return _FILE.one("depth", table=table)


def place_rule(table: str, column: str, role: str, where: str) -> Rule:
    """The rule that a column of a table holds known areas or values."""
    return _FILE.one("place", table=table, column=column, role=role, where=where)


def count_rules(table: str, column: str) -> tuple[Rule, ...]:
    """The rules that counts are whole numbers and not negative, both about the same values."""
    return _FILE.of("counts", table=table, column=column, largest=LARGEST_COUNT)


def person_rule(table: str, column: str) -> Rule:
    """The rule that every trip is somebody's."""
    return _FILE.one("person", table=table, column=column)


def contribution_rules(table: str, column: str, most: int) -> tuple[Rule, ...]:
    """The rules that a person makes at most, and at least, so many trips, and none twice."""
    return _FILE.of("contribution", table=table, column=column, most=most)

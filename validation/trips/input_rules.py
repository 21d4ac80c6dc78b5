"""What the input of the trips flow must satisfy, declared once for each file of a run.

Every rule is a yes/no column: whether something is wrong with a row, or with an area. It is
counted by the code that reads the input, and evaluated by Great Expectations as a public pass or
fail (`validation.expectations`).
"""

from __future__ import annotations

from dataclasses import replace

from ..rules import Rule

LARGEST_COUNT = 1 << 40
"""A count beyond this is refused as a slip, as text that is no number is."""


def area_rules(table: str) -> tuple[Rule, ...]:
    """Rules on a file of areas (level, area, parent); `table` is its key in the settings."""
    return (
        _rule(
            table,
            "area",
            "areas_are_named",
            "every row must name a level and an area",
            "fill the level and the area in every row",
        ),
        _rule(
            table,
            "area",
            "areas_stand_once",
            "an area must stand once in its level",
            "remove the repeated rows",
        ),
        _rule(
            table,
            "parent",
            "areas_have_one_parent",
            "an area must have one parent",
            "give it one parent, or another code under the other parent",
        ),
        _rule(
            table,
            "parent",
            "parents_are_known",
            "every parent must be an area of the level above",
            "correct the parent, or add the area it names",
        ),
        _rule(
            table,
            "level",
            "levels_are_a_chain",
            "the levels must form one chain from the coarsest, whose areas have no parent, to the "
            "finest",
            "give every area below the coarsest level a parent in the level above",
        ),
        _rule(
            table,
            "area",
            "depths_are_equal",
            "every branch must reach the finest level",
            "add the missing areas below it; one with the same code will do",
        ),
    )


def column_rules(table: str) -> tuple[Rule, ...]:
    """Rules on a file of areas that holds the values of a table's level columns."""
    named, once, one_parent, known, _, depths = area_rules(table)
    columns = _rule(
        table,
        "level",
        "columns_have_values",
        "every level column must have values, with parents for all of them or for none",
        "name the column in level, each value in area, and where a value lies in one of the column "
        "before, that in parent",
    )
    return named, once, one_parent, known, columns, depths


def depth_rule(table: str) -> Rule:
    """The rule that origins and destinations have hierarchies of one depth."""
    return _rule(
        table,
        "level",
        "hierarchies_have_one_depth",
        "the areas of destinations must have as many levels as those of origins",
        "leave levels out of one file, or repeat areas in the other",
    )


def place_rule(table: str, column: str, role: str, where: str) -> Rule:
    """The rule that a column of a table holds known areas or values."""
    return _rule(
        table,
        column,
        f"{role}_is_known",
        f"{column} must be {where} in every row",
        "correct the rows, or add what they name to the file of areas",
    )


def count_rules(table: str, column: str) -> tuple[Rule, ...]:
    """The rules that counts are whole numbers and not negative, both about the same values."""
    whole = _rule(
        table,
        column,
        "count_is_whole",
        f"{column} must be a whole number in every row",
        "round or repeat the rows before they come here; trips are counted, not weighed",
    )
    not_negative = _rule(
        table,
        column,
        "count_is_not_negative",
        f"{column} must not be negative in any row",
        "correct or remove the rows",
    )
    values = f"{column} in {table}"
    return (
        replace(whole, evidence=values, allowed=None, between=(None, LARGEST_COUNT)),
        replace(not_negative, evidence=values, allowed=None, between=(0, None), may_be_blank=True),
    )


def person_rule(table: str, column: str) -> Rule:
    """The rule that every trip is somebody's."""
    return _rule(
        table,
        column,
        "person_is_filled",
        f"{column} must name a person in every row",
        "fill the column, or leave input.person out",
    )


def contribution_rules(table: str, column: str, most: int) -> tuple[Rule, Rule, Rule]:
    """The rules that a person makes at most, and at least, so many trips, and none twice."""
    return (
        _rule(
            table,
            column,
            "trips_per_person_are_few",
            f"no {column} may have more than {most} trips",
            "set privacy.excess_trips = 'dropped', which keeps a random choice of them; a number "
            "taken from confidential data would tell of them",
        ),
        _rule(
            table,
            column,
            "trips_per_person_are_exact",
            f"every {column} must have {most} trips where privacy.total is invariant",
            "set privacy.total = 'measured'",
        ),
        _rule(
            table,
            column,
            "trips_are_distinct",
            f"no {column} may have two trips in one cell where privacy.distinct_trips is true",
            "set privacy.distinct_trips = false, or privacy.excess_trips = 'dropped'",
        ),
    )


def _rule(table: str, column: str, name: str, statement: str, remedy: str) -> Rule:
    return Rule(
        name=name,
        suite=table,
        table=table,
        column=column,
        evidence=f"breaks {name}",
        statement=statement,
        remedy=remedy,
        allowed=(False,),
    )

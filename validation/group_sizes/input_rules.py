"""What the tables of the group-sizes flow must satisfy.

Every rule is about yes/no evidence: whether some row, region or group breaks it. Rules of the
`regions` table are about public files.
"""

from __future__ import annotations

from dataclasses import replace

from ..rules import Rule


def _never(table: str, column: str, name: str, statement: str, remedy: str) -> Rule:
    return Rule(
        name=name,
        suite=table,
        table=table,
        column=column,
        evidence=name,
        statement=statement,
        remedy=remedy,
        allowed=(False,),
    )


def _values(
    rule: Rule,
    *,
    pattern: str | None = None,
    between: tuple[int | None, int | None] | None = None,
) -> Rule:
    """A rule about the values of its column, made from one about a yes/no column."""
    evidence = f"{rule.column} of {rule.name}"
    return replace(rule, allowed=None, evidence=evidence, pattern=pattern, between=between)


REGION_RULES: tuple[Rule, ...] = (
    _never(
        "regions",
        "region",
        "regions_are_named",
        "level and region must be filled in every row",
        "fill the column; only the root has no parent",
    ),
    _never(
        "regions",
        "region",
        "regions_stand_once",
        "every region must stand in one row of its level",
        "keep one row a region, with its one parent",
    ),
    _values(
        _never(
            "regions",
            "level",
            "level_names_are_plain",
            "names of levels must be made of letters, digits, spaces and ._-",
            "rename the level",
        ),
        pattern="[A-Za-z0-9][A-Za-z0-9 ._-]*",
    ),
    _never(
        "regions",
        "parent",
        "there_is_one_root",
        "one level must have no parents, and one region",
        "leave the parent of one region empty and give all others theirs",
    ),
    _never(
        "regions",
        "parent",
        "levels_are_a_chain",
        "every parent must be a region of the level above, the same for all regions of a level",
        "correct the parents, or add the regions that are missing; all leaves have equal depth",
    ),
    _never(
        "regions",
        "region",
        "depths_are_equal",
        "every region above the finest level must have regions below it",
        "add a region of the level below, or leave the region out; all leaves have equal depth",
    ),
)
"""Rules of the hierarchy, in the order in which they are looked at."""

NUMBERS_RULES: tuple[Rule, ...] = (
    _never(
        "numbers",
        "region",
        "region_is_of_the_level",
        "region must be a region of invariants.level in every row",
        "correct the column, or name the level whose regions these are",
    ),
    _never(
        "numbers",
        "region",
        "every_region_stands_once",
        "every region of invariants.level must stand in one row",
        "add the regions that are missing, and keep one row of each",
    ),
    _values(
        _never(
            "numbers",
            "groups",
            "number_is_valid",
            "groups must be a whole number, at least 0, in every row",
            "correct the column; it is the public number of groups of the region",
        ),
        between=(0, None),
    ),
)
"""Rules of a table of public numbers of groups by region."""


def size_rules(smallest: int, largest: int, *, is_top_coded: bool = False) -> tuple[Rule, ...]:
    """Rules of the table of sizes; with a top code no size is too large."""
    return (
        _region_is_known("sizes"),
        _values(
            _never(
                "sizes",
                "size",
                "size_is_valid",
                f"size must be a whole number {_range(smallest, largest, is_top_coded)} in every "
                "row",
                _remedy_for_sizes(smallest, is_top_coded),
            ),
            between=(smallest, None if is_top_coded else largest),
        ),
        _values(
            _never(
                "sizes",
                "count",
                "count_is_valid",
                "count must be a whole number, at least 0, in every row",
                "correct the column; it is the number of groups of that size in that region",
            ),
            between=(0, None),
        ),
        _never(
            "sizes",
            "region",
            "size_of_region_stands_once",
            "region and size must stand together in one row alone",
            "keep one row of each, or add up what belongs together before",
        ),
    )


def record_rules(
    smallest: int, largest: int, quantity: int, *, is_top_coded: bool = False
) -> tuple[Rule, ...]:
    """Rules of the table of persons; the last is about groups."""
    sizes = _range(smallest, largest, is_top_coded)
    amount = "1, 0 or empty" if quantity == 1 else f"a whole number from 0 to {quantity}"
    return (
        _never(
            "records",
            "person",
            "person_stands_once",
            "person must be filled, and stand in one row alone",
            "give one row a person; who is in two groups could change both",
        ),
        _never(
            "records",
            "unit",
            "unit_is_named",
            "unit must be filled in every row",
            "fill the column; a unit is what the persons of a group share",
        ),
        _region_is_known("records"),
        _never(
            "records",
            "region",
            "unit_lies_in_one_region",
            "all rows of a unit must have the same region",
            "correct the regions, or number the parts of the unit as units of their own",
        ),
        _values(
            _never(
                "records",
                "quantity",
                "quantity_is_valid",
                f"quantity must be {amount} in every row",
                "correct the column, or set mechanism.largest_quantity, which adds noise, to what "
                "is known to be the most without these data",
            ),
            between=(0, quantity),
        ),
        _values(
            _never(
                "records",
                "quantity",
                "size_is_valid",
                f"the quantities of a unit must add to a size {sizes}",
                _remedy_for_sizes(smallest, is_top_coded),
            ),
            between=(smallest, None if is_top_coded else largest),
        ),
    )


def total_rule(table: str) -> Rule:
    """The rule that the number of groups is the declared one."""
    return _never(
        table,
        "count",
        "total_is_as_declared",
        "the number of groups must be that of invariants.groups",
        "correct the table or the setting; the number is public and stated exactly",
    )


def numbers_rule(table: str) -> Rule:
    """The rule that every region has the public number of groups."""
    return _never(
        table,
        "region",
        "numbers_are_as_declared",
        "every region must have as many groups as invariants.numbers says",
        "correct either table; the numbers are public and stated exactly",
    )


def census_rule(largest: int) -> Rule:
    """The rule that a unit of census tables is not larger than the largest size."""
    return _never(
        "persons",
        "MAFID",
        "size_is_valid",
        f"no unit may have more than {largest} persons",
        _TOP_CODE,
    )


def _region_is_known(table: str) -> Rule:
    return _never(
        table,
        "region",
        "region_is_known",
        "region must be a region of the finest level of the hierarchy in every row",
        "correct the column, or add the region to the hierarchy",
    )


_TOP_CODE = (
    "set mechanism.top_coded = true, which counts larger ones with the largest size at no more "
    "noise; a largest size taken from confidential data would tell of them"
)


def _range(smallest: int, largest: int, is_top_coded: bool) -> str:
    return f"of at least {smallest}" if is_top_coded else f"from {smallest} to {largest}"


def _remedy_for_sizes(smallest: int, is_top_coded: bool) -> str:
    remedy = "correct the column" if is_top_coded else f"correct the column, or {_TOP_CODE}"
    return remedy if smallest == 0 else f"{remedy}; mechanism.smallest_size = 0 admits empty groups"

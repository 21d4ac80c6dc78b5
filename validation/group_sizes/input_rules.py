"""Rules on the tables of the group-sizes flow, declared in `input_rules.toml`.

Every rule is about yes/no evidence, whether some row, region or group breaks it, or about the
values of its column.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..rules import Rule, RuleFile

RULES = RuleFile.read(Path(__file__).with_suffix(".toml"))
"""Rules of the hierarchy `regions`, in the order of checking; `numbers`, of a table of public
numbers of groups by region; and that the number of groups is the declared one, `total`, or that of
every region, `numbers_by_region`."""

_TOP_CODE = (
    "set mechanism.top_coded = true, which counts larger ones with the largest size at no more "
    "noise; a largest size taken from confidential data would reveal them"
)


def size_rules(smallest: int, largest: int, *, is_top_coded: bool = False) -> tuple[Rule, ...]:
    """Rules of the table of sizes; with a top code no size is too large."""
    known = RULES.one("known_region", table="sizes")
    return (known, *RULES.of("sizes", **_words(smallest, largest, is_top_coded)))


def record_rules(
    smallest: int, largest: int, quantity: int, *, is_top_coded: bool = False
) -> tuple[Rule, ...]:
    """Rules of the table of persons; the last is about groups."""
    amount = "1, 0 or empty" if quantity == 1 else f"a whole number from 0 to {quantity}"
    words = _words(smallest, largest, is_top_coded)
    once, named, *others = RULES.of("records", quantity=quantity, amount=amount, **words)
    return (once, named, RULES.one("known_region", table="records"), *others)


def census_rule(largest: int) -> Rule:
    """The rule that a unit of census tables is not larger than the largest size."""
    return RULES.one("census", largest=largest, top_code=_TOP_CODE)


def _words(smallest: int, largest: int, is_top_coded: bool) -> dict[str, Any]:
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

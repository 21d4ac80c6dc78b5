"""What the census tables (persons, units, geography) must satisfy, as `cef_rules.toml` declares."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..rules import Evidence, Rule, Value

_DECLARED = tomllib.loads((Path(__file__).parent / "cef_rules.toml").read_text(encoding="utf-8"))

GROUP_QUARTERS_CODES: Mapping[int, tuple[str, ...]] = {
    int(kind): tuple(codes) for kind, codes in _DECLARED["group_quarters"].items()
}
"""Codes of group quarters by type: correctional (1), juvenile (2), nursing (3), other
institutional (4), college (5), military (6), other noninstitutional (7)."""

NURSING_FACILITY = 3
"""Group-quarters type in which nobody is younger than `ADULT_AGE`."""

ADULT_AGE = 18
OLDEST_AGE = 115


def applicable_rules(evidence: Evidence) -> tuple[Rule, ...]:
    """The rules whose column is in the evidence; a schema may not need every persons column."""
    return tuple(rule for rule in RULES if rule.evidence in evidence.get(rule.suite, {}))


def _rule(declared: Mapping[str, Any]) -> Rule:
    """A declared rule; without codes, numbers or a pattern, its evidence must be no."""
    texts = {key: declared[key] for key in ("name", "suite", "table", "column", "evidence")}
    texts |= {key: declared[key] for key in ("statement", "remedy")}
    if "pattern" in declared:
        return Rule(**texts, pattern=declared["pattern"])
    if declared.get("group_quarters"):
        codes = tuple(code for codes in GROUP_QUARTERS_CODES.values() for code in codes)
        return Rule(**texts, allowed=codes, may_be_blank=True)
    allowed: tuple[Value, ...] = (False,)
    if "numbers" in declared:
        low, high = declared["numbers"]
        allowed = tuple(str(number) for number in range(low, high + 1))
    elif "allowed" in declared:
        allowed = tuple(declared["allowed"])
    return Rule(**texts, allowed=allowed)


RULES: tuple[Rule, ...] = tuple(_rule(declared) for declared in _DECLARED["rules"])
"""All rules, in the order in which a failure is reported."""

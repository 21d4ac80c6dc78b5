"""Rules on the census tables (persons, units, geography), declared in `cef_rules.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..rules import Evidence, Rule, RuleFile

_DECLARED = RuleFile.read(Path(__file__).with_name("cef_rules.toml"))

GROUP_QUARTERS_CODES: Mapping[int, tuple[str, ...]] = {
    int(kind): tuple(codes) for kind, codes in _DECLARED.tables["group_quarters"].items()
}
"""Codes of group quarters by type: correctional (1), juvenile (2), nursing (3), other
institutional (4), college (5), military (6), other noninstitutional (7)."""

NURSING_FACILITY = 3
"""Group-quarters type without residents younger than `ADULT_AGE`."""

ADULT_AGE = 18


def applicable_rules(evidence: Evidence) -> tuple[Rule, ...]:
    """The rules whose column is in the evidence; a schema may not need every persons column."""
    return tuple(rule for rule in RULES if rule.evidence in evidence.get(rule.suite, {}))


RULES = _DECLARED.of(
    "rules", group_quarters=[code for codes in GROUP_QUARTERS_CODES.values() for code in codes]
)
"""All rules, in the order in which a failure is reported."""

"""Rules on the input of a run, their files, and the number of rows that break one.

Every rule is a statement about the distinct values of one column of *evidence*: a column of the
table itself, in canonical text or as a whole number, or a yes/no column derived from several
columns or tables. A rule of this kind holds for all rows if and only if it holds for all distinct
values, so it can be evaluated on a table's distinct values, however many rows there are.
`count_violations` evaluates a rule here, with (confidential) row counts; `validation.expectations`
turns the same rules into Great Expectations suites for the public outcome. Each product declares
the rules on its input in its `input_rules`.

A TOML file declares the rules in groups:

    evidence = "breaks {name}"   # default of every rule of the file
    [[areas]]                    # a rule of the group `areas`, in the order of reporting
    name = "areas_are_named"
    column = "area"
    statement = "every row must name a level and an area"
    remedy = "fill the level and the area in every row"

Names in braces are replaced by words that are given with the group, or by the rule's own texts;
braces of a pattern are doubled. The table of a rule is the group's name, its suite is its table,
and its evidence its name, unless it says otherwise.

A rule has at most one condition on its evidence: a `pattern`, the values that are `allowed`, the
`numbers` from a first to a last as texts, or the ends `at_least` and `at_most`. These and `allowed`
may be the name of a word. Without a condition the evidence is yes or no, and must be no.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Value = str | int | bool | None
Evidence = Mapping[str, Mapping[str, Mapping[Value, int]]]
"""Suite -> evidence column -> distinct value -> number of rows with it. None is blank."""


@dataclass(frozen=True)
class Rule:
    """A rule about the distinct values of one evidence column.

    `statement` is a clause with "must", which names no value of a record; `remedy` is an
    imperative. A value passes if it is in `allowed`, fully matches `pattern`, or is a number from
    the first to the second of `between`, None for no end; a blank (None) passes if `may_be_blank`.
    `suite` is its suite of expectations, `table` the input table whose file a message names,
    `column` the column it names.
    """

    name: str
    suite: str
    table: str
    column: str
    evidence: str
    statement: str
    remedy: str
    allowed: tuple[Value, ...] | None = None
    pattern: str | None = None
    between: tuple[int | None, int | None] | None = None
    may_be_blank: bool = False

    @property
    def is_yes_or_no(self) -> bool:
        """Whether the evidence is derived, and must be no."""
        return self.allowed == (False,)

    def is_met_by(self, value: Value) -> bool:
        """Whether one distinct value of the evidence column passes."""
        if value is None:
            return self.may_be_blank
        if self.allowed is not None:
            return value in self.allowed
        if self.between is not None:
            low, high = self.between
            if isinstance(value, str):
                return False
            return (low is None or low <= value) and (high is None or value <= high)
        if self.pattern is None or not isinstance(value, str):
            return False
        return re.fullmatch(self.pattern, value) is not None


def count_violations(rule: Rule, evidence: Evidence) -> int:
    """Number of rows that break a rule; confidential."""
    rows_of = evidence[rule.suite][rule.evidence]
    return sum(rows for value, rows in rows_of.items() if not rule.is_met_by(value))


TEXTS = ("name", "suite", "table", "column", "evidence", "statement", "remedy")


@dataclass(frozen=True)
class RuleFile:
    """Content of a file: tables of `rules` by group, the texts `of_all`, and its other `tables`."""

    rules: Mapping[str, list[dict[str, Any]]]
    of_all: Mapping[str, str]
    tables: Mapping[str, dict[str, Any]]

    @classmethod
    def read(cls, path: Path) -> RuleFile:
        """Read a TOML file."""
        declared = tomllib.loads(path.read_text(encoding="utf-8"))
        rules = {name: value for name, value in declared.items() if isinstance(value, list)}
        tables = {name: value for name, value in declared.items() if isinstance(value, dict)}
        return cls(rules, {name: declared[name] for name in declared if name in TEXTS}, tables)

    def of(self, group: str, **words: Any) -> tuple[Rule, ...]:
        """The rules of a group, with `words` for the names in braces."""
        return tuple(
            self._rule(declared, {"table": group} | words) for declared in self.rules[group]
        )

    def one(self, group: str, **words: Any) -> Rule:
        """The rule of a group of one."""
        (rule,) = self.of(group, **words)
        return rule

    def _rule(self, declared: Mapping[str, Any], words: Mapping[str, Any]) -> Rule:
        own = {key: declared[key].format(**words) for key in TEXTS if key in declared}
        known = {**words, **own}
        for key, text in self.of_all.items():
            known[key] = own.get(key) or text.format(**known)
        known = {"suite": known["table"], "evidence": known["name"]} | known
        return Rule(
            **{key: known[key] for key in TEXTS},
            **_condition(declared, known),
            may_be_blank=declared.get("may_be_blank", False),
        )


def _condition(declared: Mapping[str, Any], words: Mapping[str, Any]) -> dict[str, Any]:
    """The condition on the evidence of a rule, as `Rule` takes it."""
    if "pattern" in declared:
        return {"pattern": declared["pattern"].format(**words)}
    if "at_least" in declared or "at_most" in declared:
        low, high = declared.get("at_least"), declared.get("at_most")
        return {
            "between": tuple(words[end] if isinstance(end, str) else end for end in (low, high))
        }
    allowed: tuple[Value, ...] = (False,)
    if "numbers" in declared:
        first, last = declared["numbers"]
        allowed = tuple(str(number) for number in range(first, last + 1))
    elif "allowed" in declared:
        named = declared["allowed"]
        allowed = tuple(words[named] if isinstance(named, str) else named)
    return {"allowed": allowed}

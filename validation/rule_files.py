"""Rules on an input as a TOML file declares them, in groups.

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

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .rules import Rule, Value

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

"""What an input shows of each rule, as it is read: rows that break it, and the values it is about.

Our own code counts the rows that break a rule. Great Expectations judges the same rule by itself,
from the distinct values that were seen of a column, or from a yes/no column where a rule is about
rows together or about several columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pandas as pd

from ...validation.expectations import run_suites
from ...validation.outcome import Outcome
from ...validation.rules import Rule, Value
from .findings import Finding


@dataclass
class RuleTally:
    """Evidence on rules, in the order in which rules are looked at; counts and values are
    confidential.

    `files` maps a table to the name that messages show for it.
    """

    files: dict[str, str]
    _broken: dict[Rule, int] = field(default_factory=dict)
    _examples: dict[Rule, str] = field(default_factory=dict)
    _seen: dict[tuple[str, str], dict[Value, None]] = field(default_factory=dict)

    def add(self, rule: Rule, count: int, example: str = "") -> bool:
        """Add cases that break a rule, 0 included; whether there are none.

        `example` ends the public sentence: only what a public file says.
        """
        self._broken[rule] = self._broken.get(rule, 0) + int(count)
        if count and example:
            self._examples.setdefault(rule, example)
        return not count

    def add_areas(self, rule: Rule, rows: pd.DataFrame, is_wrong: pd.Series, what: str) -> bool:
        """Add those of public areas, rows of level, area, parent, that break a rule, and what the
        first of them is or has as an example; whether there are none."""
        example = ""
        if is_wrong.any():
            level, area, _ = rows[is_wrong].iloc[0]
            example = f", but {area} of level {level} {what}"
        return self.add(rule, is_wrong.sum(), example)

    def see(self, rule: Rule, values: Iterable[Value]) -> None:
        """Add values of a rule's column, None where there is none of the kind that it is about."""
        self._seen.setdefault((rule.suite, rule.evidence), {}).update(dict.fromkeys(values))

    def is_broken(self, rule: Rule) -> bool:
        """Whether rows that break a rule were counted."""
        return self._broken[rule] > 0

    @property
    def is_clean(self) -> bool:
        """Whether no rule has been broken."""
        return not any(self._broken.values())

    def outcomes(self) -> tuple[Outcome, ...]:
        """Public outcome of every rule that was looked at, by Great Expectations.

        Each judges by itself; input is accepted only where neither finds anything.
        """
        distinct: dict[str, dict[str, tuple[Value, ...]]] = {}
        for rule, count in self._broken.items():
            counted = (False, True) if count else (False,)
            seen: Iterable[Value] = self._seen.get((rule.suite, rule.evidence), counted)
            distinct.setdefault(rule.suite, {})[rule.evidence] = tuple(seen)
        return run_suites(tuple(self._broken), distinct)

    def findings(self, outcomes: Iterable[Outcome] = ()) -> tuple[Finding, ...]:
        """The rules that were broken by our count or by an outcome, with counts where there are."""
        failed = {(outcome.subject, outcome.name) for outcome in outcomes if not outcome.passed}
        return tuple(
            Finding(
                self.files[rule.table],
                rule.column,
                rule.statement + self._examples.get(rule, ""),
                rule.remedy,
                count or None,
            )
            for rule, count in self._broken.items()
            if count or (rule.suite, rule.name) in failed
        )
